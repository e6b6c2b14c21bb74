package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	agent "github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/outlive"
)

// leftover is what an agent keeps of a script that has ended, for the next script of its node.
type leftover struct {
	state      *state
	generation uint64        // of the plan under which it was trained
	plan       *events.Plan  // that plan
	turn       time.Duration // that its agent last waited before it took part without a script
}

// outlives returns what the agent keeps of a script that ends now, nil for nothing: by the product's rule, of each unit the version that
// lies in its files. An update changes them in place, and leaves no version before.
func (p *process) outlives() *leftover {
	if p.earlier || p.state.fresh || p.generation == 0 {
		return nil
	}
	script := outlive.Script{Phase: outlive.Between, Completed: p.done, Index: p.done, Stepping: p.collective != nil}
	if script.Stepping {
		script.Phase = outlive.InStep
		if slices.Contains(p.reducedIn, true) {
			script.Phase = outlive.Applying
		}
	}
	_, whole := script.Whole()
	left, any := newState(p.job), false
	left.fresh = false
	for unit, kept := range p.state.kept {
		switch aside := p.state.aside[unit]; {
		case aside != nil && (len(kept) == 0 || kept[0].step < aside.step):
			left.kept[unit] = []version{*aside}
		case len(kept) > 0 && (whole || !p.state.trained[unit]):
			left.kept[unit] = kept[:1:1]
		}
		any = any || left.kept[unit] != nil
	}
	if !any {
		return nil
	}
	return &leftover{state: left, generation: p.generation, plan: p.plan}
}

// inherit gives a new script what the agent beside it has kept.
func (p *process) inherit(left *leftover) {
	if left != nil {
		p.state, p.claimable = left.state, left.generation
	}
}

// scriptEnds ends a node's script, and starts another after a while.
func (w *World) scriptEnds(n *node, restart time.Duration) {
	if w.endScript(n) {
		w.after(restart, n.launcher(w))
	}
}

// endScript ends a node's script, as an exception in it does, and reports whether there was one. The agent lives, and so do snapshots.
func (w *World) endScript(n *node) bool {
	p := n.process
	if p == nil || p.paused || p.hung || p.stands != nil || len(n.unnamed) > 0 {
		return false
	}
	n.left = p.outlives()
	w.tell(n.name, "has no script any more, and its agent keeps %s", n.left)
	actions := p.agent.Failed(p.time(), "exit status 1", 1, false, n.left != nil)
	p.end()
	p.sayLast(actions)
	w.resetPeers(n)
	return true
}

// trained is the generation under which the next script's first state was trained; zero: that is a new one.
func (l *leftover) trained() uint64 {
	if l == nil {
		return 0
	}
	return l.generation
}

// past is the plan of that generation; nil where there is none.
func (l *leftover) past() *events.Plan {
	if l == nil {
		return nil
	}
	return l.plan
}

func (l *leftover) String() string {
	if l == nil {
		return "nothing"
	}
	return fmt.Sprintf("%v of generation %d", l.state.holdings(), l.generation)
}

// sayLast says what a trainer's end brings about.
func (p *process) sayLast(actions []agent.Action) {
	for _, action := range actions {
		if say, says := action.(agent.Say); says {
			p.push(p.bus, say.Event, p.node.name, func() bool { return p.online(p.node.name) }, func() bool { return false })
		}
	}
}

// deadly is a step at which scripts end.
type deadly struct {
	step   uint64
	sample uint64 // in the data: only whoever trains it ends
	all    bool   // whoever makes the step ends
}

// dies has the script end where the step that it begins is a deadly one.
func (p *process) dies() {
	deadly := p.deadly
	if deadly == nil || p.done != deadly.step && deadly.all {
		return
	}
	if deadly.all || p.trains(deadly.sample) {
		c := p.collective
		p.later(breaking, func() {
			if p.collective == c {
				p.scriptEnds(p.node, startsAgain)
			}
		})
	}
}

// trains reports whether the step that the process has begun has a sample in what it trains.
func (p *process) trains(sample uint64) bool {
	position := p.plan.SamplesAt(p.done)
	for _, samples := range shareOf(p.plan, p.placesIn(p.plan).dealt, p.node.name).samples {
		for _, part := range samples {
			if position+uint64(part.First) <= sample && sample < position+uint64(part.End) {
				return true
			}
		}
	}
	return false
}

// makeDeadly has scripts end at a step to come, or who trains the first sample of that.
func (w *World) makeDeadly(steps uint64, all bool) {
	step, plan := w.newest+steps, w.newestPlan()
	if plan == nil {
		return
	}
	w.deadly = &deadly{step: step, sample: plan.SamplesAt(step), all: all}
}

// renamed starts processes of a node one after the other, each by another name, as supervisors do where a name has the process's number in
// it: all but the last die soon.
func (w *World) renamed(n *node, times int) {
	w.kill(n)
	next := w.AddNode()
	next.site, next.host = n.site, n.host
	w.launch(next)
	if times > 1 {
		w.after(1500*time.Millisecond, func() { w.renamed(next, times-1) })
	}
}

// withScripts has scripts end beside their agents in every fifth seed. It draws by itself, so that what else a seed does is the same
// without.
func withScripts(seed uint64, nodes int, faults []Fault) []Fault {
	r := rand.New(rand.NewPCG(seed, 29))
	if r.IntN(5) > 0 {
		return faults
	}
	node := func() int { return 1 + r.IntN(nodes) }
	forms := []func() string{
		func() string { return fmt.Sprintf("script of n%d ends", node()) },
		func() string { return fmt.Sprintf("script of n%d ends for %ds", node(), 1+r.IntN(20)) },
		func() string { return fmt.Sprintf("scripts end %d steps on for %ds", r.IntN(20), 2+r.IntN(10)) },
		func() string { return fmt.Sprintf("sample %d steps on is bad for %ds", r.IntN(20), 2+r.IntN(10)) },
		func() string { return fmt.Sprintf("rename n%d %d", node(), 1+r.IntN(4)) },
	}
	for range 1 + r.IntN(3) {
		at := firstFault + time.Duration(r.Int64N(int64(lastFault-firstFault)))
		faults = append(faults, Fault{At: at.Truncate(time.Millisecond), Words: forms[r.IntN(len(forms))]()})
	}
	return faults
}
