package bus_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
)

const cluster = "test"

var (
	monitor    = events.Speaker{Source: "/monitor", Cluster: cluster}
	negotiator = events.Speaker{Source: "/negotiator", Cluster: cluster}
	allOfTest  = []string{"reknit.event." + cluster + ".>"}
)

func startServer(t *testing.T) *embedded.Server {
	t.Helper()
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	return server
}

func connect(t *testing.T, url, cluster string) (context.Context, *bus.Bus) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	b, err := bus.Connect(ctx, bus.Config{URL: url, Name: "test", Cluster: cluster})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return ctx, b
}

func newBus(t *testing.T) (context.Context, *bus.Bus) {
	t.Helper()
	ctx, b := connect(t, startServer(t).URL(), cluster)
	if err := b.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx, b
}

func publish(t *testing.T, ctx context.Context, b *bus.Bus, event events.Event) bus.Ack {
	t.Helper()
	ack, err := b.Publish(ctx, event)
	if err != nil {
		t.Fatal(err)
	}
	return ack
}

func next(t *testing.T, ctx context.Context, consumer *bus.Consumer) bus.Delivery {
	t.Helper()
	delivery, err := open(ctx, consumer)
	if err != nil {
		t.Fatal(err)
	}
	return delivery
}

func open(ctx context.Context, consumer *bus.Consumer) (bus.Delivery, error) {
	sealed, err := consumer.Next(ctx)
	if err != nil {
		return bus.Delivery{}, err
	}
	return sealed.Open(ctx, nil)
}

func consume(t *testing.T, ctx context.Context, b *bus.Bus) *bus.Consumer {
	t.Helper()
	consumer, err := b.Consume(ctx, "reader", 0, allOfTest)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(consumer.Stop)
	return consumer
}

func lost(node, reason string) events.Event {
	return monitor.First(time.Unix(1000, 0), "inc.1", events.NodeLost, node,
		&events.NodeState{Node: node, Incarnation: "inc", Reason: reason})
}

func committed(generation uint64, policy string) events.Event {
	plan := &events.Plan{
		Cluster: cluster, Generation: generation, Parent: "sha256:parent", Policy: policy,
		Nodes: []events.Member{{Node: "n1"}},
		Pipelines: []events.Pipeline{{MicroBatches: 1,
			Stages: []events.Stage{{Node: "n1", Layers: events.Range{First: 0, End: 2}}}}},
		Data: events.Data{GlobalBatch: 1, MicroBatch: 1},
	}
	return negotiator.First(time.Unix(1000, 0), "decision", events.PlanCommitted, fmt.Sprint(generation), plan)
}

func TestAnEventArrivesAsItWasSaid(t *testing.T) {
	ctx, b := newBus(t)
	said := lost("n1", "silent")
	said.Cause, said.Traceparent = "cause", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ack := publish(t, ctx, b, said)
	heard := next(t, ctx, consume(t, ctx, b)).Event
	if heard.Sequence != ack.Sequence || heard.Logged.IsZero() {
		t.Errorf("sequence %d logged %v, acknowledged at %d", heard.Sequence, heard.Logged, ack.Sequence)
	}
	heard.Sequence, heard.Logged = 0, time.Time{}
	if !heard.Time.Equal(said.Time) {
		t.Errorf("time %v, said at %v", heard.Time, said.Time)
	}
	heard.Time = said.Time
	if got, want := encoded(t, heard), encoded(t, said); got != want {
		t.Errorf("heard %s\nsaid  %s", got, want)
	}
}

func encoded(t *testing.T, event events.Event) string {
	text, err := bus.Encode(event)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheSameIDWithOtherWordsIsAnError(t *testing.T) {
	ctx, b := newBus(t)
	publish(t, ctx, b, lost("n1", "silent"))
	if _, err := b.Publish(ctx, lost("n1", "refused")); !errors.Is(err, bus.ErrOtherWords) {
		t.Errorf("expected ErrOtherWords, got %v", err)
	}
}

func TestASecondPlanOfAGenerationIsRefused(t *testing.T) {
	ctx, b := newBus(t)
	first := publish(t, ctx, b, committed(2, "repipeline"))
	if first.Duplicate {
		t.Error("the first plan is no duplicate")
	}
	if again := publish(t, ctx, b, committed(2, "repipeline")); !again.Duplicate {
		t.Error("the same plan again is a duplicate")
	}
	other := committed(2, "reroute")
	if _, err := b.Publish(ctx, other); !errors.Is(err, bus.ErrTaken) {
		t.Errorf("same id, other plan: expected ErrTaken, got %v", err)
	}
	other.ID = "another"
	if _, err := b.Publish(ctx, other); !errors.Is(err, bus.ErrTaken) {
		t.Errorf("other id: expected ErrTaken, got %v", err)
	}
	publish(t, ctx, b, committed(3, "reroute"))
	last, found, err := b.LastEvent(ctx, events.PlanStream, events.PlanSubject(cluster, "*"))
	if err != nil || !found || last.Subject != "3" {
		t.Errorf("expected the plan of generation 3, got %q, %v, %v", last.Subject, found, err)
	}
}

func TestAPublisherWhoseLeaseIsTakenIsRefused(t *testing.T) {
	server := startServer(t)
	ctx, old := connect(t, server.URL(), cluster)
	if err := old.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	_, young := connect(t, server.URL(), cluster)
	for instance, b := range []*bus.Bus{old, young} {
		lease := monitor.First(time.Now(), fmt.Sprint(instance), events.LeaseTaken, "monitor",
			&events.Lease{Service: "monitor", Instance: fmt.Sprint(instance)})
		b.Fence(lease.SubjectName(), publish(t, ctx, b, lease).Sequence)
	}
	if _, err := old.Publish(ctx, lost("n1", "silent")); !errors.Is(err, bus.ErrFenced) {
		t.Errorf("expected ErrFenced, got %v", err)
	}
	publish(t, ctx, young, lost("n1", "silent"))
}

func TestALargePayloadGoesThroughTheObjectStore(t *testing.T) {
	ctx, b := newBus(t)
	digests := &events.Digests{Node: "n1"}
	for layer := range 2000 {
		digests.Units = append(digests.Units,
			events.UnitDigest{Unit: layer, Digest: events.Digest([]byte{byte(layer), byte(layer >> 8)})})
	}
	node := events.Speaker{Source: events.NodeSource("n1"), Cluster: cluster}
	said := node.First(time.Now(), "step 1", events.TrainingDigested, "n1", digests)
	if len(said.Data) <= events.MaxEventBytes {
		t.Fatalf("the payload of %d bytes fits into an event", len(said.Data))
	}
	publish(t, ctx, b, said)
	if heard := next(t, ctx, consume(t, ctx, b)); heard.Refusal != nil || !bytes.Equal(heard.Event.Data, said.Data) {
		t.Errorf("data of %d bytes came as %d bytes, refusal %v", len(said.Data), len(heard.Event.Data), heard.Refusal)
	}
	if again := publish(t, ctx, b, said); !again.Duplicate {
		t.Error("the same large event again is a duplicate")
	}
}

func TestAnObjectIsStoredUnderItsDigest(t *testing.T) {
	ctx, b := newBus(t)
	data := bytes.Repeat([]byte("shard"), 1<<20)
	digest, err := b.Put(ctx, events.ShardBucket, data)
	if err != nil || digest != events.Digest(data) {
		t.Fatalf("digest %s, %v", digest, err)
	}
	read, err := b.Get(ctx, events.ShardBucket, digest)
	if err != nil || !bytes.Equal(read, data) {
		t.Errorf("%d bytes, %v", len(read), err)
	}
	if _, err := b.Get(ctx, events.ShardBucket, events.Digest(nil)); err == nil {
		t.Error("expected an error for content nobody put")
	}
}

func TestBytesThatAreNotTheirDigestsAreCorrupt(t *testing.T) {
	ctx, b := newBus(t)
	store, err := b.JetStream().ObjectStore(ctx, b.Lane(events.ShardBucket))
	if err != nil {
		t.Fatal(err)
	}
	digest := events.Digest([]byte("right"))
	if _, err := store.PutBytes(ctx, digest, []byte("wrong")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Get(ctx, events.ShardBucket, digest); !errors.Is(err, bus.ErrCorrupt) {
		t.Errorf("expected ErrCorrupt, got %v", err)
	}
}

func TestThePublisherOutlivesARestartOfTheServerAndTriesAtOnce(t *testing.T) {
	bus.SetRepeatWait(t, time.Hour)
	directory := t.TempDir()
	server, err := embedded.Start(embedded.Config{StoreDir: directory})
	if err != nil {
		t.Fatal(err)
	}
	url, port := server.URL(), 0
	if _, err := fmt.Sscanf(url, "nats://127.0.0.1:%d", &port); err != nil {
		t.Fatal(url, err)
	}
	ctx, b := connect(t, url, cluster)
	if err := b.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	before := publish(t, ctx, b, lost("n1", "silent"))
	server.Shutdown()
	type result struct {
		ack bus.Ack
		err error
	}
	results := make(chan result, 1)
	go func() {
		ack, err := b.Publish(ctx, lost("n2", "silent"))
		results <- result{ack, err}
	}()
	if server, err = embedded.Start(embedded.Config{StoreDir: directory, Port: port}); err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	got := <-results
	if got.err != nil || got.ack.Duplicate || got.ack.Sequence != before.Sequence+1 {
		t.Errorf("expected sequence %d, got %+v", before.Sequence+1, got)
	}
}

func TestWithoutAServerConnectWaitsAndThenSaysWhere(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := bus.Connect(ctx, bus.Config{URL: "nats://127.0.0.1:1", Name: "test", Cluster: cluster})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("expected a deadline and the URL, got %v", err)
	}
	if _, err := bus.Connect(t.Context(), bus.Config{URL: "nats://127.0.0.1:none"}); err == nil || errors.Is(err, nats.ErrTimeout) {
		t.Errorf("expected a complaint about the URL, got %v", err)
	}
}

func TestServersAreCountedOnceWithoutBlanks(t *testing.T) {
	url := startServer(t).URL()
	name := strings.Replace(url, "127.0.0.1", "localhost", 1)
	for _, list := range []string{",," + url, url + "," + url + ", " + url, strings.Join([]string{url, name, url}, ",")} {
		b, err := bus.Connect(t.Context(), bus.Config{URL: list, Name: "test", Cluster: cluster})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		if err := b.Provision(t.Context()); err != nil || b.Replicas() != 1 {
			t.Errorf("%q: %d replicas, %v: expected one", list, b.Replicas(), err)
		}
	}
}
