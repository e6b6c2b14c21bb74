package invariants

import (
	"slices"

	"github.com/reknit/reknit/events"
)

// verified finds a layer that a plan gives to a node which neither held it nor had verified it: the holders before
// may drop theirs once the plan is committed. It also finds a node that claims layers it never had.
var verified = Invariant{"no layer changes hands before its new holder verified it", func(log *Log) []Violation {
	var violations []Violation
	for _, change := range log.changes {
		for _, place := range change.places() {
			received := log.receipts(change, place.Node)
			for layer := place.Layers.First; layer < place.Layers.End; layer++ {
				if !change.heldBy(place.Node, layer) && !receivedAt(received, layer, change.plan.ResumeStep) {
					violations = append(violations, change.entry.violation("%s trains layer %d from step %d on, but neither held nor received it",
						place.Node, layer, change.plan.ResumeStep))
				}
			}
		}
	}
	return append(violations, log.claims()...)
}}

func (c change) heldBy(node string, layer int) bool {
	consent := c.consents[node]
	return consent != nil && slices.ContainsFunc(consent.Holdings, func(holding events.Holding) bool {
		return has(holding, layer, c.plan.ResumeStep)
	})
}

func receivedAt(received []events.ReceivedLayer, layer int, step uint64) bool {
	return slices.ContainsFunc(received, func(r events.ReceivedLayer) bool { return r.Layer == layer && r.Step == step })
}

// claims finds holdings of a layer that no plan before gave to this incarnation and that it did not receive. Before
// the first plan everybody can make every layer at step 0.
func (l *Log) claims() []Violation {
	var violations []Violation
	for entry, consent := range said[*events.Consent](l, events.Consented) {
		for _, holding := range consent.Holdings {
			for layer := holding.Layers.First; layer < holding.Layers.End; layer++ {
				if !l.explains(consent, layer, entry.Sequence) {
					violations = append(violations, entry.violation("%s (%s) claims layer %d, which it never got", consent.Node, consent.Incarnation, layer))
				}
			}
		}
	}
	return violations
}

func (l *Log) explains(consent *events.Consent, layer int, at uint64) bool {
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
		layers, placed := change.plan.Holds(consent.Node)
		if placed && member.Incarnation == consent.Incarnation && layers.First <= layer && layer < layers.End {
			return true
		}
	}
	if !planned {
		return true
	}
	joined, _ := l.joined(consent.Node, consent.Incarnation, at)
	for entry, receipt := range said[*events.Receipt](l, events.ShardReceived) {
		if joined != nil && receipt.Node == consent.Node && within(entry, joined.Sequence, at) &&
			slices.ContainsFunc(receipt.Layers, func(r events.ReceivedLayer) bool { return r.Layer == layer }) {
			return true
		}
	}
	return false
}
