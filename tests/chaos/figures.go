package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
)

// row is a figure in the form that all benchmarks share. An absent value is null.
type row struct {
	Figure       string   `json:"figure"`
	Unit         string   `json:"unit"`
	Ours         *float64 `json:"ours"`
	Baseline     *float64 `json:"baseline"`
	BaselineName *string  `json:"baselineName"`
	Ratio        *float64 `json:"ratio"`
	Target       *float64 `json:"target"`
	Holds        bool     `json:"holds"`
}

func (r row) String() string {
	show := func(value *float64) string {
		if value == nil {
			return "-"
		}
		return fmt.Sprintf("%.4g", *value)
	}
	return fmt.Sprintf("%-64s %8s %-10s target %8s holds %v", r.Figure, show(r.Ours), r.Unit, show(r.Target), r.Holds)
}

// figures sums the outcomes up. Stalls are told and not judged here: in a burst one change waits for another.
func figures(outcomes []outcome, seeds int) []row {
	good, violations := 0, 0
	for _, outcome := range outcomes {
		violations += outcome.violations
		if len(outcome.faults) == 0 {
			good++
		}
	}
	rows := []row{
		exactly("seeds that end with equal digests, all healed", "seeds", good, seeds),
		exactly("violations of the invariants in the logs", "violations", violations, 0),
	}
	rows = append(rows, coverage(outcomes)...)
	for _, figure := range []struct {
		name, kind, unit string
		value            func(change) float64
	}{
		{"kill -9 of a trainer to the next completed step, median", "failure", "s",
			func(c change) float64 { return c.NextStepSeconds }},
		{"stall of a kill -9 of a trainer, median", "failure", "s", func(c change) float64 { return c.StallSeconds }},
		{"stall of a join, median", "join", "steps", func(c change) float64 { return c.StallSteps }},
		{"stall of a leave, median", "leave", "steps", func(c change) float64 { return c.StallSteps }},
		{"stall of a connected link, median", "connect-link", "steps", func(c change) float64 { return c.StallSteps }},
		{"stall of a disconnected link, median", "disconnect-link", "steps", func(c change) float64 { return c.StallSteps }},
	} {
		rows = append(rows, row{Figure: figure.name, Unit: figure.unit, Ours: median(outcomes, figure.kind, figure.value),
			Holds: true})
	}
	return rows
}

// coverage counts what was done while what was under way: a row for each two kinds of change that met.
func coverage(outcomes []outcome) []row {
	met := map[string]float64{}
	for _, outcome := range outcomes {
		for _, change := range outcome.report.Changes {
			slices.Sort(change.UnderWay)
			for _, kind := range slices.Compact(change.UnderWay) {
				met[fmt.Sprintf("%s while a %s was under way", change.Kind, kind)]++
			}
		}
	}
	var rows []row
	for _, figure := range slices.Sorted(maps.Keys(met)) {
		count := met[figure]
		rows = append(rows, row{Figure: figure, Unit: "changes", Ours: &count, Holds: true})
	}
	return rows
}

func exactly(figure, unit string, ours, target int) row {
	is, should := float64(ours), float64(target)
	return row{Figure: figure, Unit: unit, Ours: &is, Target: &should, Holds: ours == target}
}

// median of a value over all healed changes of a kind; nil where there was none.
func median(outcomes []outcome, kind string, value func(change) float64) *float64 {
	var values []float64
	for _, outcome := range outcomes {
		for _, change := range outcome.report.Changes {
			if change.Kind == kind && change.Healed {
				values = append(values, value(change))
			}
		}
	}
	if len(values) == 0 {
		return nil
	}
	slices.Sort(values)
	middle := (values[(len(values)-1)/2] + values[len(values)/2]) / 2
	return &middle
}

func writeRows(file string, rows []row) error {
	data, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
