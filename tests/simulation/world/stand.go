package world

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/reknit/reknit/events"
	agent "github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/outlive"
)

// An agent waits as services/agent/local/holder.go does before it takes part without a script, and before it tries again.
const (
	scriptTime  = 15 * time.Second
	longestTurn = 5 * time.Minute
)

// standIn has the agent of a node take part without a script after a while, unless one has come, or a plan does without what it keeps.
func (w *World) standIn(n *node, pause time.Duration) {
	left := n.left
	if left == nil {
		return
	}
	w.after(pause, func() {
		switch {
		case n.left != left || n.process != nil: // a script has it, or it is lost
		case !w.needs(n):
			w.free(n)
		default:
			w.tell(n.name, "has no script, and its agent gives %s", left)
			left.turn = pause
			n.begin(w, left)
		}
	})
}

// needs reports whether others may need what an agent keeps.
func (w *World) needs(n *node) bool {
	plan := w.newestPlan()
	return plan == nil || outlive.Needed(n.left.generation, plan.Generation, len(plan.UnitsOf(n.name)) > 0, w.isHeld)
}

// free drops what an agent keeps, and finds a unit whose last healthy copy that is although the cluster says that it is held. Nobody
// knows yet of those who died a moment ago.
func (w *World) free(n *node) {
	w.tell(n.name, "keeps nothing of its last script any more")
	left := n.left
	n.left = nil
	for unit := range left.state.kept {
		if w.isHealthy(left.state, unit) && w.isHeld && !w.ended && w.reset == nil && !w.healthy(unit) && len(w.stains) == 0 && !w.hasSnapshot() {
			w.violation("%s drops what a script left, and no living process holds a healthy copy of unit %d any more", n.name, unit)
		}
	}
}

// standDown ends the part of an agent without a script, where a script begins: that has what is kept.
func (n *node) standDown() {
	if p := n.process; p != nil && p.stands != nil && !p.paused {
		n.left = p.stands
		p.end()
	}
}

// standsNoLonger hears that the part of an agent without a script is over. Units that others still need are given later.
func (p *process) standsNoLonger(end agent.End) {
	n := p.node
	n.left = p.stands
	p.end()
	if n.process != nil { // another process has the name
		n.left = nil
		return
	}
	if end.Left || end.Complete || p.ended {
		p.free(n)
		return
	}
	p.standIn(n, min(2*p.stands.turn, longestTurn))
}

// cannotTrain tells that no script is there for a plan that has the node train.
func (p *process) cannotTrain() {
	actions := p.agent.Exited(p.time(), "no script has come back", -1)
	n := p.node
	n.left = p.stands
	p.end()
	p.sayLast(actions)
	p.standIn(n, min(2*p.stands.turn, longestTurn))
}

// adoptsNothing leaves all as it is. The node asks to leave where a plan has it hold nothing: others hold what is kept.
func (p *process) adoptsNothing(adopt agent.Adopt) agent.Result {
	for unit := range events.Each(adopt.Units) {
		if _, held := p.state.find(unit, adopt.Step); !held {
			return agent.Failed{Task: adopt.Task, Reason: fmt.Sprintf("unit %d at step %d: there is no such version", unit, adopt.Step)}
		}
	}
	if len(adopt.Units) == 0 {
		p.later(0, func() { p.do(p.agent.Leave(p.time(), "no script has come back", 0)) })
	}
	p.done = adopt.Step
	return agent.Adopted{Task: adopt.Task}
}

// withHolder has a script end for good in every sixth seed, soon after which others may die, another one's script end, or a script come
// back. It draws by itself, so that what else a seed does is the same without. A fault of one node that stays is not drawn beside it: what
// one that came back claims may be false, and does not take the place of a silent one (seed 65 as it was drawn then).
func withHolder(seed uint64, nodes, layers int, faults []Fault) []Fault {
	r := rand.New(rand.NewPCG(seed, 37))
	if r.IntN(6) > 0 {
		return faults
	}
	at := firstFault + time.Duration(r.Int64N(int64(lastFault-firstFault)))
	node := 1 + r.IntN(nodes)
	add := func(wait time.Duration, words string) {
		faults = append(faults, Fault{At: min(at+wait, lastFault).Truncate(time.Millisecond), Words: words})
	}
	add(0, fmt.Sprintf("script of n%d is gone", node))
	soon := time.Duration(r.Int64N(int64(3 * time.Second)))
	switch r.IntN(4) {
	case 0:
		add(soon, fmt.Sprintf("kill holders of %d", r.IntN(layers)))
		add(10*soon, fmt.Sprintf("start n%d", nodes+1))
	case 1:
		add(soon, fmt.Sprintf("script of n%d is gone", 1+r.IntN(nodes)))
	case 2:
		add(10*soon, fmt.Sprintf("start n%d", node))
	}
	return faults
}
