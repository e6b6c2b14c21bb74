package changes

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
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

// names are those of the phases that the marks end.
var names = [marks]string{
	consented: Consent, planned: Plan, restored: Restore, copied: PreCopy, promised: Promise, transferred: Transfer, committed: Commit,
}

// attempt is what the log tells of a negotiation.
type attempt struct {
	opening  events.Opening
	opened   time.Time
	marked   [marks]time.Time           // zero: it was not
	last     [marks]string              // who made the mark
	answered map[string]map[string]bool // by phase: the nodes that did their part
	delays   map[string]string
	ended    time.Time // zero: it is under way
	abort    events.Abort
	stopped  bool // training has, as it was to
	past     bool // it is of before a stop or a reset
	overdue  int
	said     []string
	asked    map[events.Kind]bool // what was requested and begun
	plan     events.Plan          // as it was proposed, and then restored
	fetches  []Fetch              // that it takes
	refused  map[string]bool      // the nodes that asked for it, once they were refused
	gone     map[string]bool      // those that were to join, once they left or were lost
	lost     uint64               // completed steps that are trained again
	atMost   bool                 // it may be fewer: nobody told how many had been made
	moved    int64
	naive    int64
	receipts []events.Receipt
}

func newAttempt(opening events.Opening, at time.Time) *attempt {
	return &attempt{
		opening: opening, opened: at, delays: map[string]string{}, asked: map[events.Kind]bool{},
		answered: map[string]map[string]bool{}, refused: map[string]bool{}, gone: map[string]bool{},
	}
}

// isRefused reports whether all that it was to bring about was refused, so that nothing of it is left to negotiate.
func (a *attempt) isRefused() bool {
	return !slices.ContainsFunc(a.opening.Changes, func(change events.Change) bool { return !a.refused[change.Node] })
}

// isWithdrawn reports whether nobody is left who asked for any of it.
func (a *attempt) isWithdrawn() bool {
	return !slices.ContainsFunc(a.opening.Changes, func(change events.Change) bool {
		return !a.refused[change.Node] && !(change.Kind == events.ChangeJoin && a.gone[change.Node])
	})
}

// refuse notes that a node was refused what it asked for, if it is among the changes. One refusal answers all that a node asked for.
func (a *attempt) refuse(node string) {
	if slices.ContainsFunc(a.opening.Changes, func(change events.Change) bool { return change.Node == node }) {
		a.refused[node] = true
	}
}

// reach makes a mark, or makes it later: the last one who came counts.
func (a *attempt) reach(m mark, by string, at time.Time) { a.marked[m], a.last[m] = at, by }

// answer notes that a node did its part in a phase.
func (a *attempt) answer(phase, node string) {
	if a.answered[phase] == nil {
		a.answered[phase] = map[string]bool{}
	}
	a.answered[phase][node] = true
	delete(a.delays, node)
}

// phase returns how far the negotiation has come.
func (a *attempt) phase() string {
	begun := []struct {
		by    events.Kind
		phase string
	}{
		{events.SnapshotRequested, Stopping}, {events.Scheduled, Transferring}, {events.Prepared, Promising},
		{events.PreCopyStarted, PreCopying}, {events.RestorationAsked, Restoring},
	}
	for _, begins := range begun {
		if a.asked[begins.by] {
			return begins.phase
		}
	}
	if a.asked[events.PlanRequested] && len(a.silent(Consenting, a.members())) == 0 {
		return Planning
	}
	return Consenting
}

// awaits lists the nodes and services that are waited for now.
func (a *attempt) awaits() []string {
	switch phase := a.phase(); phase {
	case Consenting, Promising, Stopping:
		return a.silent(phase, a.members())
	case PreCopying, Transferring:
		return a.silent(phase, a.receivers())
	case Planning:
		return []string{"planner"}
	default:
		return []string{"restorer"}
	}
}

func (a *attempt) members() (nodes []string) {
	for _, member := range a.opening.Members {
		nodes = append(nodes, member.Node)
	}
	return nodes
}

func (a *attempt) receivers() (nodes []string) {
	for _, fetch := range a.fetches {
		nodes = append(nodes, fetch.Node)
	}
	return nodes
}

// silent returns who of some nodes has not done its part in a phase.
func (a *attempt) silent(phase string, nodes []string) []string {
	return slices.DeleteFunc(slices.Clone(nodes), func(node string) bool { return a.answered[phase][node] })
}

// told is the attempt for readers; now is the log's last moment.
func (a *attempt) told(now time.Time) Attempt {
	told := Attempt{
		Negotiation: a.opening.Negotiation, Opened: a.opened, Ended: a.abort.Reason, Superseded: a.abort.Superseded,
		Phase: a.phase(), Members: len(a.opening.Members), Delays: maps.Clone(a.delays), Overdue: a.overdue, Said: a.said,
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
	a.answer(Consenting, consent.Node)
	a.reach(consented, consent.Node, event.Logged)
	if !consent.Accepted {
		a.said = append(a.said, consent.Node+" objects: "+consent.Reason)
	}
}

func delay(a *attempt, _ events.Event, delay *events.Delay) { a.delays[delay.Node] = delay.Reason }

func propose(a *attempt, event events.Event, proposal *events.Proposal) {
	a.reach(planned, "planner", event.Logged)
	a.plan = proposal.Plan
}

func restore(a *attempt, event events.Event, restoration *events.Restoration) {
	a.reach(restored, "restorer", event.Logged)
	a.plan, a.moved, a.naive = restoration.Plan, restoration.BytesMoved, restoration.NaiveBytes
	a.fetches = fetchesOf(restoration.Plan.Migration)
}

func catchUp(a *attempt, event events.Event, caughtUp *events.CaughtUp) {
	a.answer(PreCopying, caughtUp.Node)
	a.reach(copied, caughtUp.Node, event.Logged)
}

func promise(a *attempt, event events.Event, promise *events.Promise) {
	a.answer(Promising, promise.Node)
	a.reach(promised, promise.Node, event.Logged)
}

func receive(a *attempt, event events.Event, receipt *events.Receipt) {
	a.answer(Transferring, receipt.Node)
	a.receipts = append(a.receipts, *receipt)
	a.reach(transferred, receipt.Node, event.Logged)
}

// complete notes that all was received. The receipts tell who was last.
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
