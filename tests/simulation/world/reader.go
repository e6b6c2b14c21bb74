package world

import (
	"fmt"

	"github.com/reknit/reknit/events"
	agent "github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/tests/simulation/loop"
	"github.com/reknit/reknit/tests/simulation/stream"
)

// reader follows a stream.
type reader struct {
	*process
	follower *stream.Follower
	busy     bool
}

// read has all that live by the node's name look for messages.
func (n *node) read() {
	if n.process != nil {
		n.process.read()
	}
	for _, p := range n.unnamed {
		p.read()
	}
}

// read has the process look for messages.
func (p *process) read() {
	for _, r := range p.readers {
		r.next()
	}
}

// next brings the next message, in the stream's order.
func (r *reader) next() {
	if r.busy || r.dead {
		return
	}
	r.busy = true
	r.later(r.latency(), func() {
		if !r.hears(r.node.name) {
			r.later(connectAgain, func() { r.busy = false; r.next() })
			return
		}
		r.busy = false
		if stored := r.follower.Next(); stored != nil {
			if event := loop.Heard(stored); !r.agent.Ignores(event) {
				r.handle(event)
			}
			r.next()
		}
	})
}

// subjects are what the agent hears.
func (p *process) subjects() []string {
	var subjects []string
	for _, kind := range p.agent.Hears() {
		about := "*"
		if agent.Answers(kind) {
			about = p.node.name
		}
		subjects = append(subjects, events.EventSubject(cluster, kind, about))
	}
	return append(subjects, events.PlanSubject(cluster, "*"))
}

func (p *process) handle(event events.Event) {
	actions, err := p.agent.Handle(event)
	if err != nil {
		p.violation("%s cannot handle %s: %v", p.node.name, event.Kind, err)
	}
	p.do(actions)
}

func (p *process) reread(generation uint64) {
	p.later(p.latency(), func() {
		stored, err := p.hub.Plans.Last(events.PlanSubject(cluster, fmt.Sprint(generation)), p.fate(p.node.name))
		if err == nil && p.toHub(p.node.name) {
			p.handle(loop.Heard(&stored))
			return
		}
		p.later(connectAgain, func() { p.reread(generation) })
	})
}
