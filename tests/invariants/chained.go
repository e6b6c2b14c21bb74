package invariants

import (
	"fmt"

	"github.com/reknit/reknit/events"
)

// chained finds two plans of one generation, a gap, a plan that was changed, and a plan nobody negotiated.
var chained = Invariant{"the committed plans form one chain", func(log *Log) []Violation {
	var violations []Violation
	digests, lost := map[uint64]string{}, log.lostPlans()
	for i, entry := range log.Plans {
		plan, ok := entry.Payload.(*events.Plan)
		if !ok {
			continue
		}
		generation := lost + uint64(i+1)
		if plan.Generation != generation || entry.Subject != fmt.Sprint(plan.Generation) {
			violations = append(violations, entry.violation("generation %d under the name %s, expected %d", plan.Generation,
				entry.Subject, generation))
		}
		if isOfLost := i == 0 && lost > 0; !isOfLost && plan.Parent != digests[generation-1] {
			violations = append(violations, entry.violation("parent %q, the plan before is %q", plan.Parent,
				digests[generation-1]))
		}
		digests[generation] = events.Digest(entry.Data)
	}
	return append(violations, log.commitments(digests, lost)...)
}}

// lostPlans returns how many plans nodes told of that a wiped log does not have: its first goes on behind them.
func (l *Log) lostPlans() uint64 {
	first := uint64(0)
	for _, commitment := range said[*events.Commitment](l, events.Committed) {
		first = commitment.Generation
		break
	}
	for _, opening := range said[*events.Opening](l, events.NegotiationOpened) {
		if opening.Generation == first && (opening.Begins || len(opening.Recalls) > 0) {
			return first - 1
		}
	}
	return 0
}

// commitments finds commitments that are not those of the plans. The last one may lack its plan where the log ends
// between the two.
func (l *Log) commitments(digests map[uint64]string, lost uint64) []Violation {
	var violations []Violation
	seen := lost
	for entry, commitment := range said[*events.Commitment](l, events.Committed) {
		seen++
		if commitment.Generation != seen {
			violations = append(violations, entry.violation("commits generation %d, expected %d", commitment.Generation, seen))
		}
		if digest, there := digests[commitment.Generation]; there && digest != commitment.PlanDigest {
			violations = append(violations, entry.violation("commits %s, the plan of generation %d is %s", commitment.PlanDigest,
				commitment.Generation, digest))
		}
	}
	plans := lost + uint64(len(digests))
	if seen < plans || seen > plans+1 {
		violations = append(violations, Violation{Stream: events.PlanStream.Name, Sequence: plans,
			What: fmt.Sprintf("%d plans and %d commitments", plans-lost, seen-lost)})
	}
	return violations
}
