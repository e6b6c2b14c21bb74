package machine_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine"
)

const cluster = "test"

// world is a machine and nodes around it that answer its probes. Time is what the world says.
type world struct {
	generation uint64 // that nodes say they work under
	t          *testing.T
	machine    *machine.Machine
	now        time.Time
	nodes      map[string]*member
	said       []events.Event
	words      map[string][]byte // by id of what was said, ever
	asks       []machine.Ask
	broken     map[events.Pair]bool // links over which no probe comes
	band       float64              // bandwidth that probes measure
	silent     bool                 // nobody hears probes: the hub is away
	deaf       bool                 // nobody hears probes, but the hub hears heartbeats
	mute       string               // sends no heartbeats, but answers
	deafness   string               // hears no probes of the hub, but answers its peers
}

type member struct {
	incarnation string
	number      uint64
	dead        bool // its process is gone
	frozen      bool // it sends and answers nothing
	cut         bool // the hub and it do not hear each other, but its peers reach it
	dark        bool // and no connection to its host comes about, where it is frozen, too
}

func newWorld(t *testing.T, names ...string) *world {
	w := &world{
		t: t, machine: machine.New(machine.Defaults(cluster)), now: time.Unix(1000, 0),
		nodes: map[string]*member{}, words: map[string][]byte{}, broken: map[events.Pair]bool{}, band: 1e8,
	}
	for _, name := range names {
		w.join(name, "a")
	}
	w.commit("g1", nil, names...)
	w.pass(2 * time.Second)
	w.said = nil
	return w
}

var job = events.Job{
	Digest: events.Digest(nil), Layers: []events.LayerProfile{{ParameterBytes: 1}}, GlobalBatch: 1, MicroBatch: 1,
}

func (w *world) join(name, incarnation string) {
	w.nodes[name] = &member{incarnation: incarnation}
	site, _, _ := strings.Cut(name, "-") // a node of a site is named after it
	if site == name {
		site = ""
	}
	w.hear("/node/"+name, events.JoinRequested, name, &events.Join{
		Node: name, Incarnation: incarnation, Address: name + ":1", Site: site, MemoryBytes: 1, Job: job,
	})
}

func (w *world) hear(source string, kind events.Kind, subject string, payload events.Payload) {
	w.t.Helper()
	speaker := events.Speaker{Source: source, Cluster: cluster}
	event := speaker.First(w.now, fmt.Sprint(w.now.UnixNano()), kind, subject, payload)
	event.Logged = w.now
	said, err := w.machine.Handle(event)
	if err != nil {
		w.t.Fatal(err)
	}
	w.note(said)
}

func (w *world) commit(negotiation string, changes []events.Change, names ...string) {
	opening := &events.Opening{Negotiation: negotiation, Generation: 2,
		Changes: append(changes, events.Change{Kind: events.ChangeJoin, Node: "x"})}
	for _, name := range names {
		opening.Members = append(opening.Members,
			events.Member{Node: name, Incarnation: w.nodes[name].incarnation, Address: name + ":1"})
	}
	w.hear("/negotiator", events.NegotiationOpened, negotiation, opening)
	w.hear("/negotiator", events.Committed, negotiation,
		&events.Commitment{Negotiation: negotiation, Generation: 2, PlanDigest: events.Digest(nil)})
}

// note keeps what was said, lets the machine hear its own words, and answers its probes.
func (w *world) note(said []events.Event) {
	for _, event := range said {
		row, _ := event.Kind.Row()
		if payload := row.New(); event.Source != "/monitor" || !events.Token(event.Subject) || payload == nil {
			w.t.Errorf("said %+v", event)
		}
		if before, known := w.words[event.ID]; known && !bytes.Equal(before, event.Data) {
			w.t.Errorf("said %s of %s with the id of other words: %s and %s", event.Kind, event.Subject, before, event.Data)
		}
		w.words[event.ID] = event.Data
		w.said = append(w.said, event)
		w.checkLoss(event)
		if slices.Contains(w.machine.Hears(), event.Kind) {
			if again, err := w.machine.Handle(event); err != nil || len(again) > 0 {
				w.t.Errorf("its own %s made it say %v, %v", event.Kind, again, err)
			}
		}
	}
	for _, ask := range w.machine.Asks() {
		w.asks = append(w.asks, ask)
		answer, gone := w.answer(ask)
		w.note(w.machine.Probed(ask, answer, gone, w.now))
	}
}

// checkLoss fails when a living node is lost on evidence, which only the dead give.
func (w *world) checkLoss(event events.Event) {
	if event.Kind != events.NodeLost {
		return
	}
	lost, err := events.Open[events.NodeState](event)
	node := w.nodes[event.Subject]
	if err != nil || strings.Contains(lost.Reason, "reset") && !node.dead && node.incarnation == lost.Incarnation {
		w.t.Errorf("%s lives, lost: %+v, %v", event.Subject, lost, err)
	}
}

func (w *world) answer(ask machine.Ask) (answer *events.ProbeAnswer, gone bool) {
	node := w.nodes[ask.Node]
	switch {
	case w.silent || w.deaf || w.deafness == ask.Node || node != nil && (node.frozen || node.cut):
		return nil, false
	case node == nil || node.dead:
		return nil, true
	}
	answer = &events.ProbeAnswer{Node: ask.Node, Incarnation: node.incarnation}
	target := w.nodes[ask.Target]
	if ask.Target == "" {
		return answer, false
	}
	if finding := w.finding(target, events.PairOf(ask.Node, ask.Target)); finding != "" {
		answer.Error, answer.Finding = "no answer", finding
		return answer, false
	}
	answer.Measured = &events.Measurement{From: ask.Node, To: ask.Target, RoundTripSeconds: 0.01,
		BandwidthBytesPerSecond: w.band}
	return answer, false
}

// finding is what becomes of a connection to a node; empty where it answers.
func (w *world) finding(target *member, pair events.Pair) string {
	switch {
	case w.broken[pair] || target != nil && target.dark:
		return events.FoundUnreachable
	case target == nil || target.dead:
		return events.FoundRefused
	case target.frozen:
		return events.FoundStalled
	}
	return ""
}

func (w *world) pulse(name string, suspicions ...events.Suspicion) {
	node := w.nodes[name]
	if node.dead || node.frozen || node.cut || w.silent || w.mute == name {
		return
	}
	node.number++
	w.note(w.machine.Pulse(events.Pulse{
		Node: name, Incarnation: node.incarnation, Number: node.number, Generation: w.generation, Step: node.number,
		Suspicions: suspicions,
	}, 0, w.now))
}

// leave has a node say that it ends.
func (w *world) leave(name string) {
	node := w.nodes[name]
	node.number++
	w.note(w.machine.Pulse(events.Pulse{Node: name, Incarnation: node.incarnation, Number: node.number, Left: true},
		0, w.now))
}

// restart has another machine take over with the memory of the one before.
func (w *world) restart() {
	w.t.Helper()
	snapshot, err := w.machine.Snapshot()
	if err != nil {
		w.t.Fatal(err)
	}
	w.machine = machine.New(machine.Defaults(cluster))
	if err := w.machine.Restore(snapshot); err != nil {
		w.t.Fatal(err)
	}
}

// pass lets time pass: a tick every 100 ms, a heartbeat of each node every 500 ms.
func (w *world) pass(duration time.Duration) {
	for tick := range int(duration / (100 * time.Millisecond)) {
		w.now = w.now.Add(100 * time.Millisecond)
		if tick%5 == 0 {
			for _, name := range w.names() {
				w.pulse(name)
			}
		}
		w.note(w.machine.Tick(w.now))
	}
}

func (w *world) names() (names []string) {
	for name := range w.nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// expect compares what was said since the last time, without measurements.
func (w *world) expect(facts ...string) {
	w.t.Helper()
	got := []string{}
	for _, event := range w.said {
		if event.Kind != events.LinkMeasured {
			got = append(got, fmt.Sprintf("%s %s", event.Kind, event.Subject))
		}
	}
	w.said = nil
	if !slices.Equal(got, facts) {
		w.t.Errorf("expected %q, got %q", facts, got)
	}
}

func refused(node string) events.Suspicion {
	return events.Suspicion{Node: node, Refused: true, Reason: "connection reset"}
}
