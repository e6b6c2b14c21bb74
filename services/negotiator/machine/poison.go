package machine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
)

// A step may end whoever makes it: by a record that cannot be read, a batch too large for memory, a bug behind a certain step. Its
// samples go from one trainer to the next, and no number of replicas helps. So a step in which trainers ended one after the other is
// held, with its samples, before the last is given it, until a user has it tried again or its samples passed over.

const (
	// mostEnds is how many different nodes end one after the other in a step before it is held: fewer may do so by chance.
	mostEnds = 3
	// aloneSeconds is how long the last trainer waits for another, where the one before ended by a fault of its own and what it held is
	// lost: it is started again within 30 s, and PyTorch loads for some seconds more. One that fails again is not waited for.
	aloneSeconds = 300

	mostNamed    = 64  // nodes that are remembered to have ended in a step
	mostSuspects = 8   // steps of which that is remembered
	mostSkipped  = 256 // stretches of samples that are passed over
)

// poison is what is known of steps in which trainers ended.
type poison struct {
	Ends     map[string]stepEnd  `json:"ends,omitempty"`  // by node, not counted yet
	Suspects map[uint64]*suspect `json:"steps,omitempty"` // by step
	Held     *events.HeldStep    `json:"held,omitempty"`
	Why      string              `json:"why,omitempty"` // that is held
	Holds    int                 `json:"holds,omitempty"`
	Released *events.Release     `json:"released,omitempty"` // last
	Skipped  []events.Samples    `json:"skipped,omitempty"`
}

// stepEnd is that a trainer ended by a fault of its own in a step.
type stepEnd struct {
	Step   uint64   `json:"step"`
	Places []string `json:"places"` // its host and site
	Reason string   `json:"reason"`
	Keeps  bool     `json:"keeps"` // its agent has the state that it left
}

// suspect is a step in which trainers ended since it was first begun.
type suspect struct {
	Rounds     int       `json:"rounds"`     // plans under which some did
	Generation uint64    `json:"generation"` // of the last of these
	Died       []string  `json:"died"`       // whose they were, each once
	Places     []string  `json:"places"`     // that all of them have in common
	Since      time.Time `json:"since"`
	Reason     string    `json:"reason"` // of the last
	Keeps      bool      `json:"keeps"`  // each agent has the state that its trainer left
}

// exited hears that a trainer of the plan in force ended by a fault of its own in a step. It counts once the step to go on from is known.
func (m *Machine) exited(_ events.Event, exit events.Exit) []events.Event {
	known := &m.state.Poison
	if exit.Step == nil || m.state.Plan == nil || !m.state.trusted(exit.Node, exit.Incarnation) || !m.placed(exit.Node) {
		return nil
	}
	if known.Ends == nil || len(known.Ends) >= mostNodes {
		known.Ends = map[string]stepEnd{}
	}
	member, _ := m.state.Plan.Member(exit.Node)
	known.Ends[exit.Node] = stepEnd{Step: *exit.Step, Places: placesOf(member), Reason: inShort(exit.Reason), Keeps: exit.Keeps}
	return nil
}

// placesOf returns what ends those together who have it in common: their host, as others reach it, and their site.
func placesOf(at events.Member) []string {
	var places []string
	for _, crowd := range crowdsOf(&member{Member: at}) {
		if crowd.key != wholeCluster {
			places = append(places, crowd.key)
		}
	}
	return places
}

// countEnds counts who ended in a step that is not made yet, where training goes on from one. Nobody's word makes a step later than
// those that training can have come to.
func (m *Machine) countEnds(resume uint64) {
	known := &m.state.Poison
	maps.DeleteFunc(known.Suspects, func(step uint64, _ *suspect) bool { return step < resume })
	if len(known.Ends) == 0 {
		return
	}
	latest := max(resume, m.reached())
	for _, node := range slices.Sorted(maps.Keys(known.Ends)) {
		if end := known.Ends[node]; end.Step >= resume && end.Step <= latest && !m.isSkipped(end.Step) {
			m.suspect(end.Step).note(node, end, m.state.generation())
		}
	}
	clear(known.Ends)
}

// suspect returns what is known of a step, and forgets that in which the fewest ended where there are too many.
func (m *Machine) suspect(step uint64) *suspect {
	known := &m.state.Poison
	if known.Suspects == nil {
		known.Suspects = map[uint64]*suspect{}
	}
	if known.Suspects[step] == nil && len(known.Suspects) >= mostSuspects {
		steps := slices.Sorted(maps.Keys(known.Suspects))
		delete(known.Suspects, slices.MinFunc(steps, func(a, b uint64) int {
			return cmp.Compare(len(known.Suspects[a].Died), len(known.Suspects[b].Died))
		}))
	}
	if known.Suspects[step] == nil {
		known.Suspects[step] = &suspect{Since: m.state.Heard, Keeps: true}
	}
	return known.Suspects[step]
}

// note counts one that ended. All who do under one plan are one round: the first may have ended the others.
func (s *suspect) note(node string, end stepEnd, generation uint64) {
	if s.Rounds == 0 || s.Generation != generation {
		s.Rounds, s.Generation = s.Rounds+1, generation
	}
	if len(s.Died) == 0 {
		s.Places = end.Places
	}
	s.Places = slices.DeleteFunc(slices.Clone(s.Places), func(place string) bool { return !slices.Contains(end.Places, place) })
	s.Reason, s.Keeps = end.Reason, s.Keeps && end.Keeps
	if !slices.Contains(s.Died, node) && len(s.Died) < mostNamed {
		s.Died = append(s.Died, node)
	}
}

// poisoned holds the step from which training would go on, or one not far from it, where it seems to end whoever makes it; it returns nil
// where training may go on.
func (m *Machine) poisoned(cause events.Event, resume uint64) []events.Event {
	m.countEnds(resume)
	known := &m.state.Poison
	for _, step := range slices.Sorted(maps.Keys(known.Suspects)) {
		suspect := known.Suspects[step]
		if m.endsAll(suspect) {
			m.putOnHold(step, suspect)
			return m.abort(cause, known.Why, m.holdStep)
		}
		if wait := m.alone(suspect); wait > 0 {
			reason := events.Brief(fmt.Sprintf("the trainer of %s ended in step %d, and what it held is lost. The last holder of the layers "+
				"waits for another node for %.0f s. It ended by: %s", suspect.Died[0], step, wait, suspect.Reason))
			return m.abort(cause, reason, m.holdFor(wait, reason))
		}
	}
	return nil
}

// endsAll reports whether a step ended so many, one after the other, that the next one would end, too: mostEnds different nodes, or two
// where one at most is left that it did not end. One node that ends again and again is one. Nor do those count that have a host or
// a site in common which others do not have, while there are such others.
func (m *Machine) endsAll(s *suspect) bool {
	left, elsewhere := 0, false
	for _, member := range m.state.after(m.state.Negotiation.Opening.Changes) {
		if slices.Contains(s.Died, member.Node) {
			continue
		}
		left++
		elsewhere = elsewhere || slices.ContainsFunc(s.Places, func(place string) bool {
			return !slices.Contains(placesOf(member.Member), place)
		})
	}
	ended := min(s.Rounds, len(s.Died))
	return ended >= 2 && left <= 1 || ended >= mostEnds && !elsewhere
}

// alone returns for how many seconds the last one that is left waits for another; 0: it need not.
func (m *Machine) alone(s *suspect) float64 {
	fails := m.state.Failed[s.Died[0]].Count > 1
	if s.Keeps || fails || len(m.state.after(m.state.Negotiation.Opening.Changes)) > 1 {
		return 0
	}
	return max(0, aloneSeconds-m.state.Heard.Sub(s.Since).Seconds())
}

// putOnHold has a step given to nobody.
func (m *Machine) putOnHold(step uint64, s *suspect) {
	known := &m.state.Poison
	known.Holds++
	known.Held = &events.HeldStep{
		Hold: known.Holds, Step: step, Samples: m.samplesOf(step), Died: s.Died[:min(len(s.Died), events.MostDied)],
	}
	known.Why = events.Brief(fmt.Sprintf("step %d is held with its %v: the trainers of %s ended in it, one after the other. Mend what ends "+
		"them, and run reknit step retry; or have its samples passed over by reknit step skip. The last ended by: %s", step,
		known.Held.Samples, named(s.Died, func(node string) string { return node }), s.Reason))
}

// samplesOf returns those of the step after so many completed ones.
func (m *Machine) samplesOf(step uint64) events.Samples {
	batch := m.state.Plan.Data.GlobalBatch
	return events.Samples{First: m.state.Data.Position(step, batch), Count: batch}
}

// holdStep decides nothing while a step is held. It says so once, and at each retry.
func (m *Machine) holdStep(cause events.Event) []events.Event {
	if m.state.Hold.Active && cause.Kind != events.NegotiationOverdue {
		return nil
	}
	return m.hold(m.state.Poison.Why)(cause)
}
