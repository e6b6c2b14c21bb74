package figures

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAFigureHoldsWhereItReachesItsTargetAndItsBaseline(t *testing.T) {
	for _, c := range []struct {
		row   Row
		holds bool
	}{
		{Row{Ours: 1, Target: 1}, true},
		{Row{Ours: 1.1, Target: 1}, false},
		{Row{Ours: 1, Baseline: 99, LeastRatio: 100}, false},
		{Row{Ours: 1, Baseline: 100, LeastRatio: 100, Target: 2}, true},
		{Row{Skipped: "no rival here"}, false},
	} {
		var r Report
		if r.Add(c.row); r.Rows[0].Holds != c.holds {
			t.Errorf("%+v: want %v", r.Rows[0], c.holds)
		}
	}
}

func TestAMissedTargetIsAnErrorAndASkippedRowIsNot(t *testing.T) {
	var r Report
	r.Add(Row{Figure: "skipped", Skipped: "no rival here"})
	r.Add(Row{Figure: "met", Ours: 1, Target: 2})
	file := filepath.Join(t.TempDir(), "rows.json")
	if err := r.Finish(file); err != nil {
		t.Fatal(err)
	}
	var rows []Row
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &rows)
	}
	if err != nil || len(rows) != 2 || rows[0].Skipped == "" || !rows[1].Holds {
		t.Fatalf("wrote %+v, %v", rows, err)
	}
	if strings.Count(string(text), `"holds"`) != 1 {
		t.Errorf("expected no verdict on the row that was skipped: %s", text)
	}
	r.Add(Row{Figure: "missed", Ours: 3, Target: 2})
	if err := r.Finish(""); err == nil {
		t.Fatal("a missed target was not reported")
	}
}
