package plan

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner"
	"github.com/reknit/reknit/services/reknit/tell"
)

var update = flag.Bool("update", false, "write the expected outputs anew; look at what changed before you commit it")

// examples are the files of testdata; what they print stands beside them.
var examples = []string{"opticks", "failure", "uneven", "partitioned", "replicas"}

func example(name string) string { return filepath.Join("testdata", name+".yaml") }

// run runs the command.
func run(w io.Writer, arguments ...string) error {
	command := Command()
	command.SetArgs(append([]string{}, arguments...)) // none is none, rather than the process's
	command.SetOut(w)
	return command.Execute()
}

// printed runs the command and expects it to find a plan.
func printed(t *testing.T, arguments ...string) string {
	t.Helper()
	var output bytes.Buffer
	if err := run(&output, arguments...); err != nil {
		t.Fatal(err)
	}
	return output.String()
}

// solved is an example as it is planned now.
func solved(t *testing.T, name string) (Question, events.Restoration) {
	t.Helper()
	q, _, err := options{file: example(name)}.question(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	answer, err := q.answer()
	if err != nil {
		t.Fatal(err)
	}
	return q, answer
}

// The answers are kept, so that a better planner does not make this test fail; it fails where they are told otherwise.
func TestTheAnswerToEachExampleIsToldAsItsOutputShows(t *testing.T) {
	for _, name := range examples {
		q, answer := solved(t, name)
		answered, shown := filepath.Join("testdata", name+".json"), filepath.Join("testdata", name+".txt")
		if *update {
			save(t, answered, indented(t, answer))
			save(t, shown, told(t, q, answer))
		}
		var kept events.Restoration
		if err := events.Decode([]byte(text(t, answered)), &kept); err != nil {
			t.Fatal(err)
		}
		if got, want := told(t, q, kept), text(t, shown); got != want {
			t.Errorf("%s is told as\n%s\nexpected (go test ./plan -update writes it anew)\n%s", name, got, want)
		}
	}
}

func TestEachExampleIsPlannedForAllItsNodesAndNoBetterThanItsBound(t *testing.T) {
	for _, name := range examples {
		q, answer := solved(t, name)
		output, predicted := printed(t, "--file", example(name), "--why"), answer.Plan.Predicted
		if output != told(t, q, answer) {
			t.Errorf("%s: the command prints\n%s\nexpected\n%s", name, output, told(t, q, answer))
		}
		if predicted.StepSeconds <= 0 || predicted.StepSeconds < predicted.StepSecondsLowerBound*(1-1e-9) {
			t.Errorf("%s: a step of %v s, expected no less than %v s", name, predicted.StepSeconds,
				predicted.StepSecondsLowerBound)
		}
		for _, device := range q.Request.Nodes {
			if predicted.PeakBytes[device.Node] > device.MemoryBytes ||
				!strings.Contains(output, "\n"+device.Node+" ") {
				t.Errorf("%s: %s is not in the table of nodes, or beyond its limit:\n%s", name, device.Node, output)
			}
		}
		if rows := strings.Count(output, "(taken)"); rows != 1 || len(answer.Plan.Considered) == 0 {
			t.Errorf("%s: %d candidates taken, expected 1:\n%s", name, rows, output)
		}
	}
}

func told(t *testing.T, q Question, answer events.Restoration) string {
	t.Helper()
	var output bytes.Buffer
	if err := report(&output, q, answer, true); err != nil {
		t.Fatal(err)
	}
	return output.String()
}

func indented(t *testing.T, document any) string {
	t.Helper()
	data, err := json.MarshalIndent(document, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data) + "\n"
}

func TestNoLineIsWiderThanAHundredColumns(t *testing.T) {
	for _, name := range examples {
		for _, line := range strings.Split(printed(t, "--file", example(name), "--why"), "\n") {
			if len(line) > columns {
				t.Errorf("%s: %d columns: %s", name, len(line), line)
			}
		}
	}
}

func TestTheDocumentIsTheValidPlanThatThePictureShows(t *testing.T) {
	for _, name := range examples {
		var plan events.Plan
		if err := events.Decode([]byte(printed(t, "--file", example(name), "--json")), &plan); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, answer := solved(t, name)
		want, _ := json.Marshal(answer.Plan)
		got, _ := json.Marshal(plan)
		if string(got) != string(want) {
			t.Errorf("%s: the document is\n%s\nexpected\n%s", name, got, want)
		}
	}
}

func TestAFileWithoutACurrentPlanIsFirstPlannedBeforeItsChanges(t *testing.T) {
	failing := strings.Replace(text(t, example("opticks")), "# failed: [n2]", "failed: [n2]", 1)
	output := printed(t, "--file", saved(t, failing))
	for _, says := range []string{"generation 2", "failure of n2", "planned too, for the file gives none"} {
		if !strings.Contains(output, says) {
			t.Errorf("expected %q in\n%s", says, output)
		}
	}
}

// Of one pipeline layers have too few holders: it is no plan to take, and nothing that others are measured by.
func TestAPlanWithTooFewHoldersMakesNoOtherOneSlower(t *testing.T) {
	step := func(pipelines string) string {
		asked := strings.Replace(text(t, example("opticks")), "# minReplicas: 2", "minReplicas: 3", 1)
		_, after, _ := strings.Cut(printed(t, "--file", saved(t, asked+"\npipelines: "+pipelines+"\n")), "\nstep")
		line, _, _ := strings.Cut(after, "\n")
		return line
	}
	if wide, narrow := step("{max: 2}"), step("{min: 2, max: 2}"); wide != narrow || wide == "" {
		t.Errorf("of one or two pipelines a step takes%s\nof two%s", wide, narrow)
	}
}

func TestWhoFailsGivesNothingAndWhoLeavesGivesWhatItHas(t *testing.T) {
	base := text(t, example("failure"))
	for _, test := range []struct {
		change string
		gives  bool
	}{{"failed", false}, {"leaving", true}} {
		q, err := load(saved(t, strings.Replace(base, "failed: [n5]", test.change+": [n5]", 1)))
		if err != nil {
			t.Fatal(err)
		}
		gives := false
		for _, holder := range q.holders() {
			gives = gives || holder.Node == "n5"
		}
		if gives != test.gives {
			t.Errorf("%s: n5 gives its layers: %v, expected %v", test.change, gives, test.gives)
		}
		for _, device := range q.Request.Nodes {
			if device.Node == "n5" {
				t.Errorf("%s: n5 is to have a place", test.change)
			}
		}
	}
}

func TestWhereNoPlanExistsTheReasonIsTold(t *testing.T) {
	for _, test := range []struct{ name, old, new, says string }{
		{"too little memory", "memory: 16GiB", "memory: 1GiB", "too little"},
		{"nobody left", "failed: [n5]", "failed: [n1, n2, n3, n4, n5, n6]", "there is no node"},
		{"a layer lost", "failed: [n5]", "failed: [n2, n5]", "no node holds it"},
	} {
		err := run(io.Discard, "--file", saved(t, strings.ReplaceAll(text(t, example("failure")), test.old, test.new)))
		if err == nil || errors.As(err, &tell.UsageError{}) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: error %v, expected one that says %q and is not the file's fault", test.name, err, test.says)
		}
	}
}

// n1's layers are light; to do without it a heavy one would have to move over a slow link.
const returning = `
cluster: opticks
nodes: [{node: n1, memory: 200GB}, {node: n2, memory: 250GB}, {node: n3, memory: 250GB}, {node: n4, memory: 2GB}, {node: n5, memory: 250GB}, {node: n6, memory: 250GB}]
model:
  profiles:
    - &light {parameters: 40kB, optimizer: 80kB, gradients: 40kB, activations: 300MB, output: 1kB, forward: 10ms, backward: 20ms}
    - *light
    - &heavy {parameters: 40kB, optimizer: 80GB, gradients: 40kB, activations: 300MB, output: 1kB, forward: 10ms, backward: 20ms}
    - *heavy
    - *heavy
    - *heavy
globalBatch: 12
microBatch: 1
pipelines: {min: 2}
timeBetweenFailures: 1h
timeUntilReturn: 20s
minReplicas: 1
current:
  - {microBatches: 6, stages: [{node: n1, layers: {first: 0, end: 2}}, {node: n2, layers: {first: 2, end: 4}}, {node: n3, layers: {first: 4, end: 6}}]}
  - {microBatches: 6, stages: [{node: n4, layers: {first: 0, end: 2}}, {node: n5, layers: {first: 2, end: 4}}, {node: n6, layers: {first: 4, end: 6}}]}
failed: [n1]
`

func TestWaitingIsToldWithWhatElseWasWeighed(t *testing.T) {
	file := saved(t, returning)
	told := printed(t, "--file", file, "--why")
	for _, says := range []string{"what if: failure of n1", "it would wait: waiting for n1, expected back in 20 s",
		"would be planned without", "\nwait ", "\nrepipeline ",
		"expected back in 20 s, and from then on the plan before counts"} {
		if !strings.Contains(told, says) {
			t.Errorf("expected %q in\n%s", says, told)
		}
	}
	var deferral events.Deferral
	if err := json.Unmarshal([]byte(printed(t, "--file", file, "--json")), &deferral); err != nil ||
		deferral.Validate() != nil || deferral.Seconds != 40 {
		t.Errorf("%+v, %v", deferral, err)
	}
}

func TestWrongFlagsAreUsageErrors(t *testing.T) {
	for _, test := range []struct{ says, arguments string }{
		{"flags only", "--file x.yaml y"},
		{"nosuch", "--nosuch"},
		{"--why", "--file x.yaml --why --json"},
		{"x.yaml", "--file x.yaml"},
		{"--file", "--file x.yaml --cluster c"},
		{"--file", "--file x.yaml --nats nats://h"},
		{"--failed", "--file x.yaml --failed n1"},
	} {
		err := run(io.Discard, strings.Fields(test.arguments)...)
		if !errors.As(err, &tell.UsageError{}) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: error %v, expected a usage error that says %q", test.arguments, err, test.says)
		}
	}
}

func TestHelpTellsEachFlagAndTheExitStatus(t *testing.T) {
	var output bytes.Buffer
	if err := run(&output, "--help"); err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{"-file", "-cluster", "-nats", "-failed", "-leaving", "-why", "-json", "Exit status"} {
		if !strings.Contains(output.String(), says) {
			t.Errorf("expected %q in\n%s", says, &output)
		}
	}
}

func TestWhatTheFileLeavesOutIsWhatThePlannerAssumes(t *testing.T) {
	config := reflect.TypeFor[planner.Config]()
	for field, want := range map[string]string{"MinReplicas": strconv.Itoa(usualMinReplicas),
		"SwitchTime": usualSwitchTime.String(), "RestartTime": usualRestartTime.String()} {
		if f, ok := config.FieldByName(field); !ok || f.Tag.Get("envDefault") != want {
			t.Errorf("%s: the planner's default is %q, expected %q", field, f.Tag.Get("envDefault"), want)
		}
	}
}

func text(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func save(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// saved returns the path of a file with a text.
func saved(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cluster.yaml")
	save(t, path, text)
	return path
}

func TestAnInterruptEndsASearchThatGoesOn(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	goesOn := make(chan struct{})
	defer close(goesOn)
	search := func() (int, error) {
		interrupt()
		<-goesOn
		return 1, nil
	}
	if found, err := heeding(ctx, search); found != 0 || err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("found %d, error %v; expected that it was interrupted", found, err)
	}
}
