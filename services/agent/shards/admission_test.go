package shards

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/queue"
)

// refusedTo is where a connection's permission violations arrive.
func refusedTo(violations chan error) nats.Option {
	return nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { violations <- err })
}

func TestAReaderHearsItsOwnAnswersAndNobodyElses(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	other := reads(t, store)
	for _, subject := range []string{
		">", "_INBOX.>", "_INBOX.*.>", "_INBOX.*.*", "_R_.>", "shards.>", "$JS.>", "$O.>", strings.TrimSuffix(other.NewInbox(), ".x"),
	} {
		violations := make(chan error, 1)
		reader := reads(t, store, refusedTo(violations))
		if _, err := reader.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-violations:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%s: %v", subject, err)
			}
		case <-within(t).Done():
			t.Errorf("%s: was not refused", subject)
		}
	}
}

func TestAConnectionThatIsNotNamedAfterAnInboxHearsNothing(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	for _, name := range []string{"", "shards", "_INBOX", "_INBOX.>", "_INBOX.*", "_INBOX.short", "_INBOX." + strings.Repeat("a", 65), owner} {
		violations := make(chan error, 1)
		conn := dialAs(t, store.URL(), nats.Name(name), refusedTo(violations))
		if _, err := conn.SubscribeSync(conn.NewInbox()); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-violations:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%q: %v", name, err)
			}
		case <-within(t).Done():
			t.Errorf("%q: was not refused", name)
		}
	}
}

// A name of the owner without its secret makes a reader, and no more.
func TestNobodyIsTheOwnerWithoutItsSecret(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	for _, password := range []string{"", owner, "x"} {
		violations := make(chan error, 1)
		conn := reads(t, store, nats.UserInfo(owner, password), refusedTo(violations))
		if err := conn.Publish("$JS.API.STREAM.PURGE.OBJ_shards-n1", nil); err != nil {
			t.Fatal(err)
		}
		select {
		case <-violations:
		case <-within(t).Done():
			t.Errorf("%q: was not refused", password)
		}
	}
}

// A liar has what every reader has, and asks in the name of each token that it hears.
func TestNoReaderSpoilsAnothersTransfer(t *testing.T) {
	want := cut(content(70, 8*testPart))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want.offerTo(store)
	other := content(71, 1000)
	store.Offer(events.Digest(other), other)
	heard := make(chan struct{}, 1<<16)
	liar := reads(t, store, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if _, err := liar.Subscribe("_INBOX.>", func(message *nats.Msg) {
		heard <- struct{}{}
		at := strings.LastIndex(message.Subject, ".") + 1
		token, _ := strconv.Atoi(message.Subject[at:])
		for ahead := range 6 {
			reply := message.Subject[:at] + strconv.Itoa(token+ahead+1)
			_ = liar.PublishRequest(wantSubject(store.bucket), reply, []byte(events.Digest(other)))
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := liar.Flush(); err != nil {
		t.Fatal(err)
	}
	fetch(t, transferFrom(t, (&link{rate: 20 << 20}).open(t, store)), want)
	if len(heard) > 0 {
		t.Errorf("a reader heard %d answers to another", len(heard))
	}
}

// A record of another part comes as the answer for this one: it is not believed, though it has the part's size.
func TestARecordOfAnotherPartIsNotTakenForThisOnes(t *testing.T) {
	want, others := cut(content(72, testPart)), cut(content(73, testPart))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want.offerTo(store)
	others.offerTo(store)
	answer, err := reads(t, store).Request(wantSubject(store.bucket), []byte(others.parts[0].Digest), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	found, err := parseManifest(answer)
	if err != nil {
		t.Fatal(err)
	}
	part := queue.NewPart(want.parts[0].Digest, make([]byte, testPart), nil)
	asked := &pull{from: &source{}, piece: piece{digest: part.Digest}, claim: &queue.Claim{Part: part}}
	if asked.isOfPiece(found.info) {
		t.Error("it is believed")
	}
}

// endsWith returns a channel on which a connection tells that it has ended for good.
func endsWith(ended chan struct{}) nats.Option {
	return func(options *nats.Options) error {
		options.AllowReconnect, options.ClosedCB = false, func(*nats.Conn) { close(ended) }
		return nil
	}
}

func TestANodeHasSoManyConnectionsAndItsOldestEnds(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	other, oldest := reads(t, store, from(3)), make(chan struct{})
	reads(t, store, from(2), endsWith(oldest))
	for range hostConnections {
		reads(t, store, from(2))
	}
	select {
	case <-oldest:
	case <-within(t).Done():
		t.Fatal("the oldest connection stays")
	}
	if clients := store.server.NumClients(); clients > hostConnections+2 { // the owner's, and the other's
		t.Errorf("%d connections", clients)
	}
	if err := other.FlushWithContext(within(t)); err != nil {
		t.Errorf("another node's connection: %v", err)
	}
}

func TestWhoAsksAtLengthIsCutOff(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	reader := reads(t, store, refusedTo(make(chan error, 8)))
	if err := reader.Publish(wantSubject(store.bucket), make([]byte, maxRequest)); err != nil {
		t.Fatal(err)
	}
	if err := reader.FlushWithContext(within(t)); err != nil {
		t.Fatalf("%d bytes: %v", maxRequest, err)
	}
	raw, err := net.Dial("tcp", strings.TrimPrefix(store.URL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	fmt.Fprintf(raw, "CONNECT {\"verbose\":false}\r\nPUB %s %d\r\n", wantSubject(store.bucket), maxRequest+1)
	heard, err := io.ReadAll(raw)
	if !strings.Contains(string(heard), "Maximum Payload") {
		t.Errorf("%q, %v: expected that it is cut off", heard, err)
	}
}

func TestAConnectionHasSoManySubscriptionsAndNoMore(t *testing.T) {
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	refused := make(chan error, 1)
	reader := reads(t, store, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		select {
		case refused <- err:
		default:
		}
	}))
	for range maxSubscriptions + 1 {
		if _, err := reader.SubscribeSync(reader.NewInbox()); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-refused:
		if !errors.Is(err, nats.ErrMaxSubscriptionsExceeded) {
			t.Error(err)
		}
	case <-within(t).Done():
		t.Error("none was refused")
	}
}
