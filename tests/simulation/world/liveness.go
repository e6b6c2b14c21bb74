package world

import (
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/tests/invariants"
	"github.com/reknit/reknit/tests/simulation/stream"
)

// patience is for how long training may stand still once all faults are over: a node that restarted again and again
// waits for up to five minutes. A cluster that holds is tried again every 30 s, and a transfer is given up after 30 s.
const patience = 6 * time.Minute

// heal mends the network and resumes whoever was stopped. The dead stay dead.
func (w *World) heal() {
	w.tell("FAULT", "all is mended")
	w.network = newNetwork()
	for _, n := range w.nodes {
		n.slowness, n.storing, n.kernel, n.breaks = 1, 0, 0, false
		w.unhang(n)
		w.resume(n)
	}
	for _, name := range serviceNames {
		s := w.services[name]
		s.dies = death{}
		for _, i := range slices.Clone(s.running) {
			i.resume()
		}
	}
	clear(w.hub.odds)
	for _, bound := range w.hub.stores() {
		bound(0)
	}
	if w.hub.State() != stream.Up {
		w.hubIsBack()
	}
}

// goOn lets time pass until everybody who lives trains, or is bound to stand still because what is missing is nowhere.
func (w *World) goOn() (held bool) {
	from := w.newest
	for end := w.now + patience; w.now < end; {
		w.Run(time.Second)
		if w.whatIsMissing(from+3) == "" {
			return false
		}
		if w.now > end-patience+time.Minute && !w.recoverable() {
			return true
		}
	}
	if !w.recoverable() {
		return true
	}
	w.violation("training does not go on %v after the last fault, though all state is there: %s", patience, w.whatIsMissing(from+3))
	return false
}

// whatIsMissing says why not everybody who lives trains under the newest plan, beyond a step; empty where all do.
func (w *World) whatIsMissing(beyond uint64) string {
	plans := w.hub.plans()
	if len(plans) == 0 {
		return "there is no plan"
	}
	plan, err := events.Open[events.Plan](plans[len(plans)-1])
	if err != nil {
		return err.Error()
	}
	placed := 0
	for _, n := range w.nodes {
		member, named := plan.Member(n.name)
		p := n.process
		switch {
		case p == nil && named:
			return n.name + " is dead, and the plan names it"
		case p == nil:
			continue
		case named && member.Incarnation != p.incarnation:
			return "the plan names " + n.name + " as " + member.Incarnation
		case !named:
			return n.name + " lives, and the plan does not name it"
		case p.agent.Snapshot().Membership == "leaving":
			return n.name + " asked to leave, and the plan names it"
		}
		if _, trains := plan.Holds(n.name); !trains {
			continue
		}
		placed++
		if p.generation != plan.Generation || p.done < beyond {
			return n.name + " does not train under the newest plan"
		}
	}
	if placed == 0 && w.living() > 0 {
		return "nobody trains"
	}
	return ""
}

func (w *World) living() int {
	living := 0
	for _, n := range w.nodes {
		if n.process != nil {
			living++
		}
	}
	return living
}

// newestPlan is nil where there is none.
func (w *World) newestPlan() *events.Plan {
	plans := w.hub.plans()
	if len(plans) == 0 {
		return nil
	}
	plan, err := plans[len(plans)-1].Read()
	if err != nil {
		return nil // see checkStored
	}
	return plan.(*events.Plan)
}

func (w *World) generation() uint64 { return uint64(len(w.hub.plans())) }

// judge compares all that is trained with the oracle, and the log with what must never happen, at the end of a run.
func (w *World) judge() {
	for _, n := range w.nodes {
		if n.process == nil {
			continue
		}
		for unit, trained := range n.process.state.trained {
			if newest := n.process.state.kept[unit]; trained && newest[0].value != w.job.value(unit, newest[0].step) && !w.spoiled {
				w.violation("%s has unit %d at step %d other than undisturbed training", n.name, unit, newest[0].step)
			}
		}
	}
	for _, violation := range invariants.Of(w.hub.log[w.hub.Events], w.hub.log[w.hub.Plans]).Check() {
		if !w.spoiled || violation.Invariant != invariants.OneDigest.Says { // which is what a spoiled copy breaks
			w.violation("%s", violation)
		}
	}
}
