package world

import (
	"time"

	agent "github.com/reknit/reknit/services/agent/machine"
)

// abandon gives up the step under way. A trainer in a kernel that nothing interrupts comes to its boundary later. Until
// then its agent answers for it, if it can tell what the trainer holds.
func (p *process) abandon(within time.Duration) {
	p.haltForStep()
	for i, action := range p.work {
		if _, train := action.(agent.Train); train {
			p.work = append(p.work[:i:i], p.work[i+1:]...)
			p.later(0, func() { p.do(p.agent.Boundary(p.done)) })
			return
		}
	}
	if p.collective == nil {
		return
	}
	p.leaveStep()
	if p.node.kernel == 0 && !p.hung {
		return
	}
	given := p.given
	p.await(tellsSoon, given, p.agent.Late)
	p.await(within, given, func() []agent.Action { return p.agent.Hung(p.time()) })
	if p.node.freezes {
		p.do(p.agent.Frozen(p.state.holdings()))
	}
}

// leaveStep takes the trainer out of its step, and to its boundary as soon as it runs.
func (p *process) leaveStep() {
	p.haltForStep()
	p.collective.leave(p)
	p.collective = nil
	p.later(p.node.kernel, p.toBoundary)
}

func (p *process) toBoundary() {
	if p.hung {
		p.back = p.toBoundary
		return
	}
	p.atBoundary = true
	p.given++
	p.do(p.agent.Boundary(p.done))
}

// await tells the agent something after a while, unless the trainer has come to a boundary since.
func (p *process) await(wait time.Duration, given int, tell func() []agent.Action) {
	p.later(wait, func() {
		if p.given == given {
			p.do(tell())
		}
	})
}

// breakStep breaks the collective that a node is in, though everybody lives. Some of the others see it, too.
func (w *World) breakStep(n *node) {
	if n.process == nil || n.process.collective == nil {
		return
	}
	c := n.process.collective
	c.broken = true
	for _, other := range w.nodes {
		if p := c.in[other.name]; p != nil && (other == n || w.random.IntN(2) == 0) {
			p.later(w.latency(), func() { p.tellBroken(c) })
		}
	}
}

// tellBroken tells that the step cannot end, as soon as the trainer runs, and gives it up.
func (p *process) tellBroken(c *collective) {
	switch {
	case p.collective != c:
	case p.hung:
		p.back = func() { p.tellBroken(c) }
	default:
		p.do(p.agent.Broken(p.time(), "all-reduce timed out"))
		p.leaveStep()
	}
}

// breaking is how long after its beginning a step breaks where all of a node's do.
const breaking = 50 * time.Millisecond

// exit ends a trainer, but not the agent beside it, which says so. No peer sees a connection reset.
func (p *process) exit() {
	if p.paused {
		return
	}
	actions := p.agent.Exited(p.time(), "exit status 1", 1)
	p.end()
	p.sayLast(actions)
}

// startsAgain is how long a trainer's parent waits until it starts one that has ended again.
const startsAgain = time.Second

// restart does what `reknit agent run` does with a trainer that is stuck.
func (p *process) restart() {
	if p.dead || p.paused || p.stands != nil {
		return
	}
	p.tell(p.node.name, "dies because it hangs")
	p.exit()
	p.after(startsAgain, p.node.launcher(p.World))
}

func (w *World) hang(n *node) {
	if n.process != nil && n.process.stands == nil {
		n.process.hung = true
	}
}

func (w *World) unhang(n *node) {
	n.between = false
	for _, p := range n.processes() {
		if p.hung {
			p.unhang()
		}
	}
}

func (p *process) unhang() {
	p.hung = false
	if back := p.back; back != nil {
		p.back = nil
		back()
	}
	p.workOn()
	p.catchUp()
}

// stopped reports whether the trainer does not run.
func (p *process) stopped() bool { return p.paused || p.hung }
