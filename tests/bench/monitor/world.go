package main

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine"
	"github.com/reknit/reknit/tests/bench/monitor/wan"
)

const (
	cluster     = "wan"
	beatSeconds = 1.0
	tickSeconds = 0.1 // as in services/monitor
)

// world is the monitor's machine and the detectors of the field on the network of a schedule, in virtual time.
type world struct {
	*wan.Schedule
	random    *rand.Rand
	now       float64
	queue     queue
	nodes     []*node
	machine   *machine.Machine
	others    []*baseline
	ours      found
	training  training
	fault     *fault // under way; nil for none
	broken    events.Pair
	negotiate int // how many times the nodes were committed
}

// node is one node as it really is.
type node struct {
	index       int
	name        string
	incarnation int
	number      uint64
	dark        bool    // its host is gone
	dead        bool    // its process is gone
	arrived     float64 // when its last heartbeat comes to the hub: they come in order
	lost        bool    // the machine has given it up
}

func newWorld(seed uint64, seconds float64, calm bool) *world {
	settings := machine.Defaults(cluster)
	settings.Detector.PulseSeconds, settings.Detector.TickSeconds = beatSeconds, tickSeconds
	w := &world{
		Schedule: wan.Draw(seed, seconds, calm), random: rand.New(rand.NewPCG(seed, 6)),
		machine: machine.New(settings), others: baselines(wan.Nodes),
	}
	for i := range wan.Nodes {
		n := &node{index: i, name: fmt.Sprintf("n%03d", i)}
		w.nodes = append(w.nodes, n)
		w.join(n)
		w.at(w.random.Float64()*beatSeconds, func() { w.beat(n) })
	}
	w.commit()
	w.at(tickSeconds, w.tick)
	return w
}

// run lets so much time pass.
func (w *world) run(seconds float64) {
	for len(w.queue.happenings) > 0 && w.queue.happenings[0].at <= seconds {
		next := heap.Pop(&w.queue).(happening)
		w.now = next.at
		next.do()
	}
}

func (w *world) time() time.Time {
	return time.Unix(1e9, 0).Add(time.Duration(w.now * float64(time.Second)))
}

// at has something happen at a moment.
func (w *world) at(t float64, do func()) {
	w.queue.made++
	heap.Push(&w.queue, happening{max(t, w.now), w.queue.made, do})
}

// monitored has the monitor take something, once it is not stalled itself.
func (w *world) monitored(do func()) {
	if stall, is := w.Monitor.At(w.now); is {
		w.at(stall.To, do)
		return
	}
	do()
}

func (w *world) tick() {
	if stall, is := w.Monitor.At(w.now); is {
		w.at(stall.To, w.tick)
		return
	}
	w.said(w.machine.Tick(w.time()))
	w.at(w.now+tickSeconds, w.tick)
}

// beat sends a heartbeat, again and again while the process lives.
func (w *world) beat(n *node) {
	if n.dead || n.dark {
		return
	}
	if stall, is := w.Stalls[n.index].At(w.now); is {
		w.at(stall.To, func() { w.beat(n) })
		return
	}
	w.send(n)
	w.at(w.now+beatSeconds, func() { w.beat(n) })
}

// send sends a heartbeat, with suspicions where the node has any.
func (w *world) send(n *node, suspicions ...events.Suspicion) {
	n.number++
	pulse := events.Pulse{
		Node: n.name, Incarnation: fmt.Sprint("i", n.incarnation), Number: n.number, Suspicions: suspicions,
		Generation: w.training.generation, StepSeconds: stepSeconds,
	}
	pulse.Step, pulse.Phase = w.training.tell(w.now, n.index)
	n.arrived = max(n.arrived, w.Arrival(w.random, n.index, w.now))
	w.at(n.arrived, func() { w.monitored(func() { w.hear(n, pulse) }) })
}

func (w *world) hear(n *node, pulse events.Pulse) {
	if pulse.Incarnation != fmt.Sprint("i", n.incarnation) {
		return
	}
	for _, other := range w.others {
		other.hear(w.now, n.index)
	}
	w.said(w.machine.Pulse(pulse, 0, w.time()))
	if n.lost && !n.dead && !n.dark {
		w.rejoin(n) // it was given up, hears so, and is back
	}
}

// rejoin brings a node back as another incarnation.
func (w *world) rejoin(n *node) {
	beats := n.dead || n.dark
	n.incarnation, n.number, n.dead, n.dark, n.lost = n.incarnation+1, 0, false, false, false
	w.join(n)
	w.commit()
	if beats {
		w.at(w.now+w.random.Float64()*beatSeconds, func() { w.beat(n) })
	}
}

var job = events.Job{
	Digest: events.Digest(nil), Layers: []events.LayerProfile{{ParameterBytes: 1}}, GlobalBatch: 1, MicroBatch: 1,
}

func (w *world) join(n *node) {
	w.tell("/node/"+n.name, events.JoinRequested, n.name, &events.Join{
		Node: n.name, Incarnation: fmt.Sprint("i", n.incarnation), Address: n.name + ":1", MemoryBytes: 1, Job: job,
		Site: fmt.Sprint("s", wan.SiteOf(n.index)),
	})
}

// commit makes all who live the members of a plan.
func (w *world) commit() {
	w.negotiate++
	id := fmt.Sprint("g", w.negotiate)
	opening := &events.Opening{Negotiation: id, Generation: uint64(w.negotiate),
		Changes: []events.Change{{Kind: events.ChangeJoin, Node: "x"}}}
	for _, n := range w.nodes {
		if !n.lost {
			opening.Members = append(opening.Members,
				events.Member{Node: n.name, Incarnation: fmt.Sprint("i", n.incarnation), Address: n.name + ":1"})
		}
	}
	w.tell("/negotiator", events.NegotiationOpened, id, opening)
	w.tell("/negotiator", events.Committed, id,
		&events.Commitment{Negotiation: id, Generation: uint64(w.negotiate), PlanDigest: events.Digest(nil)})
}

// tell has the machine hear an event.
func (w *world) tell(source string, kind events.Kind, subject string, payload events.Payload) {
	speaker := events.Speaker{Source: source, Cluster: cluster}
	event := speaker.First(w.time(), fmt.Sprint(w.now, " ", w.queue.made), kind, subject, payload)
	w.handle(event)
}

func (w *world) handle(event events.Event) {
	event.Logged = w.time()
	said, err := w.machine.Handle(event)
	if err != nil {
		panic(err) // the bench says what makes no sense
	}
	w.said(said)
}

// said takes what the machine says, has it hear its own words, and makes its probes.
func (w *world) said(said []events.Event) {
	for _, event := range said {
		switch event.Kind {
		case events.NodeLost:
			w.lost(w.byName(event.Subject))
			w.handle(event)
		case events.LinkLost:
			w.linkLost()
			w.handle(event)
		case events.LinkRestored:
			w.handle(event)
		}
	}
	for _, ask := range w.machine.Asks() {
		w.probe(ask)
	}
}

func (w *world) byName(name string) *node {
	var index int
	_, _ = fmt.Sscanf(name, "n%d", &index) // a name that the world made
	return w.nodes[index]
}

// happening is something that happens at a time; those of one time happen in the order in which they were made.
type happening struct {
	at   float64
	made int
	do   func()
}

type queue struct {
	happenings
	made int
}
