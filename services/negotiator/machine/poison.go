package machine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
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
	Rounds     int       `json:"rounds"`     // plans under which one did that had not before, or all
	Generation uint64    `json:"generation"` // of the last plan under which some did
	Round      []string  `json:"round"`      // who did under it, each once
	Counted    bool      `json:"counted"`    // that plan
	Died       []string  `json:"died"`       // whose they were, each once
	Places     []string  `json:"places"`     // that all of them have in common
	Since      time.Time `json:"since"`
	Reason     string    `json:"reason"`          // of the last
	Keeps      bool      `json:"keeps"`           // each agent has the state that its trainer left
	Again      bool      `json:"again,omitempty"` // its samples are passed over, and were trained again as training went back
}

// exited hears that a trainer ended: as it was to, which is no failure, or by a fault of its own in a step of the plan in force. Such a
// fault counts once the step to go on from is known.
func (m *Machine) exited(exit events.Exit) {
	if gone := m.state.known(exit.Node); gone != nil && gone.Incarnation == exit.Incarnation {
		gone.Wished = exit.Expected
	}
	if m.state.Missed[exit.Node] == exit.Incarnation && !exit.Hangs {
		delete(m.state.Missed, exit.Node)
	}
	known := &m.state.Poison
	if exit.Step == nil || m.state.Plan == nil || !m.state.trusted(exit.Node, exit.Incarnation) || !m.placed(exit.Node) {
		return
	}
	m.begun(*exit.Step)
	if known.Ends == nil || len(known.Ends) >= events.MostNodes {
		known.Ends = map[string]stepEnd{}
	}
	member, _ := m.state.Plan.Member(exit.Node)
	known.Ends[exit.Node] = stepEnd{Step: *exit.Step, Places: placesOf(member), Reason: inShort(exit.Reason), Keeps: exit.Keeps}
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
// those that training can have come to. A node that has made the step behind one shows that all have made that one: it ends nobody.
func (m *Machine) countEnds(resume uint64) {
	known := &m.state.Poison
	if m.state.Plan == nil || len(known.Suspects)+len(known.Ends) == 0 {
		return
	}
	latest, _ := m.reached()
	latest = max(resume, latest)
	made, _ := protocol.Reached(m.told(), m.state.Plan.ResumeStep, 0, 0)
	maps.DeleteFunc(known.Suspects, func(step uint64, _ *suspect) bool { return step < resume || step+1 < made })
	for _, node := range slices.Sorted(maps.Keys(known.Ends)) {
		end := known.Ends[node]
		again := m.isSkipped(end.Step)
		if end.Step < resume || end.Step > latest || again && end.Step == resume { // training goes on behind what is passed over
			continue
		}
		suspect := m.suspect(end.Step)
		suspect.Again = again
		suspect.note(node, end, m.state.Plan)
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

// note counts one that ended. All who do under one plan are one round: the first may have ended the others. So a round in which nobody
// ended who had not before counts only where it ended all who train.
func (s *suspect) note(node string, end stepEnd, plan *events.Plan) {
	if s.Generation != plan.Generation {
		s.Generation, s.Round, s.Counted = plan.Generation, nil, false
	}
	if len(s.Died) == 0 {
		s.Places = end.Places
	}
	s.Places = slices.DeleteFunc(slices.Clone(s.Places), func(place string) bool { return !slices.Contains(end.Places, place) })
	s.Reason, s.Keeps = end.Reason, s.Keeps && end.Keeps
	isNew := addNamed(&s.Died, node)
	addNamed(&s.Round, node)
	if all := min(len(plan.HoldsOfAll()), mostNamed); !s.Counted && (isNew || len(s.Round) >= all) {
		s.Rounds, s.Counted = s.Rounds+1, true
	}
}

// addNamed adds a node to those that are remembered, and reports whether it was not there and has a place.
func addNamed(nodes *[]string, node string) bool {
	if slices.Contains(*nodes, node) || len(*nodes) >= mostNamed {
		return false
	}
	*nodes = append(*nodes, node)
	return true
}

// poisoned has the step from which training would go on, or one not far from it, held where it seems to end whoever makes it. It reports
// whether it did. It does not if training begins: nothing was made that a node could lose.
func (m *Machine) poisoned(resume uint64) bool {
	if m.begins() {
		return false
	}
	m.countEnds(resume)
	known := &m.state.Poison
	for _, step := range slices.Sorted(maps.Keys(known.Suspects)) {
		suspect := known.Suspects[step]
		switch {
		case suspect.Again && step > resume:
			m.putOnHold(step, suspect, m.whyAgain(step, resume, suspect))
			m.ends(known.Why)
			m.stuck(known.Why)
			return true
		case m.endsAll(suspect):
			m.putOnHold(step, suspect, m.whyHeld(step, suspect))
			m.ends(known.Why)
			m.stuck(known.Why)
			return true
		}
		if wait := m.alone(suspect); wait > 0 {
			reason := events.Brief(fmt.Sprintf("the trainer of %s ended in step %d, and what it held is lost. The last holder of the layers "+
				"waits for another node for %.0f s. It ended by: %s", suspect.Died[0], step, wait, suspect.Reason))
			m.ends(reason)
			m.stuckFor(wait, reason)
			return true
		}
	}
	return false
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

// alone returns for how many seconds the last one that is left, which the step has not ended, waits for another; 0: it need not, as in the
// first step: nothing was made that it could lose.
func (m *Machine) alone(s *suspect) float64 {
	fails := m.state.Unbegun || m.state.Failed[s.Died[0]].Count > 1
	left := m.state.after(m.state.Negotiation.Opening.Changes)
	if s.Keeps || fails || len(left) != 1 || slices.Contains(s.Died, left[0].Node) {
		return 0
	}
	return max(0, aloneSeconds-m.state.Heard.Sub(s.Since).Seconds())
}

// putOnHold has a step given to nobody.
func (m *Machine) putOnHold(step uint64, s *suspect, why string) {
	known := &m.state.Poison
	known.Holds++
	known.Held = &events.HeldStep{
		Hold: known.Holds, Step: step, Samples: m.samplesOf(step), Died: s.Died[:min(len(s.Died), events.MostDied)],
	}
	known.Why = events.Brief(why)
}

func (m *Machine) whyHeld(step uint64, s *suspect) string {
	return fmt.Sprintf("step %d is held with its %v: the trainers of %s ended in it, one after the other. Mend what ends "+
		"them, and run reknit step retry; or have its samples passed over by reknit step skip. The last ended by: %s", step,
		m.samplesOf(step), named(s.Died, itself), s.Reason)
}

// whyAgain tells of a step whose samples are passed over only where training goes on from it: a plan trains what lies before it first.
func (m *Machine) whyAgain(step, resume uint64, s *suspect) string {
	return fmt.Sprintf("step %d is held with its %v, which are passed over: training went back before it, the trainer of %s ended in it "+
		"again, and what it had made is lost, so that training would go on from step %d and end there again. Start another node, which "+
		"keeps what is made, or mend what ends trainers, and run reknit step retry. The last ended by: %s", step,
		m.samplesOf(step), named(s.Died, itself), resume, s.Reason)
}

// samplesOf returns those of the step after so many completed ones.
func (m *Machine) samplesOf(step uint64) events.Samples {
	batch := m.state.Plan.Data.GlobalBatch
	return events.Samples{First: m.state.Data.Position(step, batch), Count: batch}
}

// lacksRelease notes that nothing can be done while a step is held. It is said once, and at each retry.
func (m *Machine) lacksRelease() {
	if m.state.Hold.Active && m.cause.Kind != events.NegotiationOverdue {
		m.delayLeaves(func(node string) bool { return m.cause.Kind == events.LeaveRequested && m.cause.Subject == node })
		return
	}
	m.stuck(m.state.Poison.Why)
}
