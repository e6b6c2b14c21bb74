package history

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// mark is what ends a phase.
type mark int

const (
	consented mark = iota
	planned
	restored
	copied
	promised
	transferred
	committed
	marks // how many there are
)

// phaseNames are those of the phases that the marks end.
var phaseNames = [marks]string{
	consented: "consent", planned: "plan", restored: "restore", copied: "pre-copy", promised: "promise",
	transferred: "transfer", committed: "commit",
}

// attempt is what the log tells of a negotiation.
type attempt struct {
	opening  events.Opening
	opened   time.Time
	marked   [marks]time.Time // zero: it was not
	last     [marks]string    // who made the mark
	answered map[protocol.Phase]map[string]bool
	delays   map[string]string
	ended    time.Time // zero: it is under way
	abort    events.Abort
	overdue  int
	said     []string
	asked    map[events.Kind]bool // what was requested and begun
	plan     events.Plan          // as it was restored
	moved    int64
	naive    int64
	receipts []events.Receipt
}

func newAttempt(opening events.Opening, at time.Time) *attempt {
	return &attempt{
		opening: opening, opened: at, delays: map[string]string{}, asked: map[events.Kind]bool{},
		answered: map[protocol.Phase]map[string]bool{},
	}
}

// reach makes a mark, or makes it later: the last one who came counts.
func (a *attempt) reach(m mark, by string, at time.Time) { a.marked[m], a.last[m] = at, by }

// answer notes that a node did its part in a phase.
func (a *attempt) answer(phase protocol.Phase, node string) {
	if a.answered[phase] == nil {
		a.answered[phase] = map[string]bool{}
	}
	a.answered[phase][node] = true
	delete(a.delays, node)
}

// phase returns how far the negotiation has come.
func (a *attempt) phase() protocol.Phase {
	begun := []struct {
		by    events.Kind
		phase protocol.Phase
	}{
		{events.Scheduled, protocol.Transferring}, {events.Prepared, protocol.Promising},
		{events.PreCopyStarted, protocol.PreCopying}, {events.RestorationAsked, protocol.Restoring},
	}
	for _, begins := range begun {
		if a.asked[begins.by] {
			return begins.phase
		}
	}
	if a.asked[events.PlanRequested] && len(a.silent(protocol.Consenting, a.members())) == 0 {
		return protocol.Planning
	}
	return protocol.Consenting
}

// awaits lists the nodes and services that are waited for now.
func (a *attempt) awaits() []string {
	switch phase := a.phase(); phase {
	case protocol.Consenting, protocol.Promising:
		return a.silent(phase, a.members())
	case protocol.PreCopying, protocol.Transferring:
		return a.silent(phase, a.receivers())
	default:
		return []string{protocol.Waits[phase].Service}
	}
}

func (a *attempt) members() (nodes []string) {
	for _, member := range a.opening.Members {
		nodes = append(nodes, member.Node)
	}
	return nodes
}

func (a *attempt) receivers() []string {
	to := map[string]bool{}
	for _, transfer := range a.plan.Migration.Transfers {
		to[transfer.To] = true
	}
	return slices.Sorted(maps.Keys(to))
}

// silent returns who of some nodes has not done its part in a phase.
func (a *attempt) silent(phase protocol.Phase, nodes []string) []string {
	return slices.DeleteFunc(slices.Clone(nodes), func(node string) bool { return a.answered[phase][node] })
}

// told is the attempt for readers; now is the log's last moment.
func (a *attempt) told(now time.Time) Attempt {
	told := Attempt{
		Negotiation: a.opening.Negotiation, Opened: a.opened, Ended: a.abort.Reason, Superseded: a.abort.Superseded,
		Phase: string(a.phase()), Delays: a.delays, Overdue: a.overdue, Said: a.said,
	}
	if a.ended.IsZero() {
		told.Awaits = a.awaits()
		told.Seconds = since(a.opened, now)
		return told
	}
	told.Seconds = since(a.opened, a.ended)
	return told
}

func since(from, to time.Time) float64 { return max(0, to.Sub(from).Seconds()) }

func consent(a *attempt, event events.Event, consent *events.Consent) {
	a.answer(protocol.Consenting, consent.Node)
	a.reach(consented, consent.Node, event.Logged)
	if !consent.Accepted {
		a.said = append(a.said, consent.Node+" objects: "+consent.Reason)
	}
}

func delay(a *attempt, _ events.Event, delay *events.Delay) { a.delays[delay.Node] = delay.Reason }

func propose(a *attempt, event events.Event, _ *events.Proposal) {
	a.reach(planned, "planner", event.Logged)
}

func restore(a *attempt, event events.Event, restoration *events.Restoration) {
	a.reach(restored, "restorer", event.Logged)
	a.plan, a.moved, a.naive = restoration.Plan, restoration.BytesMoved, restoration.NaiveBytes
}

func catchUp(a *attempt, event events.Event, caughtUp *events.CaughtUp) {
	a.answer(protocol.PreCopying, caughtUp.Node)
	a.reach(copied, caughtUp.Node, event.Logged)
}

func promise(a *attempt, event events.Event, promise *events.Promise) {
	a.answer(protocol.Promising, promise.Node)
	a.reach(promised, promise.Node, event.Logged)
}

func receive(a *attempt, event events.Event, receipt *events.Receipt) {
	a.answer(protocol.Transferring, receipt.Node)
	a.receipts = append(a.receipts, *receipt)
	a.reach(transferred, receipt.Node, event.Logged)
}

// complete notes that all was received. Who was last is known from the receipts.
func complete(a *attempt, event events.Event, _ *events.Completion) {
	a.reach(transferred, a.last[transferred], event.Logged)
}

func fail(a *attempt, event events.Event, failure *events.Failure) {
	said := strings.TrimPrefix(event.Source, "/") + ": " + failure.Reason
	if failure.Node != "" && !strings.HasSuffix(event.Source, "/"+failure.Node) {
		said += " (" + failure.Node + ")"
	}
	a.said = append(a.said, said)
}

func beOverdue(a *attempt, _ events.Event, _ *events.Overdue) { a.overdue++ }

func end(a *attempt, event events.Event, abort *events.Abort) {
	a.abort, a.ended = *abort, event.Logged
}
