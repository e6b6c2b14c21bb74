package ledger

import (
	"cmp"
	"fmt"
	"slices"
)

// Plan is what the ledger knows of a committed plan.
type Plan struct {
	Generation  uint64 `json:"generation"`
	ResumeStep  uint64 `json:"resumeStep"`      // completed steps when it takes over; those after are undone
	Consumed    uint64 `json:"consumedSamples"` // the position that it goes on at
	GlobalBatch uint64 `json:"globalBatch"`     // samples of each step
	Skipped     uint64 `json:"skipped"`         // samples right before that position which were passed over as a user asked
}

// Entry notes that positions were trained in a step under a plan. A step that counts nowhere may be noted as well.
type Entry struct {
	Generation uint64 `json:"generation"`
	Step       uint64 `json:"step"` // completed steps before it
	First      uint64 `json:"first"`
	End        uint64 `json:"end"`
}

// Check returns the first fault in what so many steps trained, under plans in their order: a plan that goes on at
// another position than its step has, and positions that were skipped or taken twice. Work that was undone counts for
// nothing. A step counts as it was noted under the newest plan that goes on from it or from before.
func Check(plans []Plan, entries []Entry, steps uint64) error {
	if len(plans) == 0 && steps > 0 {
		return fmt.Errorf("%d steps without a plan", steps)
	}
	trained := map[[2]uint64][]Entry{}
	for _, entry := range entries {
		at := [2]uint64{entry.Generation, entry.Step}
		trained[at] = append(trained[at], entry)
	}
	position, positions := uint64(0), map[uint64]uint64{} // by step
	for step := range steps {
		positions[step] = position
		position += skippedAt(plans, step)
		plan, err := standing(plans, step)
		if err != nil {
			return err
		}
		end := position + plan.GlobalBatch
		if err := once(trained[[2]uint64{plan.Generation, step}], position, end); err != nil {
			return fmt.Errorf("step %d, generation %d: %w", step, plan.Generation, err)
		}
		position = end
	}
	positions[steps] = position
	return goOn(plans, positions)
}

// standing returns the plan under which a step counts.
func standing(plans []Plan, step uint64) (Plan, error) {
	for _, plan := range slices.Backward(plans) {
		if plan.ResumeStep <= step {
			return plan, nil
		}
	}
	return Plan{}, fmt.Errorf("step %d: no plan goes on from it or from before", step)
}

// once checks that entries hold each position of a range once.
func once(entries []Entry, first, end uint64) error {
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.First, b.First) })
	for _, entry := range entries {
		switch {
		case entry.First < first:
			return fmt.Errorf("samples %d to %d were trained twice", entry.First, first)
		case entry.First > first:
			return fmt.Errorf("samples %d to %d were skipped", first, entry.First)
		}
		first = entry.End
	}
	switch {
	case first < end:
		return fmt.Errorf("samples %d to %d were skipped", first, end)
	case first > end:
		return fmt.Errorf("samples %d to %d were trained a step early", end, first)
	}
	return nil
}

// skippedAt returns how many samples were passed over before a step, by plans that go on from it and were not undone.
func skippedAt(plans []Plan, step uint64) (skipped uint64) {
	for i, plan := range plans {
		if plan.ResumeStep == step && !isUndone(plans, i) {
			skipped += plan.Skipped
		}
	}
	return skipped
}

// isUndone reports whether a later plan goes back before a plan.
func isUndone(plans []Plan, i int) bool {
	return slices.ContainsFunc(plans[i+1:], func(later Plan) bool { return later.ResumeStep < plans[i].ResumeStep })
}

// goOn checks the plans whose steps still have the position that they had when the plan came.
func goOn(plans []Plan, positions map[uint64]uint64) error {
	for i, plan := range plans {
		position, isKnown := positions[plan.ResumeStep]
		if !isKnown || isUndone(plans, i) {
			continue
		}
		if position += skippedAt(plans[:i+1], plan.ResumeStep); plan.Consumed != position {
			return fmt.Errorf("generation %d goes on at sample %d from step %d: expected %d",
				plan.Generation, plan.Consumed, plan.ResumeStep, position)
		}
	}
	return nil
}
