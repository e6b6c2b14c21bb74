package invariants

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
)

// change is a committed plan with the negotiation that made it. The commitment is its place in the event stream.
type change struct {
	entry      *Entry // of the plan
	plan       *events.Plan
	opened     *Entry
	opening    *events.Opening
	committed  *Entry
	commitment *events.Commitment
	consents   map[string]*events.Consent // by node
}

// findChanges returns every plan whose negotiation the log tells whole, in the plan stream's order. The existence of a
// plan's negotiation is an invariant of its own.
func (l *Log) findChanges() []change {
	var changes []change
	for _, entry := range l.Plans {
		plan, ok := entry.Payload.(*events.Plan)
		if !ok {
			continue
		}
		found := change{entry: entry, plan: plan, consents: map[string]*events.Consent{}}
		for committed, commitment := range said[*events.Commitment](l, events.Committed) {
			if commitment.Generation == plan.Generation {
				found.committed, found.commitment = committed, commitment
			}
		}
		if found.committed != nil && l.complete(&found) {
			changes = append(changes, found)
		}
	}
	return changes
}

// complete adds the opening and the consents of a change; it reports whether there is an opening.
func (l *Log) complete(found *change) bool {
	negotiation := found.commitment.Negotiation
	for opened, opening := range said[*events.Opening](l, events.NegotiationOpened) {
		if opening.Negotiation == negotiation {
			found.opened, found.opening = opened, opening
		}
	}
	for entry, consent := range said[*events.Consent](l, events.Consented) {
		if consent.Negotiation == negotiation && entry.Sequence < found.committed.Sequence {
			found.consents[consent.Node] = consent
		}
	}
	return found.opened != nil
}

// receipts returns what a node verified in this negotiation before the commit.
func (l *Log) receipts(c change, node string) []events.ReceivedUnit {
	var layers []events.ReceivedUnit
	for entry, receipt := range said[*events.Receipt](l, events.ShardReceived) {
		if receipt.Negotiation == c.commitment.Negotiation && receipt.Node == node && entry.Sequence < c.committed.Sequence {
			layers = append(layers, receipt.Units...)
		}
	}
	return layers
}

// joined returns the request with which a node's incarnation asked to take part, at or before a place in the log.
func (l *Log) joined(node, incarnation string, until uint64) (found *Entry, request *events.Join) {
	for entry, join := range said[*events.Join](l, events.JoinRequested) {
		if join.Node == node && join.Incarnation == incarnation && entry.Sequence <= until {
			return entry, join
		}
	}
	return nil, nil
}

// job returns what is trained, as the first valid request to join says: all bring the same. It is nil where nobody
// joined.
func (l *Log) job() *events.Job {
	for entry, join := range said[*events.Join](l, events.JoinRequested) {
		if entry.Fault == "" {
			return &join.Job
		}
	}
	return nil
}

// rowName says what a row of the job's state is.
func (l *Log) rowName(row int) string {
	if job := l.job(); job != nil {
		return events.UnitName(row, len(job.Layers))
	}
	return fmt.Sprintf("row %d", row)
}

// has reports whether a holding is at hand at a step: it names it, or goes with the step the node stops at.
func has(holding events.Holding, row int, step uint64) bool {
	return holding.Units.First <= row && row < holding.Units.End &&
		(holding.Current || slices.Contains(holding.Steps, step))
}
