package invariants

import (
	"slices"

	"github.com/reknit/reknit/events"
)

// Verified finds a layer, or a partition of its optimizer state, that a plan gives to a node which neither held it nor
// had verified it: the holders before may drop theirs once the plan is committed. It also finds a node that claims what
// it never had.
var Verified = Invariant{"no layer changes hands before its new holder verified it", func(log *Log) []Violation {
	var violations []Violation
	for _, change := range log.changes {
		for _, member := range change.plan.Nodes { // the place of a lost node is trained by others
			received := log.receipts(change, member.Node)
			for row := range events.Each(change.plan.UnitsOf(member.Node)) {
				if !change.heldBy(member.Node, row) && !receivedAt(received, row, change.plan.ResumeStep) {
					violations = append(violations, change.entry.violation("%s keeps %s from step %d on, but neither held nor received it",
						member.Node, log.rowName(row), change.plan.ResumeStep))
				}
			}
		}
	}
	return append(violations, log.claims()...)
}}

// heldBy reports whether a node said that it holds a row, or claimed it: the negotiator counts a claim only where it is
// agreed.
func (c change) heldBy(node string, row int) bool {
	consent := c.consents[node]
	if consent == nil {
		return false
	}
	return slices.ContainsFunc(consent.Holdings, func(holding events.Holding) bool { return has(holding, row, c.plan.ResumeStep) }) ||
		slices.ContainsFunc(consent.Claims, func(claim events.Claim) bool {
			return claim.Unit == row && claim.Step == c.plan.ResumeStep
		})
}

func receivedAt(received []events.ReceivedUnit, row int, step uint64) bool {
	return slices.ContainsFunc(received, func(r events.ReceivedUnit) bool { return r.Unit == row && r.Step == step })
}

// claims finds holdings of a row that no plan before gave to this incarnation and that was not on its way to it. Before
// the first plan, and where training begins anew, everybody can make every row at step 0.
func (l *Log) claims() []Violation {
	var violations []Violation
	for entry, consent := range said[*events.Consent](l, events.Consented) {
		for _, holding := range consent.Holdings {
			if len(holding.Steps) > 0 && slices.Max(holding.Steps) < l.resumed(entry.Sequence) {
				continue // what is left of what its process held before it was given up: training is past it
			}
			for row := holding.Units.First; row < holding.Units.End; row++ {
				if !l.explains(consent, row, entry.Sequence) {
					violations = append(violations, entry.violation("%s (%s) claims %s, which it never got", consent.Node,
						consent.Incarnation, l.rowName(row)))
				}
			}
		}
	}
	return violations
}

// resumed returns the step from which the newest plan before a place in the log goes on.
func (l *Log) resumed(at uint64) uint64 {
	step := uint64(0)
	for _, change := range l.changes {
		if change.committed.Sequence <= at {
			step = change.plan.ResumeStep
		}
	}
	return step
}

func (l *Log) explains(consent *events.Consent, row int, at uint64) bool {
	planned := false
	for _, change := range l.changes {
		if change.commitment.Negotiation == consent.Negotiation {
			break
		}
		if change.committed.Sequence > at {
			break
		}
		planned = true
		member, _ := change.plan.Member(consent.Node)
		given := slices.ContainsFunc(change.plan.UnitsOf(consent.Node),
			func(rows events.Range) bool { return rows.First <= row && row < rows.End })
		if given && member.Incarnation == consent.Incarnation {
			return true
		}
	}
	if !planned || l.begun(consent.Negotiation) {
		return true
	}
	for entry, before := range said[*events.Consent](l, events.Consented) { // what it held when it was given up
		claims := func(claim events.Claim) bool { return claim.Unit == row }
		same := before.Node == consent.Node && before.Incarnation == consent.Incarnation
		if same && entry.Sequence < at && slices.ContainsFunc(before.Claims, claims) {
			return true
		}
	}
	joined, _ := l.joined(consent.Node, consent.Incarnation, at)
	for entry, schedule := range said[*events.Schedule](l, events.Scheduled) { // which may have been aborted with a part here
		if joined != nil && within(entry, joined.Sequence, at) && slices.ContainsFunc(schedule.Plan.Migration.Transfers,
			func(t events.Transfer) bool { return t.To == consent.Node && t.Unit == row }) {
			return true
		}
	}
	return false
}
