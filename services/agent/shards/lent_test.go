package shards

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

func TestLentPartsComeFromMemoryAndAreNotStored(t *testing.T) {
	want := cut(content(40, 3*testPart+777))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want.lendTo(store)
	progress := fetch(t, transferFrom(t, store.source()), want)
	if progress.Sources[0].Bytes != progress.Total || messagesIn(t, store) > 0 {
		t.Errorf("%+v, %d messages stored: expected each byte once, and nothing stored", progress, messagesIn(t, store))
	}
}

func TestStoredAndLentPartsComeInOneTransfer(t *testing.T) {
	want := cut(content(41, 4*testPart))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	layer{want.data, want.parts[:2]}.putInto(t, store)
	layer{want.data, want.parts[2:]}.lendTo(store)
	if progress := fetch(t, transferFrom(t, store.source()), want); progress.Duplicate > 0 {
		t.Errorf("%+v: expected no byte twice", progress)
	}
}

func TestTheLibraryReadsALentPartWhenItAsksAgain(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	data := content(42, testPart+12345)
	digest := events.Digest(data)
	loan := store.Lend(digest, data)
	conn, err := nats.Connect(store.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	objects := library(t, conn, "shards-n1")
	got, err := objects.GetBytes(within(t), digest)
	for ctx := within(t); errors.Is(err, jetstream.ErrObjectNotFound) && ctx.Err() == nil; {
		got, err = objects.GetBytes(ctx, digest)
	}
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("got %d bytes, %v; expected the %d that were lent", len(got), err, len(data))
	}
	store.Recall(loan)
	if err := store.Retire(within(t), digest); err != nil || messagesIn(t, store) > 0 {
		t.Errorf("%v, %d messages are left", err, messagesIn(t, store))
	}
}

func TestNothingReadsMemoryThatWasRecalled(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	data := content(43, testPart)
	digest := events.Digest(data)
	store.Recall(store.Lend(digest, data))
	conn, err := nats.Connect(store.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answer, err := conn.RequestWithContext(within(t), lentSubject("shards-n1"), fmt.Append(nil, digest, " 0"))
	if err != nil || answer.Header.Get("Status") != "404" || len(answer.Data) > 0 {
		t.Errorf("%+v, %v: expected status 404", answer, err)
	}
	if _, err := store.Get(within(t), digest); !errors.Is(err, jetstream.ErrObjectNotFound) {
		t.Errorf("%v: expected ErrObjectNotFound", err)
	}
}

func TestAServerThatMayNotPassOnRequestsForLentPartsIsReadByItsManifests(t *testing.T) {
	hub, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
		Users: []*server.User{{Username: "reader", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: []string{lentSubject("shards-n1")}},
		}}}, NoAuthUser: "reader",
	})
	if err != nil {
		t.Fatal(err)
	}
	hub.Start()
	t.Cleanup(hub.Shutdown)
	conn, err := nats.Connect(hub.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := js.CreateObjectStore(within(t), jetstream.ObjectStoreConfig{Bucket: "shards-n1"})
	if err != nil {
		t.Fatal(err)
	}
	want := cut(content(44, 2*testPart))
	for _, part := range want.parts {
		if _, err := objects.PutBytes(within(t), part.Digest, want.data[part.First:part.End]); err != nil {
			t.Fatal(err)
		}
	}
	transfer := transferFrom(t, Source{Name: "n1", URL: hub.ClientURL(), Bucket: "shards-n1"})
	transfer.stall = 300 * time.Millisecond
	fetch(t, transfer, want)
}

// As a giver that is paused for a moment: what it sends first is lost.
func TestASourceThatIsSilentAtFirstLendsAllTheSame(t *testing.T) {
	want := cut(content(45, 4*testPart))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want.lendTo(store)
	paused := (&link{loseAt: chunkBytes / 2}).open(t, store) // behind the server's greeting
	transfer := transferFrom(t, paused)
	transfer.stall = 300 * time.Millisecond
	if progress := fetch(t, transfer, want); messagesIn(t, store) > 0 {
		t.Errorf("%+v, %d messages stored: expected all from memory", progress, messagesIn(t, store))
	}
}

func TestAPartThatIsNotThereYetHasNoOthersStored(t *testing.T) {
	want := cut(content(50, 4*testPart))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	layer{want.data, want.parts[1:]}.lendTo(store)
	transfer := transferFrom(t, store.source())
	time.AfterFunc(100*time.Millisecond, func() { layer{want.data, want.parts[:1]}.lendTo(store) })
	progress, itself := fetch(t, transfer, want), uint64(testPart/chunkBytes+1)
	if stored := messagesIn(t, store); stored > itself { // it may have come between two questions
		t.Errorf("%+v, %d messages stored: expected the others from memory", progress, stored)
	}
}

func TestWhatOneOwnerRetiresAnotherStillLends(t *testing.T) {
	zeros := cut(make([]byte, testPart))
	digest := zeros.parts[0].Digest
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	first, second := store.Lend(digest, zeros.data), store.Lend(digest, slices.Clone(zeros.data))
	storeOnRequest(t, store, digest)
	store.Recall(first)
	if err := store.Retire(within(t), digest); err != nil {
		t.Fatal(err)
	}
	progress := fetch(t, transferFrom(t, store.source()), zeros)
	if stored := messagesIn(t, store); progress.Sources[0].Bytes != testPart || stored == 0 {
		t.Errorf("%+v, %d messages are stored: expected the part from memory, and what a reader had stored", progress, stored)
	}
	store.Recall(second)
	if err := store.Retire(within(t), digest); err != nil || messagesIn(t, store) > 0 {
		t.Errorf("%v, %d messages are left, though nobody lends the part", err, messagesIn(t, store))
	}
}

// storeOnRequest has a store put a part into its bucket, as for a reader that knows only that.
func storeOnRequest(t *testing.T, store *Store, digest string) {
	t.Helper()
	conn, err := nats.Connect(store.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	objects := library(t, conn, store.bucket)
	ctx := within(t)
	_, err = objects.GetBytes(ctx, digest)
	for errors.Is(err, jetstream.ErrObjectNotFound) && ctx.Err() == nil {
		_, err = objects.GetBytes(ctx, digest)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestAPartThatFoundNoRoomIsStoredOnceThereIsSome(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1", MaxBytes: 2 * testPart})
	fills := put(t, store, content(46, testPart+testPart/2))
	data := content(47, testPart)
	digest := events.Digest(data)
	store.Lend(digest, data)
	store.storeLent(&nats.Msg{Subject: directSubject(store.bucket) + "." + metaSubject(store.bucket, digest)})
	if err := store.Retire(within(t), fills); err != nil || messagesIn(t, store) > 0 {
		t.Fatalf("%v, %d messages: expected that nothing found room", err, messagesIn(t, store))
	}
	storeOnRequest(t, store, digest)
}

// The race detector judges it.
func TestMemoryThatIsRecalledWhileItIsReadIsItsOwnersAgain(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	data := content(48, chunkBytes)
	digest, others := events.Digest(data), content(49, chunkBytes)
	for range 20 {
		loan := store.Lend(digest, data)
		var readers sync.WaitGroup
		answered := make(chan struct{}, 1000)
		for range 4 {
			readers.Go(func() { readUntilRecalled(t, store, digest, answered) })
		}
		<-answered
		store.Recall(loan)
		copy(data, others) // unlike clear, the detector sees it
		readers.Wait()
	}
}

// readUntilRecalled asks for a lent part over and over.
func readUntilRecalled(t *testing.T, store *Store, digest string, answered chan<- struct{}) {
	conn, err := nats.Connect(store.URL())
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	for {
		answer, err := conn.RequestWithContext(within(t), lentSubject(store.bucket), fmt.Append(nil, digest, " 0"))
		select {
		case answered <- struct{}{}:
		default:
		}
		if err != nil {
			t.Error(err)
		}
		if err != nil || answer.Header.Get("Status") == "404" {
			return
		}
	}
}
