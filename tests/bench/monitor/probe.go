package main

import (
	"fmt"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine"
)

// As the shell of the monitor and the agent have them, in seconds.
const (
	lifeWait  = 0.3
	linkWait  = 3.0
	probeTime = 2.0 // after which an agent gives up a measurement
)

// probe makes a probe that the machine wants, and brings back what comes of it.
func (w *world) probe(ask machine.Ask) {
	n := w.byName(ask.Node)
	took, reached := w.RoundTrip(w.random, n.index, w.now)
	switch {
	case n.dead && reached:
		w.answer(took, ask, nil, true)
	case n.dead || n.dark || !reached || w.stalled(n):
		wait := lifeWait
		if ask.Target != "" {
			wait = linkWait
		}
		w.answer(wait, ask, nil, false)
	case ask.Target == "":
		w.answer(took, ask, &events.ProbeAnswer{}, false)
	default:
		answer, long := w.try(n, w.byName(ask.Target))
		w.answer(took+long, ask, answer, false)
	}
}

// try is what a node finds that tries another, and how long it takes.
func (w *world) try(n, target *node) (answer *events.ProbeAnswer, seconds float64) {
	long, reached := w.Between(w.random, n.index, target.index, w.now)
	stall, stalled := w.Stalls[target.index].At(w.now)
	switch {
	case !reached || target.dark || w.broken == events.PairOf(n.name, target.name):
		return &events.ProbeAnswer{Error: "no connection", Finding: events.FoundUnreachable}, probeTime
	case target.dead:
		return &events.ProbeAnswer{Error: "refused", Finding: events.FoundRefused}, long
	case stalled && stall.To > w.now+probeTime:
		return &events.ProbeAnswer{Error: "no answer", Finding: events.FoundStalled}, probeTime
	case stalled:
		long += stall.To - w.now
	}
	measured := &events.Measurement{
		From: n.name, To: target.name, RoundTripSeconds: long, BandwidthBytesPerSecond: events.AssumedBytesPerSecond,
	}
	return &events.ProbeAnswer{Measured: measured}, 2 * long
}

func (w *world) stalled(n *node) bool {
	_, is := w.Stalls[n.index].At(w.now)
	return is
}

func (w *world) answer(after float64, ask machine.Ask, answer *events.ProbeAnswer, gone bool) {
	if answer != nil {
		answer.Node, answer.Incarnation = ask.Node, fmt.Sprint("i", w.byName(ask.Node).incarnation)
	}
	w.at(w.now+after, func() {
		w.monitored(func() { w.said(w.machine.Probed(ask, answer, gone, w.time())) })
	})
}
