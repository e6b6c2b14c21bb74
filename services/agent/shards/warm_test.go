package shards

import (
	"bytes"
	"testing"
	"time"

	"github.com/reknit/reknit/services/agent/queue"
)

func TestATransferThatWaitsForItsFirstLayerWarmsItsConnections(t *testing.T) {
	want := cut(content(31, 2*testPart))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want.offerTo(store)
	var between link
	transfer := transferFrom(t, between.open(t, store))
	ended := make(chan error)
	go func() { ended <- transfer.Run(within(t)) }()
	until(t, "the source is there", func() bool { return transfer.Progress().Sources[0].State == Idle })
	until(t, "the link carried the zeros", func() bool { return between.carried.Load() >= warmMessages*chunkBytes })
	into := make([]byte, len(want.data))
	if err := transfer.Add(Layer{Into: into, Parts: want.parts}); err != nil {
		t.Fatal(err)
	}
	transfer.Seal()
	if err := <-ended; err != nil || !bytes.Equal(into, want.data) {
		t.Fatalf("%v, right bytes: %t", err, bytes.Equal(into, want.data))
	}
	if progress := transfer.Progress(); progress.Sources[0].Bytes != progress.Total || progress.Duplicate != 0 {
		t.Errorf("zeros count as bytes: %+v", progress)
	}
}

func TestATransferThatHasALayerDoesNotWaitForZeros(t *testing.T) {
	want := cut(content(32, testPart))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want.offerTo(store)
	var between link
	fetch(t, transferFrom(t, between.open(t, store)), want)
	if carried := between.carried.Load(); carried > testPart+chunkBytes {
		t.Errorf("the link carried %d bytes", carried)
	}
}

func TestZerosNeverComeIntoTheBucket(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	reader := reads(t, store)
	ask := warmSubject("shards-n1")
	if err := reader.PublishRequest(ask, chunkSubject("shards-n1", "forged"), []byte("8")); err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Request(ask, []byte("1"), time.Minute); err != nil { // the store answers in turn
		t.Fatal(err)
	}
	if messages := messagesIn(t, store); messages != 0 {
		t.Errorf("%d messages", messages)
	}
}

func TestAConnectionIsWarmedByWhatItsLinkCarriesInAWhile(t *testing.T) {
	for bytesPerSecond, messages := range map[float64]int{0: warmMessages, 1: 1, 20e6: 2, 70e6: 7, 1e9: warmMessages} {
		if got := warmCount(bytesPerSecond); got != messages {
			t.Errorf("%.0f bytes/s: %d messages, expected %d", bytesPerSecond, got, messages)
		}
	}
}

func TestAManifestThatWasAskedForTooEarlyIsAskedForAgain(t *testing.T) {
	want := cut(content(33, testPart))
	hub := startHub(t)
	transfer := transferFrom(t, hub.source(true))
	from, err := dial(within(t), hub.source(true), transfer.idle, func(bool, time.Duration) {}, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	defer from.conn.Close()
	digest := want.parts[0].Digest
	if err := from.askManifestAhead(digest); err != nil {
		t.Fatal(err)
	}
	until(t, "the store says that it has none", func() bool {
		from.mutex.Lock()
		defer from.mutex.Unlock()
		return len(from.ahead[digest].messages) == 1
	})
	hub.put(t, want, chunkBytes)
	part := queue.NewPart(digest, make([]byte, testPart), transfer.queue.Sources)
	waiting := &queue.Claim{Part: part, Source: transfer.queue.Sources[0]}
	if _, err := (&pull{transfer: transfer, from: from, claim: waiting, piece: piece{digest: digest}}).find(within(t)); err != nil {
		t.Error(err)
	}
}
