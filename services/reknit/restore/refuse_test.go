package restore

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/reknit/tell"
)

func TestWrongFlagsAreUsageErrors(t *testing.T) {
	for _, test := range []struct{ says, arguments string }{
		{"--from: expected the file of the plan in force", ""},
		{"--to: expected the file of the plan wanted", "--from x.json"},
		{"flags only", "--from x.json --to y.json z.json"},
		{"nosuch", "--nosuch"},
		{"open x.json", "--from x.json --to y.json"},
		{"open y.json", "--from " + before + " --to y.json"},
		{"open z.yaml", "--from " + before + " --to " + after + " --links z.yaml"},
	} {
		err := Run(strings.Fields(test.arguments), &bytes.Buffer{})
		if !errors.As(err, &tell.UsageError{}) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: error %v, expected a usage error that says %q", test.arguments, err, test.says)
		}
	}
}

// planFaults is what may be wrong with the plan wanted: a part of it, what stands there instead, and what the error
// says after the file's name.
var planFaults = []struct{ old, new, says string }{
	{`"cluster"`, `cluster`, `: expected a plan document: invalid character`},
	{`"policy": "repipeline",`, ``, `: expected a plan document: field "policy": expected a value, got none`},
	{`"cluster": "figure3"`, `"cluster": "other"`, `: cluster: expected figure3, as in `},
	{`"cluster": "figure3"`, `"cluster": 3`,
		`: expected a plan document: field "cluster": expected a text, got a JSON number`},
	{`"generation": 2`, `"generation": "two"`,
		`: expected a plan document: field "generation": expected a whole number, got a JSON string`},
	{`"resumeStep": 0`, `"resumeStep": 0.5`,
		`: expected a plan document: field "resumeStep": expected a whole number, got a JSON number 0.5`},
	{`"stepSeconds": 0`, `"stepSeconds": "soon"`,
		`: expected a plan document: field "predicted.stepSeconds": expected a number, got a JSON string`},
	{`"generation": 2`, `"generation": 0`,
		`: expected a plan document: field "generation": expected at least 1, got 0`},
	{`{"node": "n9", "layers"`, `{"node": "n5", "layers"`,
		`: expected a plan document: pipelines: [1].stages[3]: expected an active node with one place, got "n5"`},
}

func TestEachFaultOfAPlanIsToldWithItsFileAndField(t *testing.T) {
	sound := text(t, after)
	for _, fault := range planFaults {
		if strings.Count(sound, fault.old) != 1 {
			t.Fatalf("%q: expected it once in the sound plan", fault.old)
		}
		path := saved(t, strings.Replace(sound, fault.old, fault.new, 1))
		expectRefusal(t, fault.new, path+fault.says, "--from", before, "--to", path)
	}
}

func TestAPlanOfOtherOrTooManyLayersIsRefused(t *testing.T) {
	path := saved(t, strings.ReplaceAll(text(t, after), `"end": 9`, `"end": 10`))
	expectRefusal(t, "ten layers", path+": pipelines: expected the 9 layers of "+before+", got 10", "--from", before,
		"--to", path)
	path = saved(t, strings.ReplaceAll(text(t, after), `"end": 9`, `"end": 1000000000`))
	expectRefusal(t, "a billion layers",
		path+": expected a plan document: pipelines: [0].stages: expected at most 4096 layers, got 1000000000",
		"--from", path, "--to", path)
}

// linkFaults are likewise of the file of links, with the line.
var linkFaults = []struct{ old, new, says string }{
	{`"links": {`, `"lnks": {`, `:2: lnks: expected one of the keys cluster, nodes, links,`},
	{`"10Gbit/s"`, `"10"`, `:3: links.default.bandwidth: expected a rate above 0 with its unit`},
	{`["n1", "n2"]`, `["n1", "n10"]`, `:5: links.measured[0]: expected one of the cluster's nodes, got "n10"`},
	{`"layers": 9`, `"layers": 12`, `:9: model: expected the 9 layers of the plans, got 12`},
	{`"400MiB", "optimizer": "1600MiB"`, `"0B", "optimizer": "0B"`,
		`:9: model: expected parameters or an optimizer of every layer, got none of layer 0`},
	{`"1600MiB"`, `"4000000TiB"`, `:9: model: expected less than 2^60 bytes on all nodes`},
	{`"model": {`, `"nodes": [{"node": "n1", "memory": "0B"}], "model": {`,
		`:9: nodes[0].memory: expected more than 0, got 0 B`},
}

func TestEachFaultOfTheLinksIsToldWithItsFileAndField(t *testing.T) {
	sound := text(t, links)
	for _, fault := range linkFaults {
		if strings.Count(sound, fault.old) != 1 {
			t.Fatalf("%q: expected it once in the sound file", fault.old)
		}
		path := saved(t, strings.Replace(sound, fault.old, fault.new, 1))
		expectRefusal(t, fault.new, path+fault.says, "--from", before, "--to", after, "--links", path)
	}
}

func expectRefusal(t *testing.T, of, says string, arguments ...string) {
	t.Helper()
	err := Run(arguments, &bytes.Buffer{})
	if !errors.As(err, &tell.UsageError{}) || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: error %v\nexpected a usage error that says %s", of, err, says)
	}
}
