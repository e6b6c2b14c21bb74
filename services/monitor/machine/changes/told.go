package changes

import (
	"maps"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
)

// Changes returns what is known of all generations, in their order; now is the time until which the last one took. One of
// which only a first step is known, by a log that begins behind it or by a node that lies, is no change.
func (r *Record) Changes(now time.Time) []Change { return r.Since(0, now) }

// Since returns what is known of the generations from one on.
func (r *Record) Since(generation uint64, now time.Time) []Change {
	var told []Change
	for _, number := range slices.Sorted(maps.Keys(r.generations)) {
		g := r.generations[number]
		if isKnown := len(g.attempts) > 0 || g.hold != nil || len(g.refusals) > 0; isKnown && number >= generation {
			told = append(told, r.told(number, now))
		}
	}
	return told
}

func (r *Record) told(number uint64, now time.Time) Change {
	g := r.generations[number]
	told := Change{
		Generation: number, State: g.state(), StallSeconds: g.stall.StallSeconds, StallSteps: g.stall.StallSteps,
		StallNode: g.stall.Node, Refusals: g.refusals, Released: g.released,
	}
	if r.end != nil && number >= r.end.Generation && !slices.Contains([]string{Working, Refused, Withdrawn}, told.State) { // nobody waits for it any more
		told.State = Over
	}
	for _, a := range g.attempts {
		told.Attempts = append(told.Attempts, a.told(now))
		told.Abandoned = told.Abandoned || a.opening.Abandon
		told.Recalled = told.Recalled || len(a.opening.Recalls) > 0
	}
	if told.State == Pending || told.State == Negotiating {
		told.Held, told.Waiting = g.hold, g.deferral
	}
	if len(g.attempts) == 0 {
		if len(g.refusals) > 0 {
			told.Began = g.refusals[len(g.refusals)-1].At
		}
		return told
	}
	last := g.attempts[len(g.attempts)-1]
	told.Changes, told.Receipts = last.opening.Changes, last.receipts
	for _, change := range last.opening.Changes {
		if cause := r.causes[change.Cause]; cause.reason != "" {
			told.Reasons = append(told.Reasons, cause.of(change.Node))
		}
	}
	told.BytesMoved, told.NaiveBytes, told.Fetches = last.moved, last.naive, last.fetches
	told.Policy, told.Shape = last.plan.Policy, last.plan.Shape()
	told.LostSteps, told.AtMost = last.lost, last.atMost
	if last.plan.Snapshot != "" {
		step := last.plan.ResumeStep
		told.BackTo = &step
	}
	told.Began, told.Phases = r.phases(g)
	for _, phase := range told.Phases {
		told.TotalSeconds += phase.Seconds
	}
	if told.State == Pending || told.State == Negotiating {
		told.TotalSeconds = since(told.Began, now)
	}
	return told
}

func (c cause) of(node string) Reason {
	reason := Reason{Node: node, Says: c.reason, Seconds: c.silent, Hung: c.hung}
	if c.silent > 0 {
		reason.Since = c.logged.Add(-time.Duration(c.silent * float64(time.Second)))
	}
	return reason
}

func (g *generation) state() string {
	switch {
	case len(g.attempts) == 0 && g.hold == nil:
		return Refused
	case len(g.attempts) == 0:
		return Pending
	}
	last := g.attempts[len(g.attempts)-1]
	switch {
	case last.ended.IsZero():
		return Negotiating
	case last.stopped && g.hold == nil:
		return Stopped
	case last.marked[committed].IsZero() && last.isRefused():
		return Refused
	case last.marked[committed].IsZero() && last.isWithdrawn():
		return Withdrawn
	case last.marked[committed].IsZero():
		return Pending
	case g.allStepped(last.plan):
		return Working
	}
	return Committed
}

// allStepped reports whether all with a place completed a step, as far as the plan is known.
func (g *generation) allStepped(plan events.Plan) bool {
	for _, pipeline := range plan.Pipelines {
		for _, stage := range pipeline.Stages {
			if _, lives := plan.Member(stage.Node); lives && !g.activated[stage.Node] {
				return false
			}
		}
	}
	return true
}

// phases splits the time from the first fact to the last first step. Each phase begins where the one before it ended: of
// two that go on at a time, the later one has what it took longer.
func (r *Record) phases(g *generation) (began time.Time, phases []Phase) {
	first, last := g.attempts[g.begins()], g.attempts[len(g.attempts)-1]
	at := first.opened
	began = at
	add := func(name, by string, until time.Time) {
		if until.After(at) {
			phases = append(phases, Phase{Name: name, Seconds: since(at, until), Last: by})
			at = until
		}
	}
	if cause, found := r.firstCause(last.opening.Changes); found && cause.logged.Before(first.opened) {
		began = cause.logged.Add(-time.Duration(cause.silent * float64(time.Second)))
		at = began
		add(Notice, "monitor", cause.logged)
	}
	add(Queue, "negotiator", first.opened)
	add(Repeat, "", last.opened)
	for m, until := range last.marked {
		add(names[m], last.last[m], until)
	}
	add(FirstStep, g.stepper, g.stepped)
	return began, phases
}

// begins returns the first attempt at what the last one is to bring about: what was refused before is over.
func (g *generation) begins() int {
	for i := len(g.attempts) - 2; i >= 0; i-- {
		if a := g.attempts[i]; a.past || !a.ended.IsZero() && a.isRefused() {
			return i + 1
		}
	}
	return 0
}

// firstCause returns the fact or request that began it all, where it was heard.
func (r *Record) firstCause(changes []events.Change) (first cause, found bool) {
	for _, change := range changes {
		if one, heard := r.causes[change.Cause]; heard && (!found || one.logged.Before(first.logged)) {
			first, found = one, true
		}
	}
	return first, found
}
