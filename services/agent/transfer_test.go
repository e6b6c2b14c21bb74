package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/snapshots"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
)

// shelfOf is a trainer's state of one layer, or of none yet.
type shelfOf struct {
	layer    []byte
	mutex    sync.Mutex
	imported []byte
}

func (s *shelfOf) Holdings() []events.Holding         { return nil }
func (s *shelfOf) Forget()                            {}
func (s *shelfOf) Adopt([]events.Range, uint64) error { return nil }
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
	server   *embedded.Server
	url      string
	bus      *bus.Bus
	said     chan events.Event
	speaker  events.Speaker
	sessions []*Session
	stepTime time.Duration
	steps    uint64 // that are trained in all; zero for no end
	late     bool   // the trainer that joins is not at its loop
	keeps    snapshots.Settings
}

const patience = 2 * time.Minute

func newHub(t *testing.T) *hub {
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	h := &hub{t: t, server: server, url: server.URL(), said: make(chan events.Event, 64),
		speaker: events.Speaker{Source: "/negotiator", Cluster: "c"}, stepTime: 100 * time.Millisecond}
	if h.bus, err = bus.Connect(t.Context(), bus.Config{URL: h.url, Name: "test", Cluster: "c"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.bus.Close)
	if err := h.bus.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop, err := h.bus.Follow(t.Context(), events.EventStream, []string{"reknit.event.c.>"}, bus.New,
		func(event events.Event) { h.said <- event })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return h
}

func (h *hub) job() events.Job {
	return events.Job{
		Digest: events.Digest(nil), Steps: h.steps, GlobalBatch: 1, MicroBatch: 1, Layers: []events.LayerProfile{{ParameterBytes: 1}},
	}
}

// join adds a node and waits for its request.
func (h *hub) join(node string) events.Member {
	h.t.Helper()
	session, err := Join(h.t.Context(), Config{NATSURL: h.url, Cluster: "c", Node: node, Address: "127.0.0.1:1", MemoryBytes: 1 << 30,
		PreCopies: true, Job: h.job(), Snapshots: h.keeps})
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

func (h *hub) say(kind events.Kind, subject string, payload events.Payload) {
	h.t.Helper()
	if _, err := h.bus.Publish(h.t.Context(), h.speaker.First(time.Now(), subject, kind, subject, payload)); err != nil {
		h.t.Fatal(err)
	}
}

// train has a giver and a receiver stand at their boundaries. The giver's layer is its own to change.
func (h *hub) train(layer []byte) (receiver *replica) {
	receiver = &replica{}
	ctx, cancel := context.WithCancel(h.t.Context())
	var trainers sync.WaitGroup
	for i, state := range []*replica{{shelfOf: shelfOf{layer: layer}}, receiver} {
		trainers.Go(func() { h.sessions[i].Boundary(ctx, 0, state) })
	}
	h.t.Cleanup(func() { cancel(); trainers.Wait() })
	return receiver
}

// move has n1 give its layer to n2.
func (h *hub) move(negotiation string, members []events.Member, bytes int64, relays ...events.Pair) events.Receipt {
	h.t.Helper()
	plan := events.Plan{
		Cluster: "c", Generation: 1, Nodes: members, Relays: relays, Data: events.Data{GlobalBatch: 1, MicroBatch: 1},
		Pipelines: []events.Pipeline{{MicroBatches: 1,
			Stages: []events.Stage{{Node: "n2", Layers: events.Range{First: 0, End: 1}}}}},
		Migration: events.Migration{ShardBytes: 1 << 20, Transfers: []events.Transfer{{Unit: 0, To: "n2", Bytes: bytes, Sources: []events.Source{
			{Node: "n1", Shards: events.Range{First: 0, End: int(bytes >> 20)}},
		}}}},
	}
	h.say(events.NegotiationOpened, negotiation, &events.Opening{
		Negotiation: negotiation, Generation: 1, Abandon: true, Members: members, Changes: []events.Change{{Kind: events.ChangeJoin, Node: "n2"}},
	})
	h.say(events.Scheduled, negotiation, &events.Schedule{Negotiation: negotiation, Plan: plan})
	return await[events.Receipt](h, events.ShardReceived)
}

func (h *hub) abort(negotiation string) {
	h.say(events.Aborted, negotiation, &events.Abort{Negotiation: negotiation, Generation: 1, Reason: "test"})
}

// content is 20 MiB of this test's own.
func (h *hub) content() []byte {
	content := make([]byte, 20<<20)
	random := rand.NewChaCha8(sha256.Sum256([]byte(h.t.Name())))
	random.Read(content)
	return content
}

func (s *shelfOf) has(layer []byte) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return bytes.Equal(s.imported, layer)
}

// awaitRetired waits until nothing of a node's last exchange is left.
func (h *hub) awaitRetired(session *Session) {
	h.t.Helper()
	session.mutex.Lock()
	retired := session.exchange.retired
	session.mutex.Unlock()
	select {
	case <-retired:
	case <-time.After(patience):
		h.t.Fatal("the parts are kept")
	}
}

// parts returns the digests of a layer's parts.
func parts(layer []byte) []string {
	var digests []string
	for part := range slices.Chunk(layer, 8<<20) {
		digests = append(digests, events.Digest(part))
	}
	return digests
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
			layer := h.content()
			receiver := h.train(layer)
			receipt := h.move("g1", members, int64(len(layer)), test.relays...)
			if len(receipt.Sources) != 1 || receipt.Sources[0].From != test.from || !receiver.has(layer) {
				t.Errorf("from %+v, expected it from %q; right bytes: %t", receipt.Sources, test.from, receiver.has(layer))
			}
		})
	}
}

func TestPartsAreRetiredWhenTheNegotiationEnds(t *testing.T) {
	h := newHub(t)
	members, layer := []events.Member{h.join("n1"), h.join("n2")}, h.content()
	h.train(layer)
	h.move("g1", members, int64(len(layer)))
	giver := h.sessions[0]
	for _, digest := range parts(layer) {
		if _, err := giver.store.Get(digest); err != nil {
			t.Fatalf("%s is not there while it is given: %v", digest, err)
		}
	}
	h.abort("g1")
	h.awaitRetired(giver)
	for _, digest := range parts(layer) {
		if _, err := giver.store.Get(digest); err == nil {
			t.Fatalf("%s is still there", digest)
		}
	}
}

func TestWhatWentThroughTheHubIsGoneWhenTheNegotiationEnds(t *testing.T) {
	h := newHub(t)
	members, layer := []events.Member{h.join("n1"), h.join("n2")}, h.content()
	h.train(layer)
	h.move("g1", members, int64(len(layer)), events.PairOf("n1", "n2"))
	for _, digest := range parts(layer) {
		if _, err := h.bus.Get(t.Context(), events.ShardBucket, digest); err != nil {
			t.Fatalf("%s is not there while it is given: %v", digest, err)
		}
	}
	h.abort("g1")
	h.awaitRetired(h.sessions[0])
	for _, digest := range parts(layer) {
		if _, err := h.bus.Get(t.Context(), events.ShardBucket, digest); !errors.Is(err, jetstream.ErrObjectNotFound) {
			t.Fatalf("%s: expected that it is gone, got %v", digest, err)
		}
	}
}

// The refusal comes before the end of the negotiation in which the giver stands.
func TestAGiverThatIsGivenUpGivesAgainAsANewIncarnation(t *testing.T) {
	h := newHub(t)
	members, layer := []events.Member{h.join("n1"), h.join("n2")}, h.content()
	receiver := h.train(layer)
	h.move("g1", members, int64(len(layer)))
	h.say(events.MembershipRefused, "n1", &events.Refusal{
		Node: "n1", Incarnation: members[0].Incarnation, Refused: events.RefusedMembership, Reason: "lost",
	})
	members[0].Incarnation = await[events.Join](h, events.JoinRequested).Incarnation
	h.abort("g1")
	h.awaitRetired(h.sessions[0])
	for i := range layer {
		layer[i]++ // a later step
	}
	h.move("g2", members, int64(len(layer)))
	if !receiver.has(layer) {
		t.Fatal("the second move brought other bytes")
	}
}
