package world

import (
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/fence"
	agent "github.com/reknit/reknit/services/agent/machine"
)

// unchanged is what `reknit agent run --unchanged` would do in a process's place, by the product's rule (services/agent/fence): it runs a
// script that writes files, and starts it anew under plans that change who trains. It changes nothing of the run.
type unchanged struct {
	script  *script // the last; nil: none was started
	scripts fence.Scripts
	hearing fence.Hearing
	turn    int    // places that it was given
	first   uint64 // generation of the plan of the first, those of lives before counted; zero: it was given none
}

// script is one run of it. Scripts of one plan write once all of them have found together, and until each ends.
type script struct {
	of     *process
	crew   []events.Member
	nodes  []events.Member // of the plan
	plan   uint64          // generation, those of lives before counted
	ends   time.Duration   // when it has ended; zero: nobody stops it
	writes bool
	frozen bool // it was: nobody can stop it then
}

func (s *script) ended(now time.Duration) bool { return s.ends > 0 && s.ends <= now }

// halts is how long a script takes to end that is asked to, by the world.
func (w *World) halts() time.Duration {
	return []time.Duration{100 * time.Millisecond, 5 * time.Second, fence.Grace}[w.job.seed%3]
}

// halt asks the script to end, which takes so long.
func (p *process) halt(within time.Duration) {
	s, ends := p.unchanged.script, p.now+max(within, 1)
	if s != nil && (s.ends == 0 || s.ends > ends) {
		s.ends = ends
	}
}

// haltForStep ends the script, or its wait for its turn, because the step is given up: another plan has it started.
func (p *process) haltForStep() {
	p.unchanged.turn++
	p.halt(p.halts())
}

// haltLast ends the script with its agent: at once where that dies, and in good order where it has left.
func (p *process) haltLast() {
	if p.unchanged.turn++; p.node.gone {
		p.halt(p.halts())
	} else {
		p.halt(0)
	}
}

// freeze stops a process, and its script with it, which nobody can end then.
func (p *process) freeze() {
	if p.paused = true; p.unchanged.script != nil {
		p.unchanged.script.frozen = true
	}
}

// takeUp gives the script its place in a plan that was adopted. It runs on if the crew is the same and no steps were given up.
func (p *process) takeUp(train agent.Train) {
	if !train.Switched {
		return
	}
	u, crew := &p.unchanged, train.Plan.Crew()
	var scripts []fence.Script
	for _, member := range crew {
		scripts = append(scripts, fence.Script{Node: member.Node, Incarnation: member.Incarnation})
	}
	isNamed := func(node string) bool { _, named := train.Plan.Member(node); return named }
	if !u.scripts.Adopt(scripts, isNamed, train.Abandoned, p.time()) {
		return
	}
	p.halt(p.halts())
	if u.turn++; u.first == 0 {
		u.first = p.World.before + train.Plan.Generation
	}
	turn := u.turn
	if placed := slices.ContainsFunc(crew, func(m events.Member) bool { return m.Node == p.node.name }); placed {
		p.meet(&script{of: p, crew: crew, nodes: train.Plan.Nodes, plan: p.World.before + train.Plan.Generation}, turn, u.scripts.Wait())
	}
}

// meet starts a script as soon as the one before has ended, and nobody who is reached may have an older one that runs.
func (p *process) meet(next *script, turn int, wait *fence.Wait) {
	u := &p.unchanged
	if u.turn != turn {
		return
	}
	for _, one := range wait.Round(p.time()) {
		wait.Hear(one.Node, p.asks(one.Node))
	}
	runs := u.script != nil && !u.script.ended(p.now)
	if runs || !wait.Over(p.time()) {
		p.later(fence.HearEvery, func() { p.meet(next, turn, wait) })
		return
	}
	u.script, u.hearing = next, fence.Hearing{Last: p.time()}
	p.World.scripted = append(p.World.scripted, next)
	p.World.findTogether(next)
}

// asks asks a node's agent whether it runs, be its place taken by others or not. One that has left stays until its script has ended.
func (p *process) asks(node string) fence.Answer {
	other := p.byName(node).process
	stays := slices.ContainsFunc(p.scripted, func(s *script) bool { return s.of.node.name == node && s.of.dead && !s.ended(p.now) })
	switch {
	case !p.direct(p.node.name, node), other != nil && other.paused && !stays:
		return fence.Silent
	case other == nil && !stays:
		return fence.Refuses
	}
	return fence.Answers
}

// listens has the script end whose node the hub does not hear.
func (p *process) listens() {
	if p.unchanged.hearing.CutOff(p.time(), p.hub.away() || p.toHub(p.node.name), fence.UnheardFor) {
		p.halt(p.halts())
	}
}

// findTogether has the scripts of a plan write once all of its crew run, and finds one of another plan that writes beside them.
func (w *World) findTogether(last *script) {
	w.scripted = slices.DeleteFunc(w.scripted, func(s *script) bool { return s.ended(w.now) })
	var crew []*script
	for _, s := range w.scripted {
		if s.plan == last.plan {
			crew = append(crew, s)
		}
	}
	if len(crew) < len(last.crew) {
		return
	}
	for _, s := range crew {
		s.writes = true
	}
	for _, other := range w.scripted {
		if other.writes && other.plan != last.plan && !other.frozen && !w.lies && w.mayAsk(other, crew) {
			w.violation("the script of %s writes under generation %d beside those of generation %d",
				other.of.node.name, other.plan, last.plan)
		}
	}
}

// mayAsk reports whether somebody of a crew knew of a script and reaches its node. One that nobody reaches, or of which nobody knows any
// more, is fenced by its generation alone.
func (w *World) mayAsk(s *script, crew []*script) bool {
	_, named := events.MemberOf(crew[0].nodes, s.of.node.name) // who hears of the plan ends its script
	return !named && slices.ContainsFunc(crew, func(other *script) bool {
		return other.of.unchanged.first <= s.plan && w.direct(other.of.node.name, s.of.node.name)
	})
}
