package main

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/reknit/reknit/events"
	monitor "github.com/reknit/reknit/services/monitor/machine"
	negotiator "github.com/reknit/reknit/services/negotiator/machine"
)

// live is a cluster of a network's devices until its first plan: monitor, negotiator and planner, as they are, under one clock. Nodes
// state no site.
type live struct {
	network    network
	monitor    *monitor.Machine
	negotiator *negotiator.Machine
	now        time.Time
	heard      uint64
	request    events.PlanRequest // its job and nodes are how the cluster is asked for
	named      map[string]int
	opened     events.Event
	proposal   *events.Proposal // the last
	err        error            // the first
}

func (n network) begin(random *rand.Rand) *live {
	l := &live{
		network: n, monitor: monitor.New(monitor.Defaults("c")), now: time.Unix(1, 0),
		negotiator: negotiator.New(negotiator.Settings{Cluster: "c", StartNodes: n.grid.Pipelines * n.grid.Stages, AnswerTimeout: time.Hour}),
	}
	l.request, l.named = n.request(random, stated)
	return l
}

// say logs an event and gives it to whoever hears it.
func (l *live) say(event events.Event) {
	l.heard++
	event.Logged, event.Sequence = l.now, l.heard
	switch event.Kind {
	case events.NegotiationOpened:
		l.opened = event
	case events.PlanRequested:
		l.hear(planner.Handle(event))
	case events.PlanProposed:
		proposal, err := events.Open[events.Proposal](event)
		l.proposal, l.err = &proposal, cmp.Or(l.err, err)
	}
	if event.Source != "/monitor" {
		l.hear(l.monitor.Handle(event))
	}
	if event.Source != "/negotiator" {
		l.hear(l.negotiator.Handle(event))
	}
}

func (l *live) hear(said []events.Event, err error) {
	l.err = cmp.Or(l.err, err)
	for _, event := range said {
		l.say(event)
	}
}

func (l *live) first(kind events.Kind, node string, payload events.Payload) {
	l.say(events.Speaker{Source: "/node/" + node, Cluster: "c"}.First(l.now, fmt.Sprint(l.heard), kind, node, payload))
}

func (l *live) join(node events.Device) {
	l.first(events.JoinRequested, node.Node, &events.Join{
		Node: node.Node, Incarnation: node.Incarnation, Address: node.Address, MemoryBytes: node.MemoryBytes, Job: l.request.Job,
	})
}

// consent has all members accept the change that was opened last.
func (l *live) consent() {
	opening, err := events.Open[events.Opening](l.opened)
	l.err = cmp.Or(l.err, err)
	for _, member := range opening.Members {
		l.first(events.Consented, member.Node, &events.Consent{
			Negotiation: opening.Negotiation, Node: member.Node, Incarnation: member.Incarnation, Accepted: true,
			Holdings: []events.Holding{{Units: events.Range{End: len(l.request.Job.Layers)}, Steps: []uint64{0}, Current: true}},
		})
	}
}

// probe measures a link so many times by a share that scatters, as the monitor has agents do.
func (l *live) probe(random *rand.Rand, from, to string, times int, scatter float64) {
	a, b := l.named[from], l.named[to]
	for range times {
		l.now = l.now.Add(time.Millisecond)
		answer := events.ProbeAnswer{Node: from, Incarnation: "a", Measured: &events.Measurement{
			From: from, To: to,
			RoundTripSeconds:        2 * l.network.grid.Network.DelaySeconds[a][b] * (1 + scatter*random.NormFloat64()),
			BandwidthBytesPerSecond: l.network.grid.Network.BytesPerSecond[a][b] * (1 + scatter*random.NormFloat64()),
		}}
		l.hear(l.monitor.Probed(monitor.Ask{Node: from, Target: to, Bytes: 256 << 10}, &answer, false, l.now), nil)
	}
}

// livePlanned is DT-FM's cost, by the links as they are, of the plan of a live cluster each of whose links was probed five times. A
// node too many is there until then: who joins last is not measured before the first plan is asked for.
func (n network) livePlanned(random *rand.Rand) (float64, error) {
	l := n.begin(random)
	other := l.request.Nodes[0]
	other.Node = "other"
	l.join(other)
	for _, node := range l.request.Nodes {
		l.join(node)
	}
	for _, from := range l.request.Nodes {
		for _, to := range l.request.Nodes {
			if from.Node != to.Node {
				l.probe(random, from.Node, to.Node, 5, 0.05)
			}
		}
	}
	l.proposal = nil
	l.first(events.LeaveRequested, other.Node, &events.Leave{Node: other.Node})
	l.consent()
	if l.proposal == nil {
		l.err = cmp.Or(l.err, errors.New("the planner was not asked"))
	}
	if l.err != nil {
		return 0, l.err
	}
	return n.costOf(l.proposal, l.named), nil
}
