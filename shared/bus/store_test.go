package bus_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// large is an event whose payload travels through the object store.
func large(name string) events.Event {
	digests := &events.Digests{Node: "n1"}
	for layer := range 900 {
		digests.Units = append(digests.Units,
			events.UnitDigest{Unit: layer, Digest: events.Digest(fmt.Append(nil, name, layer))})
	}
	node := events.Speaker{Source: events.NodeSource("n1"), Cluster: cluster}
	return node.First(time.Now(), name, events.TrainingDigested, "n1", digests)
}

// purge drops what a bucket has under subjects: manifests are at M, chunks at C.
func purge(t *testing.T, ctx context.Context, b *bus.Bus, bucket, subjects string) {
	t.Helper()
	lane := b.Lane(bucket)
	stream, err := b.JetStream().Stream(ctx, "OBJ_"+lane)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(ctx, jetstream.WithPurgeSubject("$O."+lane+"."+subjects)); err != nil {
		t.Fatal(err)
	}
}

func TestAPayloadThatIsNotFoundYetIsWaitedFor(t *testing.T) {
	for lacking, subjects := range map[string]string{"all of it": ">", "chunks": "C.>"} {
		t.Run(lacking, func(t *testing.T) {
			ctx, b := newBus(t)
			said := large("first")
			publish(t, ctx, b, said)
			purge(t, ctx, b, events.PayloadBucket, subjects) // as a replica that lags has it
			deliveries := make(chan bus.Delivery, 1)
			consumer := consume(t, ctx, b)
			go func() {
				delivery, err := open(ctx, consumer)
				if err != nil {
					t.Error(err)
				}
				deliveries <- delivery
			}()
			select {
			case early := <-deliveries:
				t.Fatalf("not found was believed: %+v", early.Refusal)
			case <-time.After(200 * time.Millisecond):
			}
			if _, err := b.Put(ctx, events.PayloadBucket, said.Data); err != nil {
				t.Fatal(err)
			}
			if heard := <-deliveries; heard.Refusal != nil || !bytes.Equal(heard.Event.Data, said.Data) {
				t.Errorf("%d bytes, refusal %+v", len(heard.Event.Data), heard.Refusal)
			}
		})
	}
}

func TestAPayloadIsOneReadForEachThatHearsTheEvent(t *testing.T) {
	ctx, b := newBus(t)
	said := large("first")
	publish(t, ctx, b, said)
	reads := make(chan *nats.Msg, 8)
	subscription, err := b.Conn().ChanSubscribe("$JS.API.DIRECT.GET.OBJ_"+b.Lane(events.PayloadBucket)+".>", reads)
	if err != nil {
		t.Fatal(err)
	}
	other, err := b.Conn().ChanSubscribe("$JS.API.DIRECT.GET.OBJ_"+b.Lane(events.PayloadBucket), reads)
	if err != nil {
		t.Fatal(err)
	}
	heard := next(t, ctx, consume(t, ctx, b))
	if err := errors.Join(b.Conn().Flush(), subscription.Unsubscribe(), other.Unsubscribe()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(heard.Event.Data, said.Data) || len(reads) != 1 {
		t.Errorf("%d of %d bytes in %d reads, refusal %+v", len(heard.Event.Data), len(said.Data), len(reads), heard.Refusal)
	}
}

func TestAPayloadIsReadThoughAnotherHasItsToken(t *testing.T) {
	ctx, b := newBus(t)
	said := large("first")
	token := base64.URLEncoding.EncodeToString([]byte(events.Digest(said.Data)))
	if _, err := b.JetStream().Publish(ctx, "$O."+b.Lane(events.PayloadBucket)+".C."+token, []byte("junk")); err != nil {
		t.Fatal(err)
	}
	publish(t, ctx, b, said)
	if heard := next(t, ctx, consume(t, ctx, b)); !bytes.Equal(heard.Event.Data, said.Data) {
		t.Errorf("%d of %d bytes, refusal %+v", len(heard.Event.Data), len(said.Data), heard.Refusal)
	}
}

func TestAPutThatEndedBeforeItsManifestIsMadeGoodByTheNextWithoutASecondCopy(t *testing.T) {
	ctx, b := newBus(t)
	publish(t, ctx, b, large("first"))
	purge(t, ctx, b, events.PayloadBucket, "M.>")
	publish(t, ctx, b, large("first"))
	stream, err := b.JetStream().Stream(ctx, "OBJ_"+b.Lane(events.PayloadBucket))
	if err != nil {
		t.Fatal(err)
	}
	if held := stream.CachedInfo().State.Msgs; held != 2 {
		t.Errorf("%d messages: expected a chunk and its manifest", held)
	}
	purge(t, ctx, b, events.PayloadBucket, "M.>")
	if err := b.Remove(ctx, events.PayloadBucket, events.Digest(large("first").Data)); err != nil {
		t.Fatal(err)
	}
	if info, err := stream.Info(ctx); err != nil || info.State.Msgs != 0 {
		t.Errorf("%d messages are left of what was removed, %v", info.State.Msgs, err)
	}
}

func TestAPayloadThatWasPutTwiceIsOneForClientsOfNATS(t *testing.T) {
	ctx, b := newBus(t)
	said := large("first")
	publish(t, ctx, b, said)
	purge(t, ctx, b, events.PayloadBucket, "M.>") // as for one who puts it at the same time
	publish(t, ctx, b, said)
	bucket, err := b.JetStream().ObjectStore(ctx, b.Lane(events.PayloadBucket))
	if err != nil {
		t.Fatal(err)
	}
	held, err := bucket.GetBytes(ctx, events.Digest(said.Data))
	if err != nil {
		t.Fatal(err)
	}
	if data, err := bus.Decompress(held, events.MaxPayloadBytes); err != nil || !bytes.Equal(data, said.Data) {
		t.Errorf("%d of %d bytes, %v", len(data), len(said.Data), err)
	}
}

func TestAnEventWhosePayloadStaysUnreadableIsRefusedAndTheNextIsHeard(t *testing.T) {
	bus.SetUnreadableAfter(t, 100*time.Millisecond)
	ctx, b := newBus(t)
	publish(t, ctx, b, large("first"))
	publish(t, ctx, b, lost("n1", "silent"))
	purge(t, ctx, b, events.PayloadBucket, "C.>")
	expectRefusalAndTheNext(t, ctx, b)
}

func TestAPayloadBucketThatIsFullIsAnErrorAtThePublisher(t *testing.T) {
	ctx, b := connect(t, startServer(t).URL(), cluster)
	small := jetstream.ObjectStoreConfig{Bucket: b.Lane(events.PayloadBucket), MaxBytes: 300 << 10}
	if _, err := b.JetStream().CreateObjectStore(ctx, small); err != nil {
		t.Fatal(err)
	}
	if err := b.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	stored := 0
	for ; stored < 10; stored++ {
		if _, err := b.Publish(ctx, large(fmt.Sprint(stored))); errors.Is(err, bus.ErrFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if stored == 0 || stored == 10 {
		t.Fatalf("%d payloads of 90 KB in 300 KiB", stored)
	}
	if _, err := b.Publish(ctx, large(fmt.Sprint(stored))); !errors.Is(err, bus.ErrFull) {
		t.Errorf("the same again: expected ErrFull, got %v", err)
	}
	consumer := consume(t, ctx, b)
	for range stored {
		delivery := next(t, ctx, consumer)
		if delivery.Refusal != nil {
			t.Errorf("an event without its payload: %+v", delivery.Refusal)
		}
		if err := delivery.Ack(); err != nil {
			t.Fatal(err)
		}
	}
	log, err := b.JetStream().Stream(ctx, b.Lane(events.EventStream.Name))
	if err != nil || log.CachedInfo().State.LastSeq != uint64(stored) {
		t.Errorf("%d events and %d payloads, %v", log.CachedInfo().State.LastSeq, stored, err)
	}
}

func TestAPayloadBucketThatMakesRoomRefusesNobodyAndHasWhatIsNew(t *testing.T) {
	bus.SetUnreadableAfter(t, 100*time.Millisecond)
	ctx, b := connect(t, startServer(t).URL(), cluster)
	lane := b.Lane(events.PayloadBucket)
	name := "OBJ_" + lane
	_, err := b.JetStream().CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{"$O." + lane + ".C.>", "$O." + lane + ".M.>"},
		MaxBytes: 300 << 10, Discard: jetstream.DiscardOld, AllowDirect: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	const said = 10
	for i := range said {
		publish(t, ctx, b, large(fmt.Sprint(i)))
	}
	if err := b.Provisioned(ctx); err != nil {
		t.Errorf("what makes room is not full: %v", err)
	}
	consumer, dropped := consume(t, ctx, b), 0
	for i := range said {
		delivery := next(t, ctx, consumer)
		if gone := delivery.Refusal != nil && delivery.Refusal.Reason == bus.Unreadable; gone && dropped == i {
			dropped++
		} else if gone || dropped == 0 || delivery.Refusal != nil {
			t.Errorf("event %d: refused %+v, and %d before it", i, delivery.Refusal, dropped)
		}
		if err := delivery.Ack(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOnlyTheBucketOfPayloadsDropsWhatItHasForWhatComes(t *testing.T) {
	ctx, b := newBus(t)
	for names := b.JetStream().StreamNames(ctx).Name(); ; {
		name, more := <-names
		if !more {
			return
		}
		stream, err := b.JetStream().Stream(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		drops := stream.CachedInfo().Config.Discard == jetstream.DiscardOld
		if drops != (name == "OBJ_"+b.Lane(events.PayloadBucket)) {
			t.Errorf("%s drops what it holds: %v", name, drops)
		}
	}
}

func TestAPutThatFailedHalfWayIsMadeGoodByTheNext(t *testing.T) {
	ctx, b := newBus(t)
	data := bytes.Repeat([]byte("shard"), 1<<18)
	digest, err := b.Put(ctx, events.ShardBucket, data)
	if err != nil {
		t.Fatal(err)
	}
	purge(t, ctx, b, events.ShardBucket, "C.>")
	if _, err := b.Get(ctx, events.ShardBucket, digest); !errors.Is(err, bus.ErrIncomplete) {
		t.Errorf("expected ErrIncomplete, got %v", err)
	}
	if _, err := b.Put(ctx, events.ShardBucket, data); err != nil {
		t.Fatal(err)
	}
	if read, err := b.Get(ctx, events.ShardBucket, digest); err != nil || !bytes.Equal(read, data) {
		t.Errorf("%d bytes, %v", len(read), err)
	}
}

func TestAFullLogIsAnErrorAtThePublisher(t *testing.T) {
	ctx, b := connect(t, startServer(t).URL(), cluster)
	small := jetstream.StreamConfig{
		Name: b.Lane(events.EventStream.Name), Subjects: events.EventStream.Subjects(cluster), MaxBytes: 32 << 10, Discard: jetstream.DiscardNew,
	}
	if _, err := b.JetStream().CreateStream(ctx, small); err != nil {
		t.Fatal(err)
	}
	if err := b.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	if err := b.Provisioned(ctx); err != nil {
		t.Errorf("there is room: %v", err)
	}
	var err error
	for i := 0; err == nil && i < 100; i++ {
		_, err = b.Publish(ctx, lost(fmt.Sprint("n", i), "silent"))
	}
	if !errors.Is(err, bus.ErrFull) {
		t.Errorf("expected ErrFull, got %v", err)
	}
	if err := b.Provisioned(ctx); !errors.Is(err, bus.ErrFull) {
		t.Errorf("expected ErrFull, got %v", err)
	}
}

func TestAPayloadOutlivesEveryEventThatNamesIt(t *testing.T) {
	ages := map[string]time.Duration{}
	for _, store := range events.ObjectStores {
		ages[store.Bucket] = store.MaxAge
	}
	for _, stream := range []events.Stream{events.EventStream, events.PlanStream} {
		age, known := ages[stream.Payloads]
		if outlives := age == 0 || stream.MaxAge > 0 && age > stream.MaxAge+events.FreshAge; !known || !outlives {
			t.Errorf("%s drops what is older than %v, its payloads in %q go after %v", stream.Name, stream.MaxAge,
				stream.Payloads, age)
		}
	}
}

// expectRefusalAndTheNext expects an event whose payload cannot be read, and the loss that was said behind it.
func expectRefusalAndTheNext(t *testing.T, ctx context.Context, b *bus.Bus) {
	t.Helper()
	consumer := consume(t, ctx, b)
	refused := next(t, ctx, consumer)
	if refused.Refusal == nil || refused.Refusal.Reason != bus.Unreadable {
		t.Fatalf("expected %s, got %+v", bus.Unreadable, refused)
	}
	if err := refused.Ack(); err != nil {
		t.Fatal(err)
	}
	if after := next(t, ctx, consumer); after.Event.Kind != events.NodeLost {
		t.Errorf("got %+v", after)
	}
}
