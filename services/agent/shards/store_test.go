package shards

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

func TestTheLibraryReadsWhatPutWrote(t *testing.T) {
	for _, memory := range []bool{false, true} {
		store := serve(t, StoreConfig{Bucket: "shards-n1", Memory: memory})
		data := content(1, testPart+12345)
		digest := put(t, store, data)
		conn, err := nats.Connect(store.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		got, err := library(t, conn, "shards-n1").GetBytes(within(t), digest)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("got %d bytes, %v; expected the %d that were put", len(got), err, len(data))
		}
	}
}

func TestATransferReadsWhatTheLibraryPut(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	for _, chunk := range []uint32{128 << 10, chunkBytes, 100_000} {
		want := cut(content(uint64(chunk), testPart+777))
		for _, part := range want.parts {
			meta := jetstream.ObjectMeta{Name: part.Digest, Opts: &jetstream.ObjectMetaOptions{ChunkSize: chunk}}
			data := bytes.NewReader(want.data[part.First:part.End])
			if _, err := library(t, store.conn, "shards-n1").Put(within(t), meta, data); err != nil {
				t.Fatal(err)
			}
		}
		fetch(t, transferFrom(t, store.source()), want)
	}
}

func TestPutTwiceStoresOnce(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	data := content(2, 3*chunkBytes)
	var puts sync.WaitGroup
	for range 8 {
		puts.Go(func() {
			if err := store.PutAs(within(t), events.Digest(data), data); err != nil {
				t.Error(err)
			}
		})
	}
	puts.Wait()
	if messages := messagesIn(t, store); messages != 4 {
		t.Fatalf("%d messages, expected three chunks and a manifest", messages)
	}
}

func TestWhatIsPutAsItsDigestIsThatContent(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	data := content(3, 2*chunkBytes)
	digest := events.Digest(data)
	if err := store.PutAs(within(t), digest, data); err != nil {
		t.Fatal(err)
	}
	if got, err := store.Get(within(t), digest); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%v, right bytes: %t", err, bytes.Equal(got, data))
	}
	digits := strings.TrimPrefix(digest, "sha256:")
	for _, bad := range []string{"", "sha256:", digits, digest + "00", "sha256:" + strings.Repeat("x", 64)} {
		err := store.PutAs(within(t), bad, data)
		if err == nil || !strings.Contains(err.Error(), "digest: expected sha256: and 64 digits") {
			t.Errorf("digest %q: got %v", bad, err)
		}
	}
}

func TestAFullStoreNamesItsLimitAndKeepsNothing(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1", MaxBytes: 4 << 20})
	small := content(4, chunkBytes)
	put(t, store, small)
	large := content(5, testPart)
	err := store.PutAs(within(t), events.Digest(large), large)
	if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "4194304 bytes") {
		t.Fatalf("got %v, expected ErrFull and the limit", err)
	}
	if messages := messagesIn(t, store); messages != 2 {
		t.Fatalf("%d messages, expected those of the first part", messages)
	}
}

func TestAPutThatIsGivenUpLeavesNoChunks(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	ctx, cancel := context.WithCancel(within(t))
	data := content(6, 64*chunkBytes)
	watcher, err := nats.Connect("", nats.InProcessServer(store.server),
		nats.UserInfo(store.conn.Opts.User, store.conn.Opts.Password))
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	if _, err := watcher.Subscribe("$O.shards-n1.C.>", func(*nats.Msg) { cancel() }); err != nil {
		t.Fatal(err)
	}
	if err := watcher.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := store.PutAs(ctx, events.Digest(data), data); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, expected that the put was given up", err)
	}
	if messages := messagesIn(t, store); messages != 0 {
		t.Fatalf("%d messages are left", messages)
	}
}

func TestARetiredPartLeavesNothing(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	kept, gone := content(7, chunkBytes), content(8, testPart)
	for _, data := range [][]byte{kept, gone} {
		put(t, store, data)
	}
	if err := store.Retire(within(t), events.Digest(gone), "sha256:00"); err != nil {
		t.Fatal(err)
	}
	if messages := messagesIn(t, store); messages != 2 {
		t.Fatalf("%d messages, expected those of the part that is kept", messages)
	}
}

func TestNobodyOutsideWrites(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	put(t, store, content(9, chunkBytes))
	for _, subject := range []string{
		"$O.shards-n1.C.x", "$O.shards-n1.M.x", "$JS.API.STREAM.PURGE.OBJ_shards-n1", "$JS.API.STREAM.DELETE.OBJ_shards-n1",
		"$JS.API.STREAM.CREATE.other", "$JS.API.STREAM.MSG.DELETE.OBJ_shards-n1", "_INBOX.other", "anything",
	} {
		refused := make(chan error, 1)
		hears := nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err })
		conn, err := nats.Connect(store.URL(), hears)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-refused:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%s: %v", subject, err)
			}
		case <-within(t).Done():
			t.Errorf("%s: was not refused", subject)
		}
		conn.Close()
	}
	if messages := messagesIn(t, store); messages != 2 {
		t.Fatalf("%d messages, expected a chunk and a manifest", messages)
	}
}

// A consumer delivers where its maker says: it must not carry messages to where its maker may not publish.
func TestAReadersConsumerDeliversNothingToTheServersInterface(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	put(t, store, content(10, chunkBytes))
	conn, err := nats.Connect(store.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, subject := range []string{
		"$JS.API.STREAM.DELETE.OBJ_shards-n1", "$JS.API.STREAM.PURGE.OBJ_shards-n1", "$O.shards-n1.C.forged",
	} {
		request := `{"stream_name":"OBJ_shards-n1","config":{"deliver_subject":"` + subject +
			`","headers_only":true,"deliver_policy":"all","ack_policy":"none"}}`
		if _, err := conn.Request("$JS.API.CONSUMER.CREATE.OBJ_shards-n1", []byte(request), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	consumers := store.stream.ListConsumers(within(t))
	for consumer := range consumers.Info() {
		if consumer.PushBound || consumer.Delivered.Consumer > 0 {
			t.Errorf("a consumer delivers to %s", consumer.Config.DeliverSubject)
		}
	}
	if messages := messagesIn(t, store); consumers.Err() != nil || messages != 2 {
		t.Fatalf("%v, %d messages, expected a chunk and a manifest", consumers.Err(), messages)
	}
}

// A put may be given up at any moment, and is then done again.
func TestAPutThatWasGivenUpNeverLeavesAManifestWithoutItsChunks(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1", Memory: true})
	for seed := range uint64(100) {
		data := content(seed+1000, 2*chunkBytes)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seed%25)*200*time.Microsecond)
		store.PutAs(ctx, events.Digest(data), data)
		cancel()
		digest := put(t, store, data)
		if read, err := store.Get(within(t), digest); err != nil || !bytes.Equal(read, data) {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := store.Retire(within(t), digest); err != nil {
			t.Fatal(err)
		}
	}
}

// A process that was killed leaves its directory; that of one that lives is not ours to remove.
func TestWhatAKilledProcessLeftIsSweptAway(t *testing.T) {
	parent, killed := t.TempDir(), exec.Command("true")
	if err := killed.Run(); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(parent, fmt.Sprintf("%s%d-1", tempPrefix, killed.Process.Pid))
	alive := filepath.Join(parent, fmt.Sprintf("%s%d-2", tempPrefix, os.Getppid()))
	for _, dir := range []string{left, alive} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	sweep(parent)
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("%s: %v", left, err)
	}
	if _, err := os.Stat(alive); err != nil {
		t.Error(err)
	}
}
