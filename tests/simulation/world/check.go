package world

import (
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	agent "github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/shared/ledger"
	"github.com/reknit/reknit/tests/invariants"
)

// checkStored finds, in the log as it grows, a plan that could not go on from its step, or that is not the next.
func (w *World) checkStored(event events.Event) {
	payload, err := event.Read()
	if err != nil {
		w.violation("%s is not valid: %v", event.Kind, err)
		return
	}
	switch payload := payload.(type) {
	case *events.Join:
		if payload.Trained != nil && payload.Trained.Plan != "" {
			w.toldOf = max(w.toldOf, payload.Trained.Generation)
		}
	case *events.Commitment:
		w.wentBack, w.lost = payload.LostSteps > 0, payload
	case *events.NodeState:
		if event.Kind == events.NodeLost {
			w.missedAfterwards(event, payload)
			w.taken[incarnation{payload.Node, payload.Incarnation}] = true
		}
	case *events.CompleteSnapshot:
		w.noteComplete(payload)
	case *events.Hold:
		w.isHeld, w.heldFor = true, payload.Reason
		w.noteMissed(payload.Awaits)
		w.awaitsNewer = w.awaitsNewer || w.reset != nil && w.reset.Snapshots && len(payload.Awaits) > 0
		if w.held = payload.Step; w.held != nil && w.healed {
			w.after(operatorTakes, func() { w.release(false) })
		}
		w.undecided = len(w.stains) > 0 && (strings.Contains(payload.Reason, "no digest has more than half of them") ||
			strings.Contains(payload.Reason, "nobody can tell which are right"))
	case *events.Refusal:
		w.taken[incarnation{payload.Node, payload.Incarnation}] = true
	case *events.JobEnd:
		w.checkEnd(payload)
	case *events.JobStop:
		w.stopped = true
		w.checkStop(payload)
	case *events.StepDelay:
		w.checkRest(payload)
	case *events.JobReset:
		w.resetTold(payload)
	case *events.Divergence:
		w.checkDivergence(payload)
	case *events.Plan:
		w.checkPlan(payload)
	}
}

// operatorTakes is how long it takes until somebody tries a step that is held again, once what ended trainers in it is mended.
const operatorTakes = 10 * time.Second

// checkStop finds a node that ends with the state of an earlier step than the one at which training stops, and is not named.
func (w *World) checkStop(stop *events.JobStop) {
	plan := w.newestPlan()
	if w.lies || w.program != "" || plan == nil || plan.Generation != stop.Generation { // an earlier build names nobody
		return
	}
	for _, n := range w.nodes {
		if n.process == nil || n.process.dead || slices.Contains(stop.Behind, n.name) {
			continue
		}
		member, _ := plan.Member(n.name)
		if step := n.process.agent.Snapshot().Step; member.Incarnation == n.process.incarnation && step < stop.Step {
			w.violation("training stops after step %d, and %s has made %d", stop.Step, n.name, step)
		}
	}
}

// checkDivergence finds a holder that is told to be astray and has its unit right, where a single copy was spoiled.
func (w *World) checkDivergence(d *events.Divergence) {
	if w.lies || len(w.stains[d.Unit]) > 1 {
		return
	}
	right := digestOf(w.job.value(d.Unit, d.Step))
	for _, replica := range d.Replicas {
		if replica.Digest == right && slices.Contains(d.Minority, replica.Node) {
			w.violation("%s is told that its unit %d at step %d is astray, and it is right", replica.Node, d.Unit, d.Step)
		}
	}
}

// aheadOfAll is how many steps a plan may lie ahead of those who train when it is committed.
const aheadOfAll = 4

// checkPlan looks at a plan that is committed.
func (w *World) checkPlan(plan *events.Plan) {
	w.undecided, w.isHeld, w.stopped, w.heldFor = false, false, false, ""
	if want := w.generation() + 1; plan.Generation != want {
		w.violation("generation %d is committed, expected %d", plan.Generation, want)
	}
	w.checkKind(plan)
	w.checkAnew(plan)
	w.planned = append(w.planned, ledger.Plan{
		Generation: w.before + plan.Generation, ResumeStep: plan.ResumeStep, Consumed: plan.Data.ConsumedSamples,
		GlobalBatch: uint64(plan.Data.GlobalBatch), Skipped: invariants.SkippedBy(plan),
	})
	if plan.ResumeStep > w.newest+aheadOfAll {
		w.violation("generation %d resumes at step %d; the newest step is %d", plan.Generation, plan.ResumeStep, w.newest)
	}
	w.checkLost(plan)
	if plan.ResumeStep+aheadOfAll < w.resumed {
		w.checkBack(plan)
	}
	w.resumed = plan.ResumeStep
	if w.begins { // what was made before is gone
		w.newest, w.begins = plan.ResumeStep, false
		w.beginLife(plan)
	}
	w.noteLife(plan)
}

// checkLost finds a commitment that tells of more lost steps than trainers ever made, unless it says that it is the most that can be.
func (w *World) checkLost(plan *events.Plan) {
	if w.lost == nil || w.lost.AtMost || w.lies || w.wiped {
		return
	}
	if told := plan.ResumeStep + w.lost.LostSteps; w.lost.LostSteps > 0 && told > w.newest+aheadOfAll {
		w.violation("generation %d goes back from step %d to %d, and no trainer has made more than %d", plan.Generation, told,
			plan.ResumeStep, w.newest)
	}
}

// checkBack finds a plan that goes back although those who take part have a newer step.
func (w *World) checkBack(plan *events.Plan) {
	newest, whole := w.wholeStep(func(p *process) bool {
		member, named := plan.Member(p.node.name)
		return named && member.Incarnation == p.incarnation
	})
	if whole && newest > plan.ResumeStep {
		w.violation("generation %d goes back to step %d, and its nodes have all of step %d",
			plan.Generation, plan.ResumeStep, newest)
	}
}

// checkTrain finds a trainer that works under two plans, goes back a generation, or trains what is not what the plan
// says it holds.
func (p *process) checkTrain(train agent.Train) {
	if train.Plan.Generation < p.generation && p.before == p.World.before {
		p.violation("%s goes back from generation %d to %d", p.node.name, p.generation, train.Plan.Generation)
	}
	for unit, trained := range p.state.trained {
		if trained && p.state.kept[unit][0].step != p.done {
			p.violation("%s trains step %d with unit %d at step %d", p.node.name, p.done, unit, p.state.kept[unit][0].step)
		}
	}
}

// unheard is for how long nobody can have heard that a process ended: a connection's reset takes as long to be told (seed 906).
const unheard = 20 * time.Millisecond

// discarding does what discards versions, and finds a unit whose last healthy copy is gone by it, unless another holder ended just now.
func (p *process) discarding(what string, do func()) {
	before := make([]bool, len(p.state.kept))
	for unit := range before {
		before[unit] = p.healthy(unit)
	}
	do()
	for unit, had := range before {
		ended, known := p.lastHeld[unit]
		isNews := known && p.now-ended < unheard
		if had && len(p.stains) == 0 && p.reset == nil && !p.World.healthy(unit) && !p.hasSnapshot() && !isNews {
			p.violation("%s %s, and no living process holds a healthy copy of unit %d any more", p.node.name, what, unit)
		}
	}
}

// healthy reports whether a process holds a unit as the oracle has it, be it verified and not adopted yet. A copy that
// the newest plan has left behind is none to go on from: all units were elsewhere at that plan's step, and those who
// trained them keep no version so old. The ability of a process to make step 0 counts before the first plan only.
func (p *process) healthy(unit int) bool { return p.isHealthy(p.state, unit) }

func (w *World) isHealthy(s *state, unit int) bool {
	right := func(v version) bool { return v.step+aheadOfAll >= w.resumed && v.value == w.job.value(unit, v.step) }
	if aside := s.aside[unit]; aside != nil && right(*aside) || slices.ContainsFunc(s.kept[unit], right) {
		return true
	}
	return s.fresh && (w.generation() == 0 || w.reset != nil)
}

// healthy reports whether any living process does: an agent that keeps what a script left is one.
func (w *World) healthy(unit int) bool {
	for _, n := range w.nodes {
		if slices.ContainsFunc(n.processes(), func(p *process) bool { return p.healthy(unit) }) ||
			n.left != nil && w.isHealthy(n.left.state, unit) {
			return true
		}
	}
	return false
}
