package invariants

import "github.com/reknit/reknit/events"

// Broken finds a step that cannot end and is not given up by all, or is given up again for another node that tells of
// it. The log may end before the negotiator had heard.
var Broken = Invariant{"a step that breaks is given up once, by all", func(log *Log) []Violation {
	var violations []Violation
	told, abandoned := map[uint64]string{}, uint64(0)
	for entry, opening := range said[*events.Opening](log, events.NegotiationOpened) {
		if opening.Abandon {
			abandoned = max(abandoned, opening.Generation)
		}
		for _, change := range opening.Changes {
			if change.Kind != events.ChangeBroken {
				continue
			}
			if before := told[opening.Generation]; !opening.Abandon || before != "" && before != change.Cause {
				violations = append(violations, entry.violation("abandon %t for what %s told, after %q",
					opening.Abandon, change.Node, before))
			}
			told[opening.Generation] = change.Cause
		}
	}
	if log.negotiating() {
		return violations
	}
	for entry, step := range said[*events.BrokenStep](log, events.StepBroken) {
		if entry.Sequence <= log.horizon() && step.Generation >= abandoned {
			violations = append(violations, entry.violation("step %d of generation %d goes on", step.Step, step.Generation))
		}
	}
	return violations
}}
