package events

import (
	"bytes"
	"cmp"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// What a payload of some bytes may have reserved when it is refused or accepted. The smallest element of a list is written
// with three bytes, and the largest struct that is read from it has less than 200; a list that grows is copied.
const (
	reservedPerByte = 512
	reservedAnyway  = 1 << 20
)

// targetOf is the name of the fuzz target of a kind.
func targetOf(kind Kind) string {
	name := "Fuzz"
	for word := range strings.FieldsFuncSeq(string(kind), func(r rune) bool { return !unicode.IsLetter(r) }) {
		name += strings.ToUpper(word[:1]) + word[1:]
	}
	return name
}

func TestEachRowOfTheCatalogueHasAFuzzTarget(t *testing.T) {
	targets := map[string]string{} // what each hands to fuzzEvent
	files, err := filepath.Glob("*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, declared := range file.Decls {
			if function, ok := declared.(*ast.FuncDecl); ok && strings.HasPrefix(function.Name.Name, "Fuzz") {
				targets[function.Name.Name] = kindIn(function)
			}
		}
	}
	for _, row := range Catalogue {
		if got := targets[targetOf(row.Kind)]; got != string(row.Kind) {
			t.Errorf("%s: expected func %s(f *testing.F) { fuzzEvent(f, %q) } in targets_test.go, got a target of %q",
				row.Kind, targetOf(row.Kind), row.Kind, cmp.Or(got, "nothing"))
		}
	}
}

// kindIn is the kind that a fuzz target hands to fuzzEvent.
func kindIn(target *ast.FuncDecl) (kind string) {
	ast.Inspect(target, func(node ast.Node) bool {
		call, isCall := node.(*ast.CallExpr)
		if !isCall || len(call.Args) != 2 {
			return true
		}
		if called, ok := call.Fun.(*ast.Ident); ok && called.Name == "fuzzEvent" {
			kind = strings.Trim(call.Args[1].(*ast.BasicLit).Value, `"`)
		}
		return true
	})
	return kind
}

// fuzzEvent fuzzes the payload of a kind, beginning with its examples.
func fuzzEvent(f *testing.F, kind Kind) {
	row, known := kind.Row()
	if !known {
		f.Fatalf("%s is not in the catalogue", kind)
	}
	for _, text := range examplesOf(f, string(kind)+".v1*.json") {
		var event struct{ Data json.RawMessage }
		if err := json.Unmarshal(text, &event); err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(event.Data))
	}
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, data []byte) {
		payload, err := row.New(), error(nil)
		reserves(t, len(data), func() { err = Decode(data, payload) })
		if err != nil {
			mustName(t, reflect.TypeOf(payload).Elem(), err)
			return
		}
		back := row.New()
		mustComeBack(t, payload, back, func(text []byte) error { return Decode(text, back) })
		reserves(t, len(data), func() { bear(payload) })
	})
}

// fuzzMessage fuzzes what travels beside the events, as who hears it reads it.
func fuzzMessage[T any](f *testing.F, name string) {
	for _, text := range examplesOf(f, name+"*.json") {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		message, err := new(T), error(nil)
		reserves(t, len(data), func() { err = json.Unmarshal(data, message) })
		if err != nil {
			return
		}
		if payload, checked := any(message).(Payload); checked {
			if err := payload.Validate(); err != nil {
				mustName(t, reflect.TypeFor[T](), err)
				return
			}
		}
		back := new(T)
		mustComeBack(t, message, back, func(text []byte) error { return json.Unmarshal(text, back) })
	})
}

func examplesOf(f *testing.F, pattern string) (texts [][]byte) {
	files, err := filepath.Glob(filepath.Join("examples", pattern))
	if err != nil || len(files) == 0 {
		f.Fatalf("examples/%s: expected one at least, got %v", pattern, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, text); err != nil {
			f.Fatal(err)
		}
		texts = append(texts, compact.Bytes())
	}
	return texts
}

// reserves fails where do takes more memory than an input of so many bytes is worth.
func reserves(t *testing.T, input int, do func()) {
	t.Helper()
	before := allocated()
	do()
	if taken, most := allocated()-before, uint64(reservedAnyway+reservedPerByte*input); taken > most {
		t.Errorf("%d bytes had %d reserved, expected at most %d", input, taken, most)
	}
}

func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// mustName fails where an error does not begin with a field of the payload, or "data" for all of it. What is no JSON at
// all has no fields.
func mustName(t *testing.T, of reflect.Type, err error) {
	t.Helper()
	if _, isSyntax := err.(*json.SyntaxError); isSyntax { //nolint:errorlint // it would be that of a payload as it is
		return
	}
	text := err.Error()
	if quoted, found := strings.CutPrefix(text, `field "`); found {
		text = quoted
	}
	end := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsLetter(r) })
	if end < 0 {
		t.Fatalf("%q names no field", err)
	}
	isIt := func(f field) bool { return f.name == text[:end] }
	if text[:end] != "data" && !slices.ContainsFunc(fieldsOf(of), isIt) {
		t.Errorf("%q names no field of %v", err, of)
	}
}

// mustComeBack fails where what was accepted is not read from what it is written as.
func mustComeBack(t *testing.T, accepted, back any, read func(text []byte) error) {
	t.Helper()
	text, err := json.Marshal(accepted)
	if err != nil {
		t.Fatal(err)
	}
	if err := read(text); err != nil {
		t.Fatalf("%.500s was accepted, and is not when it comes back: %v", text, err)
	}
	again, err := json.Marshal(back)
	if err != nil || !bytes.Equal(text, again) {
		t.Errorf("%.500s came back as %.500s, %v", text, again, err)
	}
}

// bear asks what was accepted all that a machine asks it.
func bear(payload Payload) {
	switch said := payload.(type) {
	case *Join:
		bearJob(&said.Job)
	case *PlanRequest:
		bearJob(&said.Job)
		if said.Current != nil {
			bearPlan(said.Current)
		}
		for _, link := range said.Links {
			if said.Usual != nil {
				said.Usual.StandsFor(link.Measurement, nil)
			}
		}
	case *Plan:
		bearPlan(said)
	case *Proposal:
		bearPlan(&said.Plan)
	case *Restoration:
		bearPlan(&said.Plan)
	case *PreCopyStart:
		bearPlan(&said.Plan)
	case *Measurement:
		said.Rounded()
	}
}

func bearJob(job *Job) {
	job.Units()
	job.UnitBytes()
	job.GradientBytes()
	job.LeastNodes()
	job.BatchOf(3)
	job.MicroBatchSeconds(Range{End: len(job.Layers)})
}

func bearPlan(plan *Plan) {
	plan.UnitCount()
	plan.SamplesAt(plan.ResumeStep + 3)
	plan.ScaleAt(plan.ResumeStep + 3)
	for i, pipeline := range plan.Pipelines {
		for s, stage := range pipeline.Stages {
			plan.UnitsAt(Place{Pipeline: i, Stage: s})
			plan.UnitsOf(stage.Node)
			plan.Holds(stage.Node)
			plan.Member(stage.Node)
			plan.SamplesOf(stage.Node)
			plan.WeightOf(stage.Node)
			if i*s > 16 {
				return // each costs as much as the plan is long
			}
		}
	}
}
