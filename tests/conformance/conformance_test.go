package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// conform runs the command on a folder with the given files.
func conform(t *testing.T, files map[string]string, arguments ...string) (status int, out, complaints string) {
	t.Helper()
	folder := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var printed, complained bytes.Buffer
	status = run(append([]string{"-cases", folder}, arguments...), &printed, &complained)
	return status, printed.String(), complained.String()
}

func caseOfKind(kind, input, expected string) map[string]string {
	return map[string]string{
		kind + ".json": fmt.Sprintf(`{"kind": %q, "about": "tiny", "cases": [{"id": "%s-000", "input": %s, "expected": %s}]}`, kind, kind, input, expected),
	}
}

func TestEveryKindIsSolvedAndAnsweredInOneLine(t *testing.T) {
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		status, out, complaints := conform(t, caseOfKind(kind, tiny[kind][0], tiny[kind][1]))
		var line struct {
			Kind, ID string
			Answer   map[string]any
		}
		if err := json.Unmarshal([]byte(out), &line); err != nil || strings.Count(out, "\n") != 1 {
			t.Errorf("%s: expected one line of JSON, got %q", kind, out)
		}
		if status != 0 || line.Kind != kind || line.ID != kind+"-000" || len(line.Answer) == 0 {
			t.Errorf("%s: status %d, line %+v\n%s", kind, status, line, complaints)
		}
		if !strings.HasPrefix(complaints, kind+" 1/1 ") || !strings.Contains(complaints, ", all 1/1 ") {
			t.Errorf("%s: the last line is %q", kind, complaints)
		}
	}
}

func TestAWrongValueOfAnyKeyIsNoticed(t *testing.T) {
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		var expected map[string]any
		if err := json.Unmarshal([]byte(tiny[kind][1]), &expected); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		for _, key := range slices.Sorted(maps.Keys(expected)) {
			changed := maps.Clone(expected)
			changed[key] = wrong(expected[key])
			data, err := json.Marshal(changed)
			if err != nil {
				t.Fatal(err)
			}
			status, _, complaints := conform(t, caseOfKind(kind, tiny[kind][0], string(data)))
			noticed := status == 1 && strings.Contains(complaints, kind+"-000: "+key+": expected")
			if noticed == slices.Contains(kinds[kind].notJudged, key) {
				t.Errorf("%s: %s = %v: status %d\n%s", kind, key, changed[key], status, complaints)
			}
		}
	}
}

// wrong changes a value a little.
func wrong(value any) any {
	switch value := value.(type) {
	case float64:
		return value*(1+1e-5) + 0.25
	case bool:
		return !value
	case string:
		return value + "s"
	case []any:
		return append(slices.Clone(value), 1)
	}
	return 1
}

func TestAKeyWithoutAnAnswerIsAFault(t *testing.T) {
	for expected, want := range map[string]string{
		`{"lr_new": 0.15, "colour": "red"}`: "elastic_lr-000: colour: expected red, got no answer",
		`{}`:                                "elastic_lr-000: expected: nothing to compare with",
		`{"tolerance_relative": 1}`:         "elastic_lr-000: expected: nothing to compare with",
	} {
		status, _, complaints := conform(t, caseOfKind("elastic_lr", tiny["elastic_lr"][0], expected))
		if status != 1 || !strings.Contains(complaints, want) {
			t.Errorf("%s: status %d, %q", expected, status, complaints)
		}
	}
}

func TestACaseMayCarryItsOwnTolerance(t *testing.T) {
	for tolerance, want := range map[string]int{"0.1": 0, "0.01": 1} {
		expected := `{"lr_new": 0.16, "tolerance_relative": ` + tolerance + `}`
		if status, _, complaints := conform(t,
			caseOfKind("elastic_lr", tiny["elastic_lr"][0], expected)); status != want {
			t.Errorf("tolerance %s: status %d\n%s", tolerance, status, complaints)
		}
	}
}

func TestAnInputThatCannotBeSolvedIsAFaultOfThatCaseOnly(t *testing.T) {
	files := caseOfKind("assignment", `{"cost": [[1, 2]]}`, tiny["assignment"][1])
	maps.Copy(files, caseOfKind("elastic_lr", tiny["elastic_lr"][0], tiny["elastic_lr"][1]))
	status, out, complaints := conform(t, files)
	if status != 1 || strings.Count(out, "\n") != 2 || !strings.Contains(out, `"id":"assignment-000","answer":null`) {
		t.Fatalf("status %d\n%s%s", status, out, complaints)
	}
	if !strings.Contains(complaints, "assignment 0/1") || !strings.Contains(complaints, "elastic_lr 1/1") {
		t.Fatal(complaints)
	}
}

func TestAKindNobodySolvesFailsOnlyWhereAllAreRequired(t *testing.T) {
	files := caseOfKind("tea_leaves", `{}`, `{"fortune": 1}`)
	status, out, complaints := conform(t, files)
	if status != 0 || out != "" || !strings.Contains(complaints, "tea_leaves: not solved yet (1 cases)") {
		t.Errorf("status %d, %q, %q", status, out, complaints)
	}
	if status, _, _ := conform(t, files, "-require-all"); status != 1 {
		t.Errorf("all required: status %d", status)
	}
}

func TestFilesThatAreNoCasesAreNamed(t *testing.T) {
	for content, want := range map[string]string{
		`{"kind": `:                      "unexpected end of JSON input",
		`{"kind": "memory"}`:             "cases: unexpected end of JSON input",
		`{"kind": "memory", "cases": 3}`: "cases: json: cannot unmarshal",
		`{"kind": "memory", "cases": [{"id": "x", "input": {"layers_per_stage": [1]}, "expected": 3}]}`: "x: expected: json: cannot unmarshal",
		`{"about": "networks that cases refer to", "cases": {}}`:                                        "expected a *.json file with cases",
	} {
		status, _, complaints := conform(t, map[string]string{"odd.json": content})
		if status != 1 || !strings.Contains(complaints, want) {
			t.Errorf("%s: status %d, %q", content, status, complaints)
		}
	}
}

func TestTheFolderMustBeNamed(t *testing.T) {
	for _, arguments := range [][]string{nil, {"-cases", "a", "b"}, {"-case", "a"}} {
		var out, complaints bytes.Buffer
		if status := run(arguments, &out, &complaints); status != 2 || complaints.Len() == 0 {
			t.Errorf("%v: status %d, %q", arguments, status, complaints.String())
		}
	}
}
