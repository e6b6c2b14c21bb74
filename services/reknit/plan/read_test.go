package plan

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/reknit/cluster"
)

// sound is a file in which each fault is planted by replacing a part.
const sound = `cluster: c
nodes:
  - {node: a, memory: 8GiB, speed: 1.5}
  - {node: b, memory: 8GiB}
  - {node: c, memory: 8GiB}
links:
  default: {roundTrip: 1ms, bandwidth: 1Gbit/s}
  measured:
    - {between: [a, b], roundTrip: 2ms, bandwidth: 2Gbit/s}
    - {from: b, to: c, roundTrip: 2ms, bandwidth: 2Gbit/s}
  disconnected: [[a, c]]
model:
  layers: 2
  profile: {parameters: 1MB, optimizer: 2MB, gradients: 1MB, activations: 1kB, output: 1kB, forward: 1ms, backward: 2ms}
globalBatch: 8
microBatch: 2
pipelines: {min: 1, max: 2}
stages: {max: 2}
timeBetweenFailures: 1h
minReplicas: 1
switchTime: 20ms
current:
  - microBatches: 4
    stages:
      - {node: a, layers: {first: 0, end: 1}}
      - {node: b, layers: {first: 1, end: 2}}
failed: [b]
joining: [c]
`

// faults is what may be wrong with the file: a part of it, what stands there instead, and what the error must say.
var faults = []struct{ old, new, says string }{
	{"cluster: c", "cluster: a.b",
		`cluster.yaml:1: cluster: expected 1 to 64 characters of A-Z a-z 0-9 - _, got "a.b"`},
	{"cluster: c", "clutser: c", "cluster.yaml:1: clutser: expected one of the keys cluster, nodes,"},
	{"cluster: c\n", "", "cluster.yaml: cluster: expected a value, got none"},
	{"cluster: c", "cluster: c\ncluster: d", "cluster.yaml:2: cluster: expected each key once"},
	{"cluster: c", "cluster: [c]", "cluster.yaml:1: cluster: expected a name, got a list"},
	{"cluster: c", "cluster:", "cluster.yaml:1: cluster: expected a name, got nothing"},
	{"cluster: c", "cluster: c: d", "cluster.yaml: yaml: "},
	{"joining: [c]", "joining: [c]\n---\n", "expected one YAML document"},
	{sound, "", "expected a cluster, got an empty file"},
	{sound, "a: *a", "cluster.yaml: yaml: unknown anchor"},
	{sound, "- a", "cluster.yaml: the file: expected the keys cluster, nodes,"},
	{"node: b, memory", "node: b c, memory", "cluster.yaml:4: nodes[1].node: expected 1 to 64"},
	{"node: b, memory", "node: a, memory", "cluster.yaml:4: nodes[1].node: expected each node once, got a"},
	{"{node: b, memory: 8GiB}", "{node: b}", "cluster.yaml:4: nodes[1].memory: expected a value, got none"},
	{"{node: b, memory: 8GiB}", "{node: b, memry: 8GiB}",
		"cluster.yaml:4: nodes[1].memry: expected one of the keys node, memory, speed, site"},
	{"{node: b, memory: 8GiB}", "b", `cluster.yaml:4: nodes[1]: expected the keys node, memory, speed, site, got "b"`},
	{"b, memory: 8GiB", "b, memory: 8",
		`cluster.yaml:4: nodes[1].memory: expected a size with its unit, such as 24GiB or 500MB, got "8"`},
	{"b, memory: 8GiB", "b, memory: -8GiB", "nodes[1].memory: expected a size"},
	{"b, memory: 8GiB", "b, memory: 1e300GiB", "nodes[1].memory: expected a size"},
	{"b, memory: 8GiB", "b, memory: {}",
		"nodes[1].memory: expected a size with its unit, such as 24GiB or 500MB, got keys"},
	{"b, memory: 8GiB", "b, memory: 0B", "nodes[1].memory: expected more than 0"},
	{"speed: 1.5", "speed: fast", `cluster.yaml:3: nodes[0].speed: expected a number, got "fast"`},
	{"speed: 1.5", "speed: 0", "nodes[0].speed: expected a number of 1e-9 to 1e9, got 0"},
	{"speed: 1.5", "speed: 1e308", "cluster.yaml:3: nodes[0].speed: expected a number of 1e-9 to 1e9, got 1e+308"},
	{"speed: 1.5", "speed: .nan", "nodes[0].speed: expected a number"},
	{"roundTrip: 1ms", "roundTrip: 1",
		`links.default.roundTrip: expected a time with its unit, such as 250ms or 6h, got "1"`},
	{"roundTrip: 1ms", "roundTrip: -1ms", "links.default.roundTrip: expected a time"},
	{"bandwidth: 1Gbit/s", "bandwidth: 1GB",
		`links.default.bandwidth: expected a rate above 0 with its unit, such as 10Gbit/s or 120MB/s, got "1GB"`},
	{"bandwidth: 1Gbit/s", "bandwidth: 0Gbit/s", "links.default.bandwidth: expected a rate above 0"},
	{"bandwidth: 1Gbit/s", "bandwidth: NaNB/s", "links.default.bandwidth: expected a rate"},
	{"between: [a, b]", "between: [a]", "cluster.yaml:9: links.measured[0]: expected two different nodes"},
	{"between: [a, b]", "between: [a, a]", "links.measured[0]: expected two different nodes"},
	{"between: [a, b]", "between: [a, x]", `links.measured[0]: expected one of the cluster's nodes, got "x"`},
	{"between: [a, b]", "between: [b, c]",
		"cluster.yaml:10: links.measured[1]: expected each direction once, got b to c again"},
	{"from: b, to: c", "from: b", "links.measured[1]: expected two different nodes"},
	{"from: b, to: c, ", "",
		"links.measured[1]: expected between two nodes, or from one to another, got neither or both"},
	{"from: b, to: c", "between: [a, c], to: c", "links.measured[1]: expected between two nodes, or from one"},
	{"[[a, c]]", "[[a]]", "cluster.yaml:11: links.disconnected[0]: expected two different nodes"},
	{"[[a, c]]", "[a, c]", "links.disconnected[0]: expected a list"},
	{"[[a, c]]", "[[a, x]]", "links.disconnected[0]: expected one of the cluster's nodes"},
	{"[[a, c]]", "[[b, a]]", `cluster.yaml:11: links.disconnected[0]: expected a pair that links.measured does not have, got ["b" "a"]`},
	{"layers: 2\n", "layers: two\n", `cluster.yaml:13: model.layers: expected a whole number, got "two"`},
	{"layers: 2\n", "layers: 0\n", "model.layers: expected 1 to 4096, got 0"},
	{"layers: 2\n", "layers: 5000\n", "model.layers: expected 1 to 4096, got 5000"},
	{"layers: 2\n", "layers: 2\n  optimizerPartitions: 65\n",
		"cluster.yaml:14: model.optimizerPartitions: expected 0 to 64, got 65"},
	{"layers: 2\n", "layers: 2\n  optimizerPartitions: -1\n",
		"cluster.yaml:14: model.optimizerPartitions: expected 0 to 64, got -1"},
	{"layers: 2\n", "layers: 100\n  optimizerPartitions: 64\n",
		"model.optimizerPartitions: expected at most 4096 layers and partitions of layers, got 6500"},
	{"layers: 2\n", "layers: 2\n  optimizerPartitions: 2\n",
		"current[0].partitions: expected those that it keeps of the 2 optimizerPartitions, [] for none, got nothing"},
	{"microBatches: 4", "microBatches: 4\n    partitions: [0]",
		"cluster.yaml:22: current: expected pipelines that keep the 0 optimizerPartitions of model, got 1"},
	{"microBatches: 4", "microBatches: 4\n    partitions: [1]",
		"current: expected partition 0 of layer 0 at an active node, got none"},
	{"profile: {parameters: 1MB", "optimizerPartitions: 1\n  profile: {parameters: 0B",
		"cluster.yaml:15: model.profile.parameters: expected more than 0, where there are optimizerPartitions, got 0 B"},
	{"profile: {parameters: 1MB, optimizer: 2MB", "optimizerPartitions: 3\n  profile: {parameters: 1MB, optimizer: 2B",
		"cluster.yaml:15: model.profile.optimizer: expected a byte at least for each of 3 optimizerPartitions, got 2 B"},
	{"profile: {", "profiles: [] #", "cluster.yaml:12: model: expected layers and their profile, or profiles"},
	{"parameters: 1MB, ", "", "cluster.yaml:14: model.profile.parameters: expected a value, got none"},
	{"optimizer: 2MB", "optimiser: 2MB", "model.profile.optimiser: expected one of the keys parameters, optimizer,"},
	{"forward: 1ms", "forward: soon", "model.profile.forward: expected a time"},
	{"forward: 1ms, ", "", "cluster.yaml:14: model.profile.forward: expected a time: both are told of all layers, or none, got none"},
	{", backward: 2ms", "", "cluster.yaml:14: model.profile.backward: expected a time: both are told of all layers, or none, got none"},
	{"globalBatch: 8", "globalBatch: 0", "cluster.yaml:15: globalBatch: expected at least 1, got 0"},
	{"globalBatch: 8", "globalBatch: 1000000000000",
		"cluster.yaml:15: globalBatch: expected at most 65536 micro-batches of 2 samples, got 500000000000"},
	{"globalBatch: 8", "globalBatch: 8\nbatchRule: {samplesPerNode: 131074, learningRate: linear}",
		"cluster.yaml:16: batchRule.samplesPerNode: expected at most 65536 micro-batches of 2 samples, got 65537"},
	{"microBatch: 2", "microBatch: 3", "cluster.yaml:16: microBatch: expected a divisor of globalBatch 8, got 3"},
	{"microBatch: 2", "microBatch: 0", "microBatch: expected a divisor"},
	{"{min: 1, max: 2}", "{min: 3, max: 2}", "cluster.yaml:17: pipelines: expected 0 <= min <= max"},
	{"stages: {max: 2}", "stages: {min: -1}", "cluster.yaml:18: stages: expected 0 <= min <= max"},
	{"timeBetweenFailures: 1h", "timeBetweenFailures: 0s",
		"cluster.yaml:19: timeBetweenFailures: expected a time above 0"},
	{"minReplicas: 1", "minReplicas: 0", "cluster.yaml:20: minReplicas: expected at least 1, got 0"},
	{"switchTime: 20ms", "switchTime: short", "cluster.yaml:21: switchTime: expected a time"},
	{"switchTime: 20ms", "restart: 9999h", "cluster.yaml:21: restart: expected a time of at most 24h, got "},
	{"switchTime: 20ms", "switchTime: 25h", "cluster.yaml:21: switchTime: expected a time of at most 24h, got "},
	{"microBatches: 4", "microBatches: 5",
		"cluster.yaml:22: current: expected 8 samples a step, got 5 micro-batches of 2"},
	{"{first: 1, end: 2}", "{first: 0, end: 2}",
		"cluster.yaml:26: current[0].stages[1]: expected layers from 1 on, got "},
	{"{first: 1, end: 2}", "{first: 1, end: 3}", "current: expected the 2 layers of model, got 3"},
	{"{first: 1, end: 2}", "{first: 1}",
		"cluster.yaml:26: current[0].stages[1].layers.end: expected a value, got none"},
	{"{node: a, layers", "{node: x, layers",
		`cluster.yaml:25: current[0].stages[0].node: expected one of the cluster's nodes, got "x"`},
	{"{node: a, layers", "{node: c, layers",
		"current[0].stages[0].node: expected a node that is there, not one that joins, got c"},
	{"failed: [b]", "failed: [x]", "cluster.yaml:27: failed[0]: expected one of the cluster's nodes"},
	{"failed: [b]", "failed: [c]", "cluster.yaml:28: joining[0]: expected a node that changes once, got c"},
	{"failed: [b]", "failed: b", `failed: expected a list, got "b"`},
	{"failed: [b]", "leaving: [b, b]", "leaving[1]: expected a node that changes once, got b"},
}

func TestEachFaultOfAFileIsToldWithItsLineAndWhatWasExpected(t *testing.T) {
	for _, fault := range faults {
		if strings.Count(sound, fault.old) != 1 {
			t.Fatalf("%q: expected it once in the sound file", fault.old)
		}
		err := question(strings.Replace(sound, fault.old, fault.new, 1))
		if err == nil || !strings.Contains(err.Error(), fault.says) {
			t.Errorf("with %q:\n  error %v\n  expected one that says %s", fault.new, err, fault.says)
		}
	}
}

func question(text string) error {
	var f file
	d, err := cluster.Decode("cluster.yaml", []byte(text), &f.File)
	if err == nil {
		_, err = f.question(d, []byte(text))
	}
	return err
}

func TestASoundFileHasNoFault(t *testing.T) {
	if err := question(sound); err != nil {
		t.Error(err)
	}
}

func TestProfilesAreOneALayer(t *testing.T) {
	line := "  profile: {parameters: 1MB, optimizer: 2MB, gradients: 1MB, activations: 1kB, output: 1kB, forward: 1ms, backward: 2ms}"
	one := strings.TrimPrefix(line, "  profile: ")
	two := strings.Replace(sound, line, "  profiles: [&first "+one+", *first]", 1)
	if err := question(two); err != nil {
		t.Error(err)
	}
	three := strings.Replace(two, "*first]", "*first, *first]", 1)
	if err := question(three); err == nil ||
		!strings.Contains(err.Error(), "model.layers: expected the 3 of profiles") {
		t.Errorf("error %v, expected one that says how many profiles there are", err)
	}
}

func TestAFaultIsFoundByItsType(t *testing.T) {
	var fault *cluster.Fault
	if err := question(strings.Replace(sound, "globalBatch: 8", "globalBatch: 0", 1)); !errors.As(err, &fault) ||
		fault.Field != "globalBatch" || fault.Line != 15 {
		t.Errorf("%+v, expected the field globalBatch at line 15", fault)
	}
}

func FuzzAFileIsRefusedOrAsksAValidQuestion(f *testing.F) {
	f.Add(sound)
	for _, fault := range faults {
		f.Add(strings.Replace(sound, fault.old, fault.new, 1))
	}
	f.Fuzz(func(t *testing.T, text string) {
		var file file
		d, err := cluster.Decode("cluster.yaml", []byte(text), &file.File)
		if err != nil {
			return
		}
		if q, err := file.question(d, []byte(text)); err == nil && q.Request.Validate() != nil {
			t.Errorf("accepted, but %v", q.Request.Validate())
		}
	})
}

func TestAQuestionMayComeFromStandardInput(t *testing.T) {
	file, err := os.Open(example("failure"))
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stdin
	os.Stdin = file
	defer func() { os.Stdin = before }()
	piped, err := load("-")
	if err != nil {
		t.Fatal(err)
	}
	if read, err := load(example("failure")); err != nil || !reflect.DeepEqual(piped, read) {
		t.Errorf("%v; read it is\n%+v, and from standard input\n%+v", err, read, piped)
	}
}
