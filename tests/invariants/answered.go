package invariants

import (
	"slices"
	"strconv"
	"time"

	"github.com/reknit/reknit/events"
)

// Answered finds, at the end of a log, a request that was acknowledged and forgotten. The log may end before an answer:
// while a negotiation is open, or before the negotiator had heard of the request.
var Answered = Invariant{"every request has an answer", func(log *Log) []Violation {
	if log.negotiating() {
		return nil
	}
	horizon, links := log.horizon(), linkStates{}
	var violations []Violation
	for _, entry := range log.Events {
		subject := ""
		switch request := entry.Payload.(type) {
		case *events.Join:
			subject = request.Node
		case *events.Leave:
			subject = request.Node
		case *events.LinkRequest:
			if links.changed(request, entry.Kind == events.DisconnectRequested, log.settled(entry, request.From)) {
				subject = request.From
			}
		}
		if subject == "" || entry.Sequence > horizon {
			continue
		}
		if !log.settled(entry, subject) && !log.declined(entry, subject) && !log.waits(entry) {
			violations = append(violations, entry.violation("%s of %s has no answer", entry.Kind, entry.Subject))
		}
	}
	return violations
}}

// longestWait is for how long at most a node waits that comes back again and again.
const longestWait = 5 * time.Minute

// waits reports whether the log may have ended before the turn of a node that came back twice, or was given up because
// its steps broke.
func (l *Log) waits(request *Entry) bool {
	join, joins := request.Payload.(*events.Join)
	if !joins || l.Events[len(l.Events)-1].Logged.Sub(request.Logged) >= longestWait {
		return false
	}
	returns := 0
	for _, entry := range l.Events {
		switch before := entry.Payload.(type) {
		case *events.Join:
			if before.Node == join.Node && entry.Sequence < request.Sequence {
				returns++
			}
		case *events.BrokenStep:
			if before.Node == join.Node && entry.Sequence < request.Sequence {
				returns++
			}
		}
	}
	return returns > 1
}

// linkStates knows which links were disconnected on purpose. A request for what is so already needs no answer.
type linkStates map[events.Pair]struct{ disconnected, unknown bool }

// changed notes a request and reports whether it asked for something new. After a request without effect nobody can
// tell from the log whether the negotiator remembers it.
func (l linkStates) changed(request *events.LinkRequest, disconnect, settled bool) bool {
	pair := events.PairOf(request.From, request.To)
	state := l[pair]
	if state.unknown || state.disconnected == disconnect {
		return false
	}
	state.disconnected, state.unknown = disconnect, !settled
	l[pair] = state
	return true
}

// horizon returns how far the negotiator had certainly heard at the end of the log.
func (l *Log) horizon() uint64 {
	if len(l.Events) == 0 {
		return 0
	}
	return l.Events[len(l.Events)-1].Horizon
}

// settling is for how long after the end of a negotiation the negotiator may still say what follows from it.
const settling = time.Second

// negotiating reports whether the log ends within a negotiation, or before all is said that follows from its end: the
// plan of a commit, and the next opening.
func (l *Log) negotiating() bool {
	open, ended := false, time.Time{}
	for _, entry := range l.Events {
		switch payload := entry.Payload.(type) {
		case *events.Opening:
			open = true
		case *events.Commitment:
			open, ended = !l.planned(payload.Generation), entry.Logged
		case *events.Abort:
			open, ended = false, entry.Logged
		}
	}
	last := len(l.Events) - 1
	return open || last >= 0 && l.Events[last].Logged.Sub(ended) < settling
}

// planned reports whether the plan of a generation is in the log.
func (l *Log) planned(generation uint64) bool {
	subject := strconv.FormatUint(generation, 10)
	return slices.ContainsFunc(l.Plans, func(entry *Entry) bool { return entry.Subject == subject })
}

// settled reports whether a committed plan did what a request of a node asked.
func (l *Log) settled(request *Entry, node string) bool {
	if _, leaves := request.Payload.(*events.Leave); leaves && len(l.changes) > 0 {
		if _, named := l.changes[len(l.changes)-1].plan.Member(node); !named {
			return true
		}
	}
	return slices.ContainsFunc(l.changes, func(change change) bool { return change.settles(request, node) })
}

// settles reports whether a change took up a request.
func (c change) settles(request *Entry, node string) bool {
	if c.committed.Sequence < request.Sequence {
		return false
	}
	member, named := c.plan.Member(node)
	join, joins := request.Payload.(*events.Join)
	return joins && named && member.Incarnation == join.Incarnation ||
		slices.ContainsFunc(c.opening.Changes, func(change events.Change) bool { return change.Cause == request.ID })
}

// declined reports whether something behind a request ended it otherwise: a refusal, the loss of the node that asked,
// a later request of its membership, or that the cluster holds and says why.
func (l *Log) declined(request *Entry, node string) bool {
	return slices.ContainsFunc(l.Events, func(entry *Entry) bool {
		if entry.Sequence <= request.Sequence {
			return false
		}
		switch payload := entry.Payload.(type) {
		case *events.Refusal:
			return payload.Node == node || entry.Cause == request.ID
		case *events.NodeState:
			return payload.Node == node && entry.Kind == events.NodeLost
		case *events.Join:
			return payload.Node == node
		case *events.Leave:
			return payload.Node == node
		}
		return entry.Kind == events.ClusterHeld
	})
}
