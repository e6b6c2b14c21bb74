package world

import "github.com/reknit/reknit/events"

// say publishes until the stream has the event, or the process has joined anew since. Events that are said at one time may
// be stored in any order. The newest of facts that are told again and again says all.
func (p *process) say(event events.Event) {
	switch event.Kind {
	case p.node.silent:
		return
	case events.TrainingDigested, events.PlanMeasured:
		p.tellFact(string(event.Kind), event)
		return
	}
	event = p.lied(event)
	incarnation := p.incarnation
	over := func() bool { return p.dead || p.incarnation != incarnation }
	p.push(p.bus, event, p.node.name, func() bool { return !p.paused && p.online(p.node.name) }, over)
}

// tellFact says what is told of this node again and again, as services/agent does: one thing after the other, and of what waits the newest.
func (p *process) tellFact(about string, event events.Event) {
	if event.Kind == "" || event.Kind == p.node.silent { // an earlier build says nothing of parts
		return
	}
	waiting := p.facts[about]
	p.facts[about] = append(waiting[:min(1, len(waiting))], p.lied(event))
	if len(waiting) == 0 {
		p.sayFact(about)
	}
}

func (p *process) sayFact(about string) {
	said, incarnation := p.bus.Publish(p.facts[about][0]), p.incarnation
	over := func() bool {
		isSaid := said.Done() && said.Err == nil
		if !p.dead && (isSaid || p.incarnation != incarnation) {
			if p.facts[about] = p.facts[about][1:]; len(p.facts[about]) > 0 {
				p.sayFact(about)
			}
		}
		return p.dead || isSaid || p.incarnation != incarnation
	}
	p.pushOn(said, p.node.name, func() bool { return !p.paused && p.online(p.node.name) }, over, func() { p.sayFact(about) })
}
