package changes

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
)

// Record takes a log and makes changes of it.
type Record struct {
	causes       map[string]cause // by id: facts and requests that may bring a change about
	negotiations map[string]*attempt
	generations  map[uint64]*generation
	committed    uint64 // the last generation
	end          *End   // nil: the job goes on
	resets       Resets
	halts        []Halt
}

// cause is a fact or a request.
type cause struct {
	logged time.Time
	silent float64 // seconds before, in which nothing was heard or others waited
	hung   bool    // others waited
	reason string  // of a loss, or of a step that broke
}

// generation is what brings one about, and whether it is followed.
type generation struct {
	attempts  []*attempt
	deferral  *events.Deferral
	hold      *events.Hold
	released  *events.Release
	refusals  []Refusal
	activated map[string]bool
	stepped   time.Time // the last first step
	stepper   string    // who made it
	stall     events.Activation
}

// NewRecord returns a record of nothing, for what comes behind the commit of a generation.
func NewRecord(committed uint64) *Record {
	return &Record{
		causes: map[string]cause{}, negotiations: map[string]*attempt{}, generations: map[uint64]*generation{}, committed: committed,
	}
}

// Kinds are those of which a record is made.
func Kinds() []events.Kind { return slices.Sorted(maps.Keys(takers)) }

// Take hears an event. An event that its schema refuses says nothing.
func (r *Record) Take(event events.Event) {
	if take := takers[event.Kind]; take != nil {
		take(r, event)
	}
}

var takers = map[events.Kind]func(*Record, events.Event){
	events.JoinRequested:       (*Record).asked,
	events.LeaveRequested:      (*Record).leave,
	events.ConnectRequested:    (*Record).asked,
	events.DisconnectRequested: (*Record).asked,
	events.LinkLost:            (*Record).asked,
	events.LinkRestored:        (*Record).asked,
	events.StepBroken:          taker((*Record).broke),
	events.ReplicaDiverged:     (*Record).asked,
	events.NodeLost:            taker((*Record).lost),
	events.NegotiationOpened:   taker((*Record).opened),
	events.Consented:           of(consent),
	events.ConsentDelayed:      of(delay),
	events.PlanRequested:       begun,
	events.PlanProposed:        of(propose),
	events.PlanDeferred:        taker((*Record).deferred),
	events.PlanRefused:         of(fail),
	events.RestorationAsked:    begun,
	events.RestorationPlanned:  of(restore),
	events.RestorationRefused:  of(fail),
	events.PreCopyStarted:      begun,
	events.PreCopyCaughtUp:     of(catchUp),
	events.Prepared:            begun,
	events.Promised:            of(promise),
	events.Scheduled:           begun,
	events.ShardReceived:       of(receive),
	events.RestorationDone:     of(complete),
	events.RestorationFailed:   of(fail),
	events.NegotiationOverdue:  of(beOverdue),
	events.Committed:           taker((*Record).commit),
	events.Aborted:             of(end),
	events.PlanActivated:       taker((*Record).activate),
	events.TrainingCompleted:   (*Record).complete,
	events.TrainingStopped:     taker((*Record).stop),
	events.TrainingReset:       (*Record).reset,
	events.StopRequested:       (*Record).asked,
	events.StopRefused:         (*Record).asked,
	events.ReleaseRequested:    (*Record).asked,
	events.ReleaseRefused:      (*Record).asked,
	events.StepReleased:        taker((*Record).release),
	events.ResetRequested:      (*Record).asked,
	events.ResetRefused:        (*Record).asked,
	events.SnapshotRequested:   begun,
	events.ClusterHeld:         taker((*Record).held),
	events.MembershipRefused:   taker((*Record).refused),
}

// taker reads the payload.
func taker[T any, P interface {
	*T
	events.Payload
}](take func(*Record, events.Event, *T)) func(*Record, events.Event) {
	return func(r *Record, event events.Event) {
		if payload, err := events.Open[T, P](event); err == nil {
			take(r, event, &payload)
		}
	}
}

// of reads what an event says of a negotiation.
func of[T any, P interface {
	*T
	events.Payload
}](take func(*attempt, events.Event, *T)) func(*Record, events.Event) {
	return taker[T, P](func(r *Record, event events.Event, payload *T) {
		if a := r.negotiationOf(event); a != nil {
			take(a, event, payload)
		}
	})
}

// begun notes that a part of a negotiation has begun, whatever is in it.
func begun(r *Record, event events.Event) {
	if a := r.negotiationOf(event); a != nil {
		a.asked[event.Kind] = true
	}
}

// negotiationOf returns the negotiation that a payload names; nil where its beginning was not heard.
func (r *Record) negotiationOf(event events.Event) *attempt {
	var named struct {
		Negotiation string `json:"negotiation"`
	}
	if json.Unmarshal(event.Data, &named) != nil {
		return nil
	}
	return r.negotiations[named.Negotiation]
}

// About returns the change of which an event tells, and which of its attempts; found is false for an event of none, or of one
// whose beginning was not heard. now is as in Changes.
func (r *Record) About(event events.Event, now time.Time) (change Change, attempt Attempt, found bool) {
	a := r.negotiationOf(event)
	if a == nil {
		return change, attempt, false
	}
	return r.told(a.opening.Generation, now), a.told(now), true
}

// Plan returns the plan of a generation, or the one that it comes to as far as is known; nil where nothing is.
func (r *Record) Plan(generation uint64) *events.Plan {
	g := r.generations[generation]
	if g == nil || len(g.attempts) == 0 || len(g.attempts[len(g.attempts)-1].plan.Pipelines) == 0 {
		return nil
	}
	return &g.attempts[len(g.attempts)-1].plan
}

// End returns that of the job; nil where it goes on.
func (r *Record) End() *End { return r.end }

func (r *Record) complete(event events.Event) { r.end = EndOf(event) }

// reset forgets that the job had ended, and why the cluster held: training begins anew.
func (r *Record) reset(event events.Event) {
	if r.resets.Take(event) == nil {
		return
	}
	r.end = nil
	reset := r.resets.last
	r.halt(Halt{
		At: event.Time, Generation: reset.Generation, Step: reset.Step, Reason: reset.Reason, Reset: true, Snapshots: reset.Snapshots,
	})
	if next := r.generations[r.committed+1]; next != nil {
		next.hold = nil
		for _, before := range next.attempts {
			before.past = true
		}
	}
}

// stop has the negotiation that was to stop training be done, and nobody be waited for. It is told again each day.
func (r *Record) stop(event events.Event, stop *events.JobStop) {
	r.asked(event)
	r.halt(Halt{At: event.Time, Generation: stop.Generation, Step: stop.Step, Reason: stop.Reason, Unchanged: stop.Tier == ""})
	next := r.generations[stop.Generation+1]
	if next == nil || len(next.attempts) == 0 {
		return
	}
	if last := next.attempts[len(next.attempts)-1]; last.opening.Stop && !last.stopped {
		last.stopped, last.past, next.hold = true, true, nil
	}
}

// Committed returns the last generation that was.
func (r *Record) Committed() uint64 { return r.committed }

// Forget drops the changes to generations before one, and what was heard before the first one that is left was begun.
func (r *Record) Forget(before uint64) {
	maps.DeleteFunc(r.generations, func(number uint64, g *generation) bool { return number < before })
	maps.DeleteFunc(r.negotiations, func(_ string, a *attempt) bool { return a.opening.Generation < before })
	began := r.began()
	maps.DeleteFunc(r.causes, func(_ string, c cause) bool { return c.logged.Before(began) })
}

// began returns when the first change began of which all is known; zero where there is none.
func (r *Record) began() (began time.Time) {
	for _, g := range r.generations {
		if len(g.attempts) == 0 {
			continue
		}
		if first, _ := r.phases(g); began.IsZero() || first.Before(began) {
			began = first
		}
	}
	return began
}

func (r *Record) of(number uint64) *generation {
	if r.generations[number] == nil {
		r.generations[number] = &generation{activated: map[string]bool{}}
	}
	return r.generations[number]
}

func (r *Record) asked(event events.Event) { r.note(event.ID, cause{logged: event.Logged}) }

func (r *Record) lost(event events.Event, lost *events.NodeState) {
	r.note(event.ID, cause{
		event.Logged, max(lost.SilentSeconds, lost.WaitedSeconds), lost.WaitedSeconds > lost.SilentSeconds, lost.Reason,
	})
	r.withdraw(lost.Node, lost.Incarnation)
}

func (r *Record) broke(event events.Event, broken *events.BrokenStep) {
	r.note(event.ID, cause{logged: event.Logged, reason: broken.Reason})
}

func (r *Record) leave(event events.Event) {
	r.asked(event)
	r.withdraw(event.Subject, "")
}

// withdraw notes that a node, which may be about to join, has left, is lost or is given up. The end of a process before the one that is to
// join says nothing. An empty incarnation means any process.
func (r *Record) withdraw(node, incarnation string) {
	g := r.generations[r.committed+1]
	if g == nil || len(g.attempts) == 0 {
		return
	}
	last := g.attempts[len(g.attempts)-1]
	if joins, found := events.MemberOf(last.opening.Members, node); found && incarnation != "" && joins.Incarnation != incarnation {
		return
	}
	last.gone[node] = true
}

// Bounds of what is remembered of a log in which nothing is committed, and much is asked for and refused.
const (
	mostCauses   = 1 << 14
	mostReason   = 256 // bytes of a cause's
	mostRefusals = 256 // of a generation
	mostAttempts = 64  // of a generation
)

// note keeps a cause. The older half goes if there are too many.
func (r *Record) note(id string, noted cause) {
	if len(r.causes) >= mostCauses {
		byAge := slices.SortedFunc(maps.Values(r.causes), func(a, b cause) int { return a.logged.Compare(b.logged) })
		middle := byAge[len(byAge)/2].logged
		maps.DeleteFunc(r.causes, func(_ string, c cause) bool { return !c.logged.After(middle) })
	}
	noted.reason = events.Shorten(noted.reason, mostReason)
	r.causes[id] = noted
}

func (r *Record) opened(event events.Event, opening *events.Opening) {
	a := newAttempt(*opening, event.Logged)
	r.negotiations[opening.Negotiation] = a
	to := r.of(opening.Generation)
	if len(to.attempts) == mostAttempts { // the first tells when it began
		delete(r.negotiations, to.attempts[1].opening.Negotiation)
		to.attempts = slices.Delete(to.attempts, 1, 2)
	}
	to.attempts = append(to.attempts, a)
}

func (r *Record) deferred(_ events.Event, deferral *events.Deferral) {
	if a := r.negotiations[deferral.Negotiation]; a != nil {
		r.of(a.opening.Generation).deferral = deferral
	}
}

func (r *Record) release(event events.Event, release *events.Release) {
	r.asked(event)
	g := r.of(r.committed + 1)
	if g.hold != nil && g.hold.Step != nil && g.hold.Step.Hold == release.Hold { // else it is told again what was done before
		g.hold, g.released = nil, release
	}
}

func (r *Record) held(_ events.Event, hold *events.Hold) {
	g := r.of(r.committed + 1)
	g.hold = hold
	if last := len(g.attempts) - 1; last >= 0 {
		clear(g.attempts[last].refused) // there is more to wait for
	}
}

func (r *Record) refused(event events.Event, refusal *events.Refusal) {
	g := r.of(r.committed + 1)
	g.refusals = append(g.refusals, Refusal{*refusal, event.Logged})
	g.refusals = g.refusals[max(0, len(g.refusals)-mostRefusals):]
	switch last := len(g.attempts) - 1; {
	case refusal.Refused == events.RefusedMembership:
		r.withdraw(refusal.Node, refusal.Incarnation)
	case last >= 0:
		g.attempts[last].refuse(refusal.Node)
	}
}

func (r *Record) commit(event events.Event, commitment *events.Commitment) {
	r.committed = max(r.committed, commitment.Generation)
	if a := r.negotiations[commitment.Negotiation]; a != nil {
		a.reach(committed, "negotiator", event.Logged)
		a.ended, a.lost, a.atMost = event.Logged, commitment.LostSteps, commitment.AtMost
	}
}

func (r *Record) activate(event events.Event, activation *events.Activation) {
	if activation.Generation > r.committed { // nobody steps under a plan that is not committed
		return
	}
	g := r.of(activation.Generation)
	g.activated[activation.Node] = true
	g.stepped, g.stepper = event.Logged, activation.Node
	if activation.StallSeconds >= g.stall.StallSeconds {
		g.stall = *activation
	}
}
