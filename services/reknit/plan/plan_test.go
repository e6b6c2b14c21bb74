package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner"
)

var update = flag.Bool("update", false, "write the expected outputs anew; look at what changed before you commit it")

// examples are the files of testdata; what they print stands beside them.
var examples = []string{"opticks", "failure", "uneven"}

func example(name string) string { return filepath.Join("testdata", name+".yaml") }

// printed runs the command and expects it to find a plan.
func printed(t *testing.T, arguments ...string) string {
	t.Helper()
	var output bytes.Buffer
	if err := Run(arguments, &output); err != nil {
		t.Fatal(err)
	}
	return output.String()
}

func TestEachExampleIsPlannedAsItsOutputShows(t *testing.T) {
	for _, name := range examples {
		got, golden := printed(t, "--file", example(name), "--why"), filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s: where the planner changed on purpose, go test -update writes this anew:\n%s\nexpected:\n%s", name, got, want)
		}
	}
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
		q, err := load(example(name))
		if err == nil {
			err = q.planBefore()
		}
		if err != nil {
			t.Fatal(err)
		}
		answer, err := q.answer()
		if err != nil {
			t.Fatal(err)
		}
		want, _ := json.Marshal(answer.Plan)
		got, _ := json.Marshal(plan)
		if string(got) != string(want) {
			t.Errorf("%s: the document is\n%s\nexpected\n%s", name, got, want)
		}
	}
}

func TestAFileWithoutACurrentPlanIsFirstPlannedBeforeItsChanges(t *testing.T) {
	failing := strings.Replace(text(t, "opticks"), "# failed: [n2]", "failed: [n2]", 1)
	output := printed(t, "--file", saved(t, failing))
	for _, says := range []string{"generation 2", "failure of n2", "planned too, for the file gives none"} {
		if !strings.Contains(output, says) {
			t.Errorf("expected %q in\n%s", says, output)
		}
	}
}

func TestWhoFailsGivesNothingAndWhoLeavesGivesWhatItHas(t *testing.T) {
	base := text(t, "failure")
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
		err := Run([]string{"--file", saved(t, strings.ReplaceAll(text(t, "failure"), test.old, test.new))}, &bytes.Buffer{})
		if err == nil || errors.As(err, &UsageError{}) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: error %v, expected one that says %q and is not the file's fault", test.name, err, test.says)
		}
	}
}

func TestWrongFlagsAreUsageErrors(t *testing.T) {
	for _, test := range []struct{ says, arguments string }{
		{"--file", ""},
		{"flags only", "--file x.yaml y"},
		{"nosuch", "--nosuch"},
		{"--why", "--file x.yaml --why --json"},
		{"x.yaml", "--file x.yaml"},
	} {
		err := Run(strings.Fields(test.arguments), &bytes.Buffer{})
		if !errors.As(err, &UsageError{}) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: error %v, expected a usage error that says %q", test.arguments, err, test.says)
		}
	}
}

func TestHelpTellsEachFlagAndTheExitStatus(t *testing.T) {
	var output bytes.Buffer
	if err := Run([]string{"--help"}, &output); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	for _, says := range []string{"-file", "-why", "-json", "Exit status"} {
		if !strings.Contains(output.String(), says) {
			t.Errorf("expected %q in\n%s", says, &output)
		}
	}
}

func TestWhatTheFileLeavesOutIsWhatThePlannerAssumes(t *testing.T) {
	config := reflect.TypeFor[planner.Config]()
	for field, want := range map[string]string{"MinReplicas": strconv.Itoa(usualMinReplicas), "SwitchTime": usualSwitchTime.String()} {
		if f, ok := config.FieldByName(field); !ok || f.Tag.Get("envDefault") != want {
			t.Errorf("%s: the planner's default is %q, expected %q", field, f.Tag.Get("envDefault"), want)
		}
	}
}

func text(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(example(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func saved(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
