package shards

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/window"
)

func TestPartsComeOnceByTheBucketAndAreNotThereAfterwards(t *testing.T) {
	want := cut(content(40, 9*testPart+777))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want.offerTo(store)
	put := putInto(t, store)
	progress := fetch(t, transferFrom(t, store.source()), want)
	if progress.Sources[0].Bytes != progress.Total || progress.Duplicate != 0 {
		t.Errorf("%+v: expected each byte once", progress)
	}
	until(t, "each byte was put", func() bool { return put.Load() >= progress.Total })
	if put.Load() > progress.Total {
		t.Errorf("%d bytes were put of %d", put.Load(), progress.Total)
	}
	until(t, "nothing is left in the bucket", func() bool { return messagesIn(t, store) == 0 })
}

// putInto counts the bytes of chunks that are put into a store from now on.
func putInto(t *testing.T, store *Store) (bytes *atomic.Int64) {
	t.Helper()
	bytes = &atomic.Int64{}
	conn := ownersConn(t, store)
	heard, err := conn.Subscribe(chunkSubject(store.bucket, ">"), func(chunk *nats.Msg) { bytes.Add(int64(len(chunk.Data))) })
	if err == nil {
		err = heard.SetPendingLimits(-1, -1)
	}
	if err := cmp.Or(err, conn.Flush()); err != nil {
		t.Fatal(err)
	}
	return bytes
}

// sequence is how many messages were ever put.
func sequence(t *testing.T, store *Store) uint64 {
	info, err := store.stream.Info(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return info.State.LastSeq
}

// messagesOf is how many messages a layer is: the chunks and a record of each part.
func messagesOf(l layer) (messages uint64) {
	for _, part := range l.parts {
		messages += uint64(chunksOf(part.End-part.First)) + 1
	}
	return messages
}

func TestReadersAtATimeShareWhatIsPut(t *testing.T) {
	want := cut(content(41, testPart))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want.offerTo(store)
	var readers []*nats.Conn
	for range 3 {
		readers = append(readers, reads(t, store))
		if _, err := readers[len(readers)-1].Request(wantSubject(store.bucket), []byte(want.parts[0].Digest), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if put := sequence(t, store); put != messagesOf(want) {
		t.Errorf("%d messages were put, expected those of one part", put)
	}
	for i, reader := range readers {
		if messagesIn(t, store) == 0 {
			t.Errorf("the part was removed though %d readers need it", len(readers)-i)
		}
		if _, err := reader.Request(haveSubject(store.bucket), []byte(want.parts[0].Digest), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the part is removed", func() bool { return messagesIn(t, store) == 0 })
}

func TestTheLibraryReadsWhatIsGivenWhileItIsGiven(t *testing.T) {
	want := cut(content(42, testPart+12345))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want.offerTo(store)
	reader := reads(t, store)
	for _, part := range want.parts {
		if _, err := reader.Request(wantSubject(store.bucket), []byte(part.Digest), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	objects := library(t, store)
	listed, err := objects.List(within(t))
	if err != nil || len(listed) != len(want.parts) {
		t.Fatalf("%v, %v: expected %d objects", listed, err, len(want.parts))
	}
	for _, part := range want.parts {
		got, err := objects.GetBytes(within(t), part.Digest)
		if err != nil || !bytes.Equal(got, want.data[part.First:part.End]) {
			t.Errorf("%s: %d bytes, %v", part.Digest, len(got), err)
		}
	}
}

// wantAll has a reader want all parts of a layer, and hear nothing.
func wantAll(t *testing.T, reader *nats.Conn, store *Store, want layer) {
	t.Helper()
	for _, part := range want.parts {
		if err := reader.Publish(wantSubject(store.bucket), []byte(part.Digest)); err != nil {
			t.Fatal(err)
		}
	}
	if err := reader.Flush(); err != nil {
		t.Fatal(err)
	}
}

func bytesIn(t *testing.T, store *Store) int64 {
	t.Helper()
	info, err := store.stream.Info(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return int64(info.State.Bytes)
}

func TestReadersThatTakeNothingFillTheirWindowsAndNoMore(t *testing.T) {
	const perMessage = 1 << 10
	want := cut(content(43, 48*testPart))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want.offerTo(store)
	readers := []*nats.Conn{reads(t, store, from(1)), reads(t, store, from(2)), reads(t, store, from(3))}
	wantAll(t, readers[0], store, want)
	until(t, "one reader's window is full", func() bool { return bytesIn(t, store) >= window.ReaderBytes })
	if held := bytesIn(t, store); held > window.ReaderBytes+window.ReaderBytes/chunkBytes*2*perMessage {
		t.Errorf("%d bytes for one reader", held)
	}
	wantAll(t, readers[1], store, layer{want.data, want.parts[16:32]})
	wantAll(t, readers[2], store, layer{want.data, want.parts[32:]})
	until(t, "the store's window is full", func() bool { return bytesIn(t, store) >= window.TotalBytes })
	if held := bytesIn(t, store); held > bucketBytes {
		t.Errorf("%d bytes in all", held)
	}
	for _, reader := range readers {
		reader.Close()
	}
	until(t, "readers that are gone leave nothing", func() bool { return messagesIn(t, store) == 0 })
}

func TestWhoTakesNothingDoesNotHoldUpAnother(t *testing.T) {
	want := cut(content(44, 20*testPart))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want.offerTo(store)
	reader := reads(t, store, from(2))
	wantAll(t, reader, store, want)
	until(t, "its window is full", func() bool { return bytesIn(t, store) >= window.ReaderBytes })
	if progress := fetch(t, transferFrom(t, store.source()), want); progress.Duplicate != 0 {
		t.Errorf("%+v", progress)
	}
}

// A node that connects again and again, and takes nothing, has one window in all.
func TestHoweverManyConnectionsANodeHasItsWindowIsOne(t *testing.T) {
	want, other := cut(content(52, 32*testPart)), cut(content(53, testPart))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want.offerTo(store)
	other.offerTo(store)
	for first := range 16 {
		wantAll(t, reads(t, store, from(2)), store, layer{want.data, want.parts[2*first : 2*first+2]})
	}
	until(t, "the window of that node is full", func() bool { return bytesIn(t, store) >= window.ReaderBytes })
	fetch(t, transferFrom(t, store.source()), other)
	until(t, "the node has its window and no more", func() bool { return bytesIn(t, store) <= window.ReaderBytes*17/16 })
}

func TestTwoNodesGiveToEachOther(t *testing.T) {
	layers := []layer{cut(content(45, 12*testPart)), cut(content(46, 12*testPart))}
	stores := []*Store{serve(t, StoreConfig{Bucket: "shards-n1"}), serve(t, StoreConfig{Bucket: "shards-n2"})}
	var both sync.WaitGroup
	for i, store := range stores {
		layers[i].offerTo(store)
		both.Go(func() { fetch(t, transferFrom(t, store.source()), layers[i]) })
	}
	both.Wait()
}

func TestAPartThatIsNotGivenIsRefusedAtOnce(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	data := content(47, testPart)
	digest := events.Digest(data)
	store.Withdraw(store.Offer(digest, data))
	answer, err := reads(t, store).RequestWithContext(within(t), wantSubject(store.bucket), []byte(digest))
	if err != nil || answer.Header.Get("Status") != statusAbsent || len(answer.Data) > 0 {
		t.Errorf("%+v, %v: expected status 404", answer, err)
	}
	if _, err := store.Get(digest); !errors.Is(err, ErrNotGiven) {
		t.Errorf("%v: expected ErrNotGiven", err)
	}
	if messages := messagesIn(t, store); messages != 0 {
		t.Errorf("%d messages are left", messages)
	}
}

func TestWhatOneOwnerWithdrawsAnotherStillGives(t *testing.T) {
	zeros := cut(make([]byte, testPart))
	digest := zeros.parts[0].Digest
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	first, second := store.Offer(digest, zeros.data), store.Offer(digest, slices.Clone(zeros.data))
	store.Withdraw(first)
	if progress := fetch(t, transferFrom(t, store.source()), zeros); progress.Sources[0].Bytes != testPart {
		t.Errorf("%+v", progress)
	}
	store.Withdraw(second)
	until(t, "nothing is left in the bucket", func() bool { return messagesIn(t, store) == 0 })
}

// The race detector judges it.
func TestMemoryThatIsWithdrawnWhileItIsPutIsItsOwnersAgain(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	data, others := content(48, testPart), content(49, testPart)
	digest := events.Digest(data)
	reader := reads(t, store)
	for range 20 {
		offering := store.Offer(digest, data)
		if err := reader.Publish(wantSubject(store.bucket), []byte(digest)); err != nil {
			t.Fatal(err)
		}
		until(t, "it is being put", func() bool { return sequence(t, store) > 0 })
		store.Withdraw(offering)
		copy(data, others) // unlike clear, the detector sees it
	}
	until(t, "nothing is left in the bucket", func() bool { return messagesIn(t, store) == 0 })
}

func TestATransferGoesOnWhereAPartWasRemovedUnderIt(t *testing.T) {
	want := cut(content(50, 4*testPart))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want.offerTo(store)
	transfer := transferFrom(t, (&link{rate: 20 << 20}).open(t, store))
	ended := make(chan Progress)
	go func() { ended <- fetch(t, transfer, want) }()
	until(t, "some of it came", func() bool { return transfer.Progress().Sources[0].Bytes > 0 })
	endWindow(store)
	if progress := <-ended; progress.Duplicate > 0 {
		t.Errorf("%+v: expected no byte twice", progress)
	}
}

// endWindow has a store take all that is in its bucket from its readers, as it does with one who takes nothing for long.
func endWindow(store *Store) {
	store.gives.mutex.Lock()
	defer store.gives.mutex.Unlock()
	for _, reader := range store.gives.window.Readers() {
		store.gives.window.Gone(reader)
	}
	store.step()
}

func TestARecordTellsTheLibraryWhereItsChunksAre(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	data := content(51, 3*chunkBytes+1)
	digest := events.Digest(data)
	store.Offer(digest, data)
	answer, err := reads(t, store).RequestWithContext(within(t), wantSubject(store.bucket), []byte(digest))
	if err != nil {
		t.Fatal(err)
	}
	told, err := parseManifest(answer)
	if err != nil || told == nil {
		t.Fatalf("%v, %v", told, err)
	}
	info, err := library(t, store).GetInfo(within(t), digest)
	if err != nil || info.NUID != told.info.NUID || info.Digest != told.info.Digest || len(told.sequences) != 4 {
		t.Errorf("%+v, %v, told %+v", info, err, told)
	}
	if _, err := library(t, store).GetInfo(within(t), "other"); !errors.Is(err, jetstream.ErrObjectNotFound) {
		t.Errorf("%v: expected ErrObjectNotFound", err)
	}
}
