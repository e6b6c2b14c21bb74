package shards

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/shared/embedded"
)

// hub is a server with the bucket "hub", into which the library puts.
type hub struct {
	url     string
	js      jetstream.JetStream
	objects jetstream.ObjectStore
}

func startHub(t *testing.T) hub {
	t.Helper()
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	js, err := jetstream.New(dialAs(t, server.URL()))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := js.CreateObjectStore(within(t), jetstream.ObjectStoreConfig{Bucket: "hub"})
	if err != nil {
		t.Fatal(err)
	}
	return hub{server.URL(), js, objects}
}

func (h hub) put(t *testing.T, puts layer, chunk uint32) {
	t.Helper()
	for _, part := range puts.parts {
		meta := jetstream.ObjectMeta{Name: part.Digest, Opts: &jetstream.ObjectMetaOptions{ChunkSize: chunk}}
		if _, err := h.objects.Put(within(t), meta, bytes.NewReader(puts.data[part.First:part.End])); err != nil {
			t.Fatal(err)
		}
	}
}

func (h hub) source(stored bool) Source {
	return Source{Name: "hub", URL: h.url, Bucket: "hub", Stored: stored}
}

func TestATransferReadsWhatTheLibraryPut(t *testing.T) {
	hub := startHub(t)
	for _, chunk := range []uint32{128 << 10, chunkBytes, 100_000} {
		want := cut(content(uint64(chunk), testPart+777))
		hub.put(t, want, chunk)
		for _, stored := range []bool{false, true} { // it is said, or found out
			fetch(t, transferFrom(t, hub.source(stored)), want)
		}
	}
}

// Nobody knows where the library's chunks lie: a claim in the middle of a part has all come that is before it.
func TestNothingComesTwiceOfWhatTheLibraryPutThoughAReaderClaimsPieces(t *testing.T) {
	hub, want := startHub(t), cut(content(13, 5*testPart+777))
	hub.put(t, want, chunkBytes)
	if progress := fetch(t, transferFrom(t, hub.source(false)), want); progress.Duplicate >= chunkBytes {
		t.Errorf("%d bytes came twice", progress.Duplicate)
	}
}

// An agent of an earlier build puts whole parts, and says of anything else that it does not give it.
func TestATransferReadsWholePartsOfAGiverThatKnowsNoPieces(t *testing.T) {
	hub, want := startHub(t), cut(content(12, 5*testPart+777))
	hub.put(t, want, chunkBytes)
	stream, err := hub.js.Stream(within(t), streamName("hub"))
	if err != nil {
		t.Fatal(err)
	}
	conn := dialAs(t, hub.url)
	if _, err := conn.Subscribe(wantSubject("hub"), func(asked *nats.Msg) {
		answer := &nats.Msg{Subject: asked.Reply, Header: nats.Header{"Status": {statusAbsent}}}
		if record, err := stream.GetLastMsgForSubject(within(t), metaSubject("hub", string(asked.Data))); err == nil {
			answer = &nats.Msg{Subject: asked.Reply, Data: record.Data}
		}
		_ = conn.PublishMsg(answer)
	}); err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	fetch(t, transferFrom(t, hub.source(false)), want)
}

// Nobody outside may write, make a stream or a consumer, or ask for a message in a way that needs more rights.
func TestNobodyOutsideWrites(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	for _, subject := range []string{
		"$O.shards-n1.C.x", "$O.shards-n1.M.x", "$JS.API.STREAM.PURGE.OBJ_shards-n1", "$JS.API.STREAM.DELETE.OBJ_shards-n1",
		"$JS.API.STREAM.CREATE.other", "$JS.API.STREAM.MSG.DELETE.OBJ_shards-n1", "$JS.API.STREAM.INFO.OBJ_shards-n1",
		"$JS.API.CONSUMER.CREATE.OBJ_shards-n1", "$JS.API.CONSUMER.DURABLE.CREATE.OBJ_shards-n1.x",
		"$JS.API.DIRECT.GET.OBJ_shards-n1.$O.shards-n1.M.x", "$JS.FC.OBJ_shards-n1.x", "_INBOX.other", "_R_.x", "pushed.a.b.1", "anything",
	} {
		refused := make(chan error, 1)
		conn := reads(t, store, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
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
	}
	if messages := messagesIn(t, store); messages != 0 {
		t.Fatalf("%d messages, expected none", messages)
	}
}

// A request of a hundred bytes named the bucket's own subjects for its answer: each filled the bucket with half a MiB.
func TestWhatTheBucketAnswersNeverLandsInIt(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want := cut(content(11, testPart))
	want.offerTo(store)
	reader := reads(t, store)
	if _, err := reader.Request(wantSubject("shards-n1"), []byte(want.parts[0].Digest), time.Minute); err != nil {
		t.Fatal(err)
	}
	before, first := messagesIn(t, store), fmt.Appendf(nil, `{"seq":1}`)
	api := "$JS.API.DIRECT.GET.OBJ_shards-n1"
	for _, reply := range []string{
		"$O.shards-n1.C.forged", "$O.shards-n1.M.forged", "$JS.API.STREAM.PURGE.OBJ_shards-n1", api, wantSubject("shards-n1"),
	} {
		for subject, data := range map[string][]byte{api: first, wantSubject("shards-n1"): []byte(want.parts[0].Digest), warmSubject("shards-n1"): []byte("1")} {
			if err := reader.PublishRequest(subject, reply, data); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := reader.Request(api, first, time.Minute); err != nil { // the store answers in turn
		t.Fatal(err)
	}
	if after := messagesIn(t, store); after != before || before == 0 {
		t.Errorf("%d messages, expected %d", after, before)
	}
}

func TestABucketThatCannotBeIsNamed(t *testing.T) {
	for _, bucket := range []string{"", "a.b", "a b", "*"} {
		if _, err := Serve(within(t), StoreConfig{Bucket: bucket}); err == nil {
			t.Errorf("%q was taken", bucket)
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

// It was waited for ten seconds, and the error asked whether the port was taken.
func TestAPortThatIsTakenIsNamedByItsSettingAtOnce(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, err = Serve(t.Context(), StoreConfig{Bucket: "shards-n1", Port: taken.Addr().(*net.TCPAddr).Port})
	if err == nil || !strings.Contains(err.Error(), "expected a free port in REKNIT_AGENT_SHARD_PORT") {
		t.Errorf("got %v", err)
	}
}
