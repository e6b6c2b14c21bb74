package world

import (
	"time"

	"github.com/reknit/reknit/events"
	monitor "github.com/reknit/reknit/services/monitor/machine"
)

// pulse sends a heartbeat, again and again.
func (p *process) pulse(suspicions ...events.Suspicion) {
	p.beat.Number++
	beat := p.beat
	beat.Node, beat.Incarnation, beat.Generation, beat.Suspicions = p.node.name, p.incarnation, p.generation, suspicions
	beat.Phase, beat.Script = p.phase(), p.rests()
	if beat.Between = beat.Phase == events.PhaseBetween; beat.Between {
		beat.Phase = ""
	}
	if p.isHeard(p.node.name) {
		p.World.hear(bends(p, pulses, beat))
	}
	if len(suspicions) == 0 {
		p.listens()
		p.after(pulseEvery, p.pulseAgain)
		if p.isHeard(p.node.name) {
			p.do(p.agent.DigestedAgain(p.time()))
		}
	}
}

// phase is what a trainer tells of its step. In a pipeline it has many waits in one: who gets on tells nothing.
func (p *process) phase() string {
	c := p.collective
	switch {
	case p.hung && p.node.between:
		return events.PhaseBetween
	case c == nil || !c.places.replicas && c.getsOn(p):
		return ""
	case c.places.replicas && !c.passedBy(p.node.name) || !c.places.replicas && p.hung:
		return events.PhaseComputing
	}
	return events.PhaseWaiting
}

func staged(pipeline events.Pipeline) bool { return len(pipeline.Stages) > 1 }

const pulseEvery = 500 * time.Millisecond

// hear brings a heartbeat to the monitor that runs; nobody keeps it for the next.
func (w *World) hear(pulse events.Pulse) {
	if i := w.services["monitor"].last(); i != nil {
		beat := w.heartbeat()
		beat.pulse, beat.to = pulse, i
		w.after(w.latency(), beat.arrive)
	}
}

// heartbeat is one that is under way. It is used again: a thousand nodes send seven million an hour.
type heartbeat struct {
	pulse  events.Pulse
	to     *instance
	came   time.Time
	arrive func()
	take   func(now time.Time) []events.Event
}

func (w *World) heartbeat() *heartbeat {
	if last := len(w.heartbeats) - 1; last >= 0 {
		beat := w.heartbeats[last]
		w.heartbeats = w.heartbeats[:last]
		return beat
	}
	beat := &heartbeat{}
	beat.take = func(now time.Time) []events.Event {
		defer func() { w.heartbeats = append(w.heartbeats, beat) }()
		return beat.to.machine.(monitoring).Pulse(beat.pulse, w.time().Sub(beat.came), now)
	}
	beat.arrive = func() {
		if !beat.to.dead {
			beat.came = w.time()
			beat.to.input(beat.take)
		}
	}
	return beat
}

// sendProbes does what the monitor's shell does: it sends the probes that the machine wants.
func sendProbes(i *instance) {
	m := i.machine.(monitoring)
	for _, ask := range m.Asks() {
		answer, gone, wait := i.probe(ask)
		i.after(wait, func() {
			if !i.dead {
				i.input(func(now time.Time) []events.Event { return m.Probed(ask, answer, gone, now) })
			}
		})
	}
}

// unanswered is the answer of who tried a node in vain.
func (w *World) unanswered(answer *events.ProbeAnswer, ask monitor.Ask) (*events.ProbeAnswer, bool, time.Duration) {
	target := w.byName(ask.Target).process
	switch {
	case !w.direct(ask.Node, ask.Target):
		answer.Error, answer.Finding = "no connection within 2 s", events.FoundUnreachable
	case target == nil:
		answer.Error, answer.Finding = "connection refused", events.FoundRefused
		return answer, false, w.latency()
	default:
		answer.Error, answer.Finding = "no answer within 2 s", events.FoundStalled
	}
	return answer, false, 2 * time.Second
}

const (
	lifeProbeWait = 300 * time.Millisecond
	linkProbeWait = 3 * time.Second
)

// probe asks a node for a sign of life or to measure a link, and says how long the answer takes.
func (w *World) probe(ask monitor.Ask) (answer *events.ProbeAnswer, gone bool, wait time.Duration) {
	p := w.byName(ask.Node).process
	switch {
	case !w.hub.away() && !w.isAlone(ask.Node) && (p == nil || w.dropped[ask.Node]):
		return nil, true, w.latency()
	case !w.toHub(ask.Node) || p == nil || p.paused:
		if ask.Target != "" {
			return nil, false, linkProbeWait
		}
		return nil, false, lifeProbeWait
	}
	answer = &events.ProbeAnswer{Node: ask.Node, Incarnation: p.incarnation}
	if ask.Target == "" {
		return answer, false, w.latency()
	}
	measured, ok := p.measured(ask.Target)
	if !ok {
		return w.unanswered(answer, ask)
	}
	measured = bends(p, measurements, measured)
	answer.Measured = &measured
	return answer, false, w.latency()
}
