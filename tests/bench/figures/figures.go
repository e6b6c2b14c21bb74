// Package figures is what the benchmarks share: rows with their targets, and the processor's time.
package figures

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"
)

// Row is one figure, and what it must reach.
type Row struct {
	Figure       string  `json:"figure"`
	Unit         string  `json:"unit"`
	Ours         float64 `json:"ours"`
	Baseline     float64 `json:"baseline"` // measured in the same run; 0 for none
	BaselineName string  `json:"baselineName"`
	Ratio        float64 `json:"ratio"`             // baseline / ours
	LeastRatio   float64 `json:"leastRatio"`        // how many times better than the baseline at least
	Target       float64 `json:"target"`            // ours at most; 0 for none
	Skipped      string  `json:"skipped,omitempty"` // why it was not measured
	Holds        bool    `json:"holds"`
}

// MarshalJSON leaves a row that was skipped without figures and without a verdict: it neither holds nor falls short.
func (row Row) MarshalJSON() ([]byte, error) {
	type measured Row
	if row.Skipped == "" {
		return json.Marshal(measured(row))
	}
	return json.Marshal(struct {
		Figure  string `json:"figure"`
		Skipped string `json:"skipped"`
	}{row.Figure, row.Skipped})
}

// Report gathers the rows of all tables.
type Report struct{ Rows []Row }

// Add completes a row: it holds where ours is at most the target, and at least LeastRatio times better than the
// baseline. A row that was skipped does not hold.
func (r *Report) Add(row Row) {
	if row.Baseline > 0 && row.Ours > 0 {
		row.Ratio = row.Baseline / row.Ours
	}
	const rounding = 1e-9
	row.Holds = row.Skipped == "" && (row.Target == 0 || row.Ours <= row.Target*(1+rounding)) &&
		(row.Baseline == 0 || row.Ratio >= row.LeastRatio*(1-rounding))
	r.Rows = append(r.Rows, row)
}

// Finish writes the rows as JSON to a file, unless its name is empty, prints those that do not hold, and fails where
// there are any. Rows that were skipped count as neither.
func (r *Report) Finish(file string) error {
	if file != "" {
		text, err := json.MarshalIndent(r.Rows, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	failed, skipped := 0, 0
	for _, row := range r.Rows {
		switch {
		case row.Skipped != "":
			skipped++
		case !row.Holds:
			failed++
			fmt.Printf("does not hold: %s: %.6g %s, target %.6g, %s %.6g\n", row.Figure, row.Ours, row.Unit, row.Target,
				row.BaselineName, row.Baseline)
		}
	}
	measured := len(r.Rows) - skipped
	fmt.Printf("%d of %d figures hold, %d skipped\n", measured-failed, measured, skipped)
	if failed > 0 {
		return fmt.Errorf("%d figures do not hold", failed)
	}
	return nil
}

// Seconds is the least CPU time of a few calls: few of a long one, more of a short one.
func Seconds(call func()) float64 {
	const enough = 200 * time.Millisecond
	least := math.Inf(1)
	for before := Spent(); Spent()-before < enough; {
		least = min(least, Once(call))
	}
	return least
}

// Once is the CPU time of one call in seconds, or the mean of several short ones.
func Once(call func()) float64 {
	before, calls := Spent(), 0
	for Spent()-before < time.Millisecond { // finer than the clock of the processor's time
		call()
		calls++
	}
	return (Spent() - before).Seconds() / float64(calls)
}
