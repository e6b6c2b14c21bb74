package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
)

// shelfOf is a trainer's state of one layer, or of none yet.
type shelfOf struct {
	layer    []byte
	mutex    sync.Mutex
	imported []byte
}

func (s *shelfOf) Holdings() []events.Holding        { return nil }
func (s *shelfOf) Adopt(events.Layers, uint64) error { return nil }
func (s *shelfOf) Export(layer int, _ uint64) ([]byte, error) {
	if s.layer == nil {
		return nil, fmt.Errorf("layer %d is not here", layer)
	}
	return slices.Clone(s.layer), nil
}

func (s *shelfOf) Import(_ int, _ uint64, data []byte) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.imported = slices.Clone(data)
	return nil
}

// hub is a NATS server and what was said on it; the test plays the negotiator.
type hub struct {
	t        *testing.T
	url      string
	bus      *bus.Bus
	said     chan events.Event
	speaker  events.Speaker
	sessions []*Session
	members  []events.Member
}

const patience = 20 * time.Second

func newHub(t *testing.T) *hub {
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	h := &hub{t: t, url: server.URL(), said: make(chan events.Event, 64), speaker: events.Speaker{Source: "/negotiator", Cluster: "c"}}
	if h.bus, err = bus.Connect(t.Context(), bus.Config{URL: h.url, Name: "test", Cluster: "c"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.bus.Close)
	if err := h.bus.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop, err := h.bus.Follow(t.Context(), events.EventStream, []string{"reknit.event.c.>"}, bus.New, func(event events.Event) { h.said <- event })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return h
}

// join adds a node and waits for its request.
func (h *hub) join(node string) events.Member {
	h.t.Helper()
	session, err := Join(h.t.Context(), Config{NATSURL: h.url, Cluster: "c", Node: node, Address: "127.0.0.1:1", MemoryBytes: 1 << 30, Job: events.Job{
		Digest: events.Digest(nil), GlobalBatch: 1, MicroBatch: 1, Layers: []events.LayerProfile{{ParameterBytes: 1}},
	}})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(session.Close)
	join := await[events.Join](h, events.JoinRequested)
	h.sessions = append(h.sessions, session)
	return events.Member{Node: node, Incarnation: join.Incarnation, Address: join.Address, ShardAddress: join.ShardAddress}
}

func await[T any, P interface {
	*T
	events.Payload
}](h *hub, kind events.Kind) T {
	h.t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case event := <-h.said:
			if event.Kind == events.RestorationFailed && kind != event.Kind {
				h.t.Fatalf("%s", event.Data)
			}
			if event.Kind == kind {
				payload, err := events.Open[T, P](event)
				if err != nil {
					h.t.Fatal(err)
				}
				return payload
			}
		case <-deadline:
			h.t.Fatalf("no %s within %v", kind, patience)
		}
	}
}

func (h *hub) say(kind events.Kind, payload events.Payload) {
	h.t.Helper()
	if _, err := h.bus.Publish(h.t.Context(), h.speaker.First(time.Now(), "test", kind, "g1", payload)); err != nil {
		h.t.Fatal(err)
	}
}

// move has n1 give a layer of 20 MiB to n2.
func (h *hub) move(members []events.Member, relays ...events.Pair) (received events.Receipt, layer, imported []byte) {
	h.t.Helper()
	layer = make([]byte, 20<<20)
	random := rand.NewChaCha8(sha256.Sum256([]byte(h.t.Name())))
	random.Read(layer)
	plan := events.Plan{
		Cluster: "c", Generation: 1, Nodes: members, Relays: relays, Data: events.Data{GlobalBatch: 1, MicroBatch: 1},
		Pipelines: []events.Pipeline{{MicroBatches: 1, Stages: []events.Stage{{Node: "n2", Layers: events.Layers{First: 0, End: 1}}}}},
		Migration: events.Migration{ShardBytes: 1 << 20, Transfers: []events.Transfer{{Layer: 0, To: "n2", Bytes: int64(len(layer)), Sources: []events.Source{
			{Node: "n1", Shards: events.Layers{First: 0, End: 20}},
		}}}},
	}
	h.say(events.NegotiationOpened, &events.Opening{Negotiation: "g1", Generation: 1, Abandon: true, Members: members, Changes: []events.Change{{Kind: events.ChangeJoin, Node: "n2"}}})
	receiver := &shelfOf{}
	ctx, cancel := context.WithCancel(h.t.Context())
	var trainers sync.WaitGroup
	for i, session := range h.sessions {
		state := &shelfOf{layer: layer}
		if members[i].Node == "n2" {
			state = receiver
		}
		trainers.Go(func() { session.Boundary(ctx, 0, state) })
	}
	h.t.Cleanup(func() { cancel(); trainers.Wait() })
	h.say(events.Scheduled, &events.Schedule{Negotiation: "g1", Plan: plan})
	received = await[events.Receipt](h, events.ShardReceived)
	receiver.mutex.Lock()
	defer receiver.mutex.Unlock()
	return received, layer, receiver.imported
}

func TestALayerComesStraightFromItsHolderOrThroughTheHubWhereThatIsOutOfReach(t *testing.T) {
	const hub = ""
	for name, test := range map[string]struct {
		alter  func([]events.Member)
		relays []events.Pair
		from   string
	}{
		"reached":                      {from: "n1"},
		"a link that must not be used": {relays: []events.Pair{events.PairOf("n1", "n2")}, from: hub},
		"a store that does not answer": {alter: func(members []events.Member) { members[0].ShardAddress = "127.0.0.1:1" }, from: hub},
		"a giver without a store":      {alter: func(members []events.Member) { members[0].ShardAddress = "" }, from: hub},
		"a receiver without a store":   {alter: func(members []events.Member) { members[1].ShardAddress = "" }, from: hub},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t)
			members := []events.Member{h.join("n1"), h.join("n2")}
			if test.alter != nil {
				test.alter(members)
			}
			receipt, layer, imported := h.move(members, test.relays...)
			if len(receipt.Sources) != 1 || receipt.Sources[0].From != test.from || !bytes.Equal(imported, layer) {
				t.Errorf("%d of %d bytes from %+v, expected them from %q", len(imported), len(layer), receipt.Sources, test.from)
			}
		})
	}
}

func TestPartsAreRetiredWhenTheNegotiationEnds(t *testing.T) {
	h := newHub(t)
	h.move([]events.Member{h.join("n1"), h.join("n2")})
	h.say(events.Aborted, &events.Abortion{Negotiation: "g1", Generation: 1, Reason: "test"})
	giver := h.sessions[0]
	giver.mutex.Lock()
	moves := giver.moves
	giver.mutex.Unlock()
	select {
	case <-moves.retired:
	case <-time.After(patience):
		t.Fatal("the parts are kept")
	}
	if len(moves.stored) != 3 {
		t.Fatalf("expected 3 parts of at most 8 MiB, got %d", len(moves.stored))
	}
	for _, part := range moves.stored {
		if _, err := giver.store.Get(t.Context(), part.digest); err == nil {
			t.Fatalf("%s is still there", part.digest)
		}
	}
}
