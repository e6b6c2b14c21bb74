package bus_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// bombOf is JSON of so many bytes, in a thousandth of them.
func bombOf(t *testing.T, size int) (packed []byte, digest string) {
	t.Helper()
	var text bytes.Buffer
	writer := gzip.NewWriter(&text)
	plain := fmt.Appendf(nil, `{"x":%q}`, strings.Repeat("0", size-8))
	if _, err := writer.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return text.Bytes(), events.Digest(plain)
}

// sayApart logs an event whose data is in the store, compressed by whoever says it.
func sayApart(t *testing.T, ctx context.Context, b *bus.Bus, source string, kind events.Kind, packed []byte, digest string) {
	t.Helper()
	if err := b.PutAs(ctx, events.PayloadBucket, digest, func() []byte { return packed }); err != nil {
		t.Fatal(err)
	}
	message := fmt.Sprintf(`{"specversion":"1.0","id":"i1","source":%q,"type":%q,"subject":"n1","cluster":"test","dataref":%q}`,
		source, kind.Type(), digest)
	if _, err := b.JetStream().Publish(ctx, events.EventSubject(cluster, kind, "n1"), []byte(message)); err != nil {
		t.Fatal(err)
	}
}

func allocated() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc
}

func TestANodesFewBytesThatStandForManyAreRefusedAfterItsBound(t *testing.T) {
	bus.SetUnreadableAfter(t, time.Hour)
	ctx, b := newBus(t)
	packed, digest := bombOf(t, 63<<20)
	for _, kind := range []events.Kind{events.ShardOffered, events.Consented, events.LeaveRequested} {
		sayApart(t, ctx, b, "/node/n1", kind, packed, digest)
	}
	publish(t, ctx, b, lost("n1", "silent"))
	consumer := consume(t, ctx, b)
	before := allocated()
	for range 3 {
		if refused := next(t, ctx, consumer); refused.Refusal == nil || refused.Refusal.Reason != bus.Oversized {
			t.Fatalf("expected that it is oversized, got %+v", refused.Refusal)
		}
	}
	if took := allocated() - before; took > 40<<20 {
		t.Errorf("%d MiB were allocated for three that may have 6", took>>20)
	}
	if heard := next(t, ctx, consumer); heard.Refusal != nil {
		t.Errorf("the next is refused: %+v", heard.Refusal)
	}
}

func TestWhatIsTooLargeForANodeIsNotTooLargeForAService(t *testing.T) {
	ctx, b := newBus(t)
	packed, digest := bombOf(t, 3<<20)
	sayApart(t, ctx, b, "/node/n1", events.RestorationFailed, packed, digest)
	sayApart(t, ctx, b, "/restorer", events.RestorationFailed, packed, digest)
	consumer := consume(t, ctx, b)
	if node := next(t, ctx, consumer); node.Refusal == nil || node.Refusal.Reason != bus.Oversized {
		t.Errorf("of a node: %+v", node.Refusal)
	}
	if service := next(t, ctx, consumer); service.Refusal == nil || service.Refusal.Reason != bus.Invalid { // it was read, and has no field
		t.Errorf("of a service: %+v", service.Refusal)
	}
}

func TestManyTinyElementsAreNotDecoded(t *testing.T) {
	ctx, b := newBus(t)
	plain := []byte(`{"parts":[{}` + strings.Repeat(",{}", 600_000) + `]}`)
	sayApart(t, ctx, b, "/node/n1", events.ShardOffered, plain, events.Digest(plain))
	consumer := consume(t, ctx, b)
	before := allocated()
	if refused := next(t, ctx, consumer); refused.Refusal == nil || refused.Refusal.Reason != bus.Oversized ||
		!strings.Contains(refused.Refusal.Detail, "values") {
		t.Fatalf("expected too many values, got %+v", refused.Refusal)
	}
	if took := allocated() - before; took > 16<<20 {
		t.Errorf("%d MiB were allocated", took>>20)
	}
}

// Six payloads take 17 MiB each once they are decoded, and as little as may be of JSON. The one that is opened next counts as the 40 MiB
// that a consent may take, so that two of the 64 MiB are in flight at a time.
func TestPayloadsInFlightAreBoundedInSum(t *testing.T) {
	ctx, b := newBus(t)
	const said, atATime = 6, 2
	plain := []byte(`{"x":[0` + strings.Repeat(",0", 1<<17-8) + `]}`)
	for range said {
		sayApart(t, ctx, b, "/node/n1", events.Consented, plain, events.Digest(plain))
	}
	consumer := consume(t, ctx, b)
	opened := make(chan bus.Delivery, said)
	for range said {
		sealed, err := consumer.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if delivery, err := sealed.Open(ctx, nil); err == nil {
				opened <- delivery
			}
		}()
	}
	take := func() bus.Delivery {
		select {
		case delivery := <-opened:
			return delivery
		case <-ctx.Done():
			t.Fatal("nothing more is opened")
			return bus.Delivery{}
		}
	}
	var held []bus.Delivery
	for range atATime {
		held = append(held, take())
	}
	select {
	case <-opened:
		t.Errorf("more than %d are in flight", atATime)
	case <-time.After(300 * time.Millisecond):
	}
	for range said - atATime {
		held[0].Done()
		held = append(held[1:], take())
	}
}

func TestAMessageIsNotAskedForBesideManyThatAreTooLarge(t *testing.T) {
	ctx, b := newBus(t)
	const flood = 48 // of 1 MiB, six times what is asked for at a time
	for range flood {
		if _, err := b.JetStream().Publish(ctx, events.EventSubject(cluster, events.NodeLost, "n1"), make([]byte, 1<<20-256)); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, ctx, b, lost("n1", "silent"))
	consumer := consume(t, ctx, b)
	next(t, ctx, consumer)
	time.Sleep(200 * time.Millisecond) // for all that comes by itself
	if _, delivered, err := b.Reach(ctx, "reader"); err != nil || delivered > 20 {
		t.Errorf("%v, %d messages of 1 MiB were delivered to a reader that is at the first", err, delivered)
	}
	for range flood - 1 {
		if refused := next(t, ctx, consumer); refused.Refusal == nil || refused.Refusal.Reason != bus.Oversized {
			t.Fatalf("expected that it is oversized, got %+v", refused.Refusal)
		}
	}
	if heard := next(t, ctx, consumer); heard.Refusal != nil {
		t.Errorf("the event behind them is refused: %+v", heard.Refusal)
	}
}

func TestAContentOfAMillionChunksIsNotReadChunkByChunk(t *testing.T) {
	ctx, b := newBus(t)
	name, lane := events.Digest(nil), b.Lane(events.PayloadBucket)
	manifest, err := json.Marshal(jetstream.ObjectInfo{
		ObjectMeta: jetstream.ObjectMeta{Name: name}, Bucket: lane, NUID: "x", Size: 1 << 20, Chunks: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	subject := "$O." + lane + ".M." + base64.URLEncoding.EncodeToString([]byte(name))
	if _, err := b.JetStream().Publish(ctx, subject, manifest); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Get(ctx, events.PayloadBucket, name); !errors.Is(err, bus.ErrCorrupt) {
		t.Errorf("expected that it is corrupt, got %v", err)
	}
}

func TestAFollowerFetchesNothingOfWhatItIgnores(t *testing.T) {
	bus.SetUnreadableAfter(t, time.Hour)
	bus.SetMissingAfter(t, time.Hour)
	ctx, b := newBus(t)
	heard := make(chan events.Event, 1)
	ignores := func(event events.Event) bool { return event.Source == "/node/n1" }
	stop, err := b.FollowBut(ctx, events.EventStream, allOfTest, bus.All, ignores, func(event events.Event) { heard <- event })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	dangle(t, ctx, b, "/node/n1", events.LeaveRequested)
	publish(t, ctx, b, lost("n1", "silent"))
	select {
	case event := <-heard:
		if event.Source != "/monitor" {
			t.Errorf("heard %s", event.Source)
		}
	case <-time.After(time.Minute):
		t.Error("it waits for a payload that is nothing to it")
	}
}
