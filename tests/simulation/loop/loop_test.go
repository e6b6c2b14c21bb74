package loop_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/tests/simulation/loop"
	"github.com/reknit/reknit/tests/simulation/stream"
)

// clerk is a machine that counts lost nodes. For each it aborts a negotiation, commits a plan and says why it holds.
type clerk struct {
	Count   uint64
	cluster string
	heard   []string
}

func (c *clerk) Hears() []events.Kind { return []events.Kind{events.NodeLost} }

func (c *clerk) Handle(event events.Event) ([]events.Event, error) {
	c.heard = append(c.heard, event.Subject)
	if event.Subject == "absurd" {
		return nil, errors.New("no such node")
	}
	c.Count++
	id, negotiator := fmt.Sprint("g", c.Count), events.Speaker{Source: "/negotiator", Cluster: c.cluster}
	return []events.Event{
		negotiator.Say(event, events.Aborted, id, &events.Abort{Negotiation: id, Generation: c.Count}),
		negotiator.Say(event, events.PlanCommitted, fmt.Sprint(c.Count), c.plan()),
		negotiator.Say(event, events.ClusterHeld, c.cluster, &events.Hold{Reason: event.Subject}),
	}, nil
}

func (c *clerk) plan() *events.Plan {
	return &events.Plan{
		Cluster: c.cluster, Generation: c.Count, Parent: "sha256:parent", Policy: "repipeline",
		Nodes: []events.Member{{Node: "n1"}},
		Pipelines: []events.Pipeline{
			{MicroBatches: 1, Stages: []events.Stage{{Node: "n1", Layers: events.Range{First: 0, End: 2}}}},
		},
		Data: events.Data{GlobalBatch: 1, MicroBatch: 1},
	}
}

func (c *clerk) Tick(now time.Time) []events.Event { return nil }
func (c *clerk) Snapshot() ([]byte, error)         { return json.Marshal(c) }
func (c *clerk) Restore(snapshot []byte) error     { return json.Unmarshal(snapshot, c) }

// loss is what the monitor says of a node.
func loss(at time.Time, cluster, node string) events.Event {
	monitor := events.Speaker{Source: "/monitor", Cluster: cluster}
	return monitor.First(at, node, events.NodeLost, node, &events.NodeState{Node: node, Incarnation: "a"})
}

// hub is a modelled server with somebody who tells of lost nodes, and the time.
type hub struct {
	*testing.T
	server    *stream.Server
	cluster   string
	now       time.Time
	instances int
}

func newHub(t *testing.T, cluster string, replicated bool) *hub {
	return &hub{
		T: t, cluster: cluster, now: time.Unix(1000, 0),
		server: stream.NewServer(events.EventStream, events.PlanStream, stream.Limits{}, replicated),
	}
}

func (h *hub) lose(node string) {
	publication := loop.Connect(h.server, h.cluster, events.MaxEventBytes).Publish(loss(h.now, h.cluster, node))
	for !publication.Done() {
		h.now = h.now.Add(publication.Step(h.now, stream.Answered))
	}
	if publication.Err != nil {
		h.Fatal(publication.Err)
	}
}

// start starts an instance that believes itself alone.
func (h *hub) start(machine *clerk) *loop.Service {
	h.instances++
	machine.cluster = h.cluster
	connection := loop.Connect(h.server, h.cluster, events.MaxEventBytes)
	return loop.Start(connection, "negotiator", fmt.Sprint("instance", h.instances), machine, func() bool { return false })
}

// step lets a service do one thing, and reports whether there was anything to do within the time of a redelivery.
func (h *hub) step(s *loop.Service, fate stream.Fate) bool {
	if s.Point() != loop.Idle {
		h.now = h.now.Add(time.Millisecond + s.Step(h.now, fate))
		return s.Point() != loop.Ended
	}
	if s.Take(h.now, fate) {
		return true
	}
	h.now = h.now.Add(6 * time.Second)
	return s.Save(h.now) || s.Take(h.now, fate)
}

// log is what the machine said, each stream in its order.
func (h *hub) log() (said []events.Event) {
	for _, log := range []*stream.Stream{h.server.Events, h.server.Plans} {
		follower := log.Follow([]string{"reknit.>"}, 0)
		for message := follower.Next(); message != nil; message = follower.Next() {
			if event := loop.Heard(message); event.Kind != events.LeaseTaken && event.Kind != events.NodeLost {
				said = append(said, event)
			}
		}
	}
	return said
}

func (h *hub) said() string {
	var words []string
	for _, event := range h.log() {
		words = append(words, fmt.Sprintf("%s %s", event.Kind, event.Subject))
	}
	return strings.Join(words, ", ")
}

const undisturbed = "negotiation.aborted g1, cluster.held test, negotiation.aborted g2, cluster.held test, " +
	"negotiation.aborted g3, cluster.held test, plan.committed 1, plan.committed 2, plan.committed 3"

func TestACrashAtAnyPointRepeatsNothingAndLosesNothing(t *testing.T) {
	for _, replicated := range []bool{false, true} {
		points := map[loop.Point]bool{}
		for crash := range 40 {
			h := newHub(t, "test", replicated)
			for node := range 3 {
				h.lose(fmt.Sprint("n", node))
			}
			running := h.start(&clerk{})
			for range crash {
				h.step(running, stream.Answered)
			}
			points[running.Point()] = true
			running = h.start(&clerk{})
			for h.step(running, stream.Answered) {
			}
			if running.Err() != nil || len(running.Complaints()) > 0 {
				t.Errorf("crash %d: %v, %v", crash, running.Err(), running.Complaints())
			}
			if said := h.said(); said != undisturbed {
				t.Errorf("crash %d: said %s", crash, said)
			}
		}
		for _, point := range []loop.Point{loop.TakeLease, loop.Sign, loop.Publish, loop.Remember, loop.Acknowledge} {
			if !points[point] {
				t.Errorf("no crash at %q, only at %v", point, points)
			}
		}
	}
}

func TestRequestsThatAreLostRepeatNothingAndLoseNothing(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		h := newHub(t, "test", seed%2 == 0)
		for node := range 3 {
			h.lose(fmt.Sprint("n", node))
		}
		running := h.start(&clerk{})
		for range 400 {
			fate := stream.Answered
			if random.IntN(5) == 0 {
				fate = []stream.Fate{stream.Lost, stream.Unheard, stream.Refused}[random.IntN(3)]
			}
			if h.step(running, fate); running.Point() == loop.Ended {
				running = h.start(&clerk{})
			}
		}
		if said := h.said(); said != undisturbed {
			t.Errorf("seed %d: said %s", seed, said)
		}
	}
}

// Two that start at the same time may end each other: one has the lease, the other signed the memory last. Whoever runs
// them starts one again.
func TestTwoInstancesAtATimeSayNothingTwice(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		h := newHub(t, "test", seed%2 == 0)
		for node := range 3 {
			h.lose(fmt.Sprint("n", node))
		}
		running := []*loop.Service{h.start(&clerk{}), h.start(&clerk{})}
		for range 400 {
			i := random.IntN(len(running))
			if h.step(running[i], stream.Answered); running[i].Point() != loop.Ended {
				continue
			}
			if err := running[i].Err(); !errors.Is(err, bus.ErrFenced) {
				t.Errorf("seed %d: %v", seed, err)
			}
			if running = slices.Delete(running, i, i+1); len(running) == 0 {
				running = append(running, h.start(&clerk{}))
			}
		}
		if said := h.said(); said != undisturbed || len(running) != 1 {
			t.Errorf("seed %d: %d run on, said %s", seed, len(running), said)
		}
	}
}

func TestWhatIsRepeatedAfterTheLogHasDroppedItWasSaid(t *testing.T) {
	h := newHub(t, "test", true)
	publication := loop.Connect(h.server, h.cluster, events.MaxEventBytes).Publish(loss(h.now, h.cluster, "n1"))
	h.now = h.now.Add(publication.Step(h.now, stream.Unheard))
	if dropped := h.server.Events.Trim(2, func(*stream.Message) bool { return false }); len(dropped) != 1 {
		t.Fatalf("%d are dropped", len(dropped))
	}
	for !publication.Done() {
		h.now = h.now.Add(publication.Step(h.now, stream.Answered))
	}
	if publication.Err != nil || publication.Ack != (bus.Ack{Sequence: 1}) {
		t.Errorf("%+v, %v", publication.Ack, publication.Err)
	}
}
