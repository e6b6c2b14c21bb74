package dev

import (
	"context"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
)

// planActivated ends a change once every trainer with a place completed a step under its plan, or a later one.
func (s *story) planActivated(event events.Event, activation events.Activation) {
	for _, change := range s.changes {
		if change.Generation != activation.Generation || change.service != "" {
			continue
		}
		if activation.StallSeconds > change.StallSeconds {
			change.StallSeconds, change.StallSteps = activation.StallSeconds, activation.StallSteps
		}
		change.NextStepSeconds = max(change.NextStepSeconds, since(change.done, event.Logged))
	}
	s.worksUnder(activation.Generation, activation.Node)
}

// worksUnder notes that a node works under a generation: it completed a step, or told the digests of the last one.
func (s *story) worksUnder(generation uint64, node string) {
	if s.activated[generation] == nil {
		s.activated[generation] = map[string]bool{}
	}
	s.activated[generation][node] = true
	if s.plan == nil || generation != s.plan.Generation || !s.allActivated() {
		return
	}
	for _, change := range s.changes {
		_, member := s.plan.Member(change.node)
		gone := change.Kind == events.ChangeFailure || change.Kind == events.ChangeLeave
		committed := change.Generation != 0 && change.Generation <= generation
		// A node may go in another way than it was about to: what counts is that all work without it.
		change.Healed = change.Healed || committed || gone && !member && change.before < generation
	}
}

func (s *story) allActivated() bool {
	for _, pipeline := range s.plan.Pipelines {
		for _, stage := range pipeline.Stages {
			if _, lives := s.plan.Member(stage.Node); lives && !s.activated[s.plan.Generation][stage.Node] {
				return false
			}
		}
	}
	return true
}

// open returns the changes that are neither healed nor refused yet; the mutex is held.
func (s *story) open() []*Change {
	return slices.DeleteFunc(slices.Clone(s.changes), func(c *Change) bool { return c.Healed || c.Refused != "" })
}

// safeVictims returns the trainers of the plan in force whose loss leaves every unit of the state a holder that lives,
// were those that were killed gone already. The mutex is held.
func (s *story) safeVictims(running []string) []string {
	if s.plan == nil {
		return nil
	}
	alive := slices.DeleteFunc(slices.Clone(running), s.killed)
	holders := map[int]int{}
	for _, node := range alive {
		for unit := range events.Each(s.plan.UnitsOf(node)) {
			holders[unit]++
		}
	}
	return slices.DeleteFunc(s.settled(alive), func(node string) bool {
		for unit := range events.Each(s.plan.UnitsOf(node)) {
			if holders[unit] < 2 {
				return true
			}
		}
		return false
	})
}

// killed reports whether a trainer was killed; the mutex is held.
func (s *story) killed(node string) bool {
	return slices.ContainsFunc(s.changes, func(c *Change) bool { return c.Kind == events.ChangeFailure && c.node == node })
}

// pulse takes a heartbeat.
func (s *story) pulse(pulse events.Pulse, now time.Time) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	before := s.step()
	s.nodes[pulse.Node] = pulse
	if s.step() > before {
		s.gaps.advance(now, pulse.StepSeconds)
		s.lastStep = now
	}
	s.tell()
}

// stepGaps measures the longest time in which no step was completed.
type stepGaps struct {
	last    time.Time // a step was completed
	longest time.Duration
	usual   float64 // seconds of a step
}

func (g *stepGaps) reset(now time.Time) { g.last, g.longest = now, 0 }

func (g *stepGaps) advance(now time.Time, stepSeconds float64) {
	if !g.last.IsZero() {
		g.longest = max(g.longest, now.Sub(g.last))
	}
	g.last, g.usual = now, stepSeconds
}

// stall returns the longest gap beyond a usual step, in seconds and in usual steps.
func (g *stepGaps) stall() (seconds, steps float64) {
	seconds = max(0, g.longest.Seconds()-g.usual)
	return seconds, seconds / max(g.usual, 1e-9)
}

// wait blocks until a condition of the story holds.
func (s *story) wait(ctx context.Context, holds func(*story) bool) error {
	for {
		s.mutex.Lock()
		done := holds(s)
		s.mutex.Unlock()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.news:
		case <-time.After(waitAgain): // several may wait for the news
		}
	}
}

// waitAgain bounds how long a waiter misses news that another one took.
const waitAgain = 20 * time.Millisecond

// settled returns which of the names are nodes of the plan that nothing is under way with; the mutex is held.
func (s *story) settled(names []string) []string {
	var settled []string
	for _, name := range names {
		busy := slices.ContainsFunc(s.changes,
			func(c *Change) bool { return !c.Healed && (c.node == name || c.peer == name) })
		if s.plan == nil || busy {
			continue
		}
		if _, member := s.plan.Member(name); member {
			settled = append(settled, name)
		}
	}
	return settled
}

// members returns which of the names may be asked for something.
func (s *story) members(names []string) []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.settled(names)
}

// links returns the pairs of trainers whose link is not in use, or is.
func (s *story) links(names []string, cut bool) [][]string {
	members := s.members(names)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var pairs [][]string
	for i, a := range members {
		for _, b := range members[i+1:] {
			if slices.Contains(s.plan.Relays, events.PairOf(a, b)) == cut {
				pairs = append(pairs, []string{a, b})
			}
		}
	}
	return pairs
}

// complete reports whether the job is complete. The mutex is held.
func (s *story) complete() bool { return s.end != nil }

// completed hears that the job is done. Changes that were under way then need no healing any more.
func (s *story) completed(_ events.Event, end events.JobEnd) {
	s.end = &end
	for _, change := range s.open() {
		if change.service == "" {
			change.Overtaken, change.Healed = true, true
		}
	}
}
