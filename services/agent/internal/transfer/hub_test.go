package transfer

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/seal"
	"github.com/reknit/reknit/services/agent/shards"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
)

// hub returns the exchange of a node that is connected to a hub with all its stores.
func hub(t *testing.T) *Exchange {
	t.Helper()
	putPause = time.Millisecond
	t.Cleanup(func() { putPause = time.Second })
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	connection, err := bus.Connect(t.Context(), bus.Config{URL: server.URL(), Name: "test", Cluster: "c"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(connection.Close)
	if err := connection.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &Exchange{node: Node{Name: "n1", Bus: connection}}
}

// part is one of an open installation.
var part = toHub{digest: events.Digest([]byte("part")), data: []byte("part")}

func TestAHubThatTakesAPartIsNoError(t *testing.T) {
	if err := hub(t).putIntoHub(t.Context(), part); err != nil {
		t.Fatal(err)
	}
}

func TestAHubThatTakesNothingIsAtFaultItself(t *testing.T) {
	exchange := hub(t)
	if err := exchange.node.Bus.JetStream().DeleteObjectStore(t.Context(), exchange.node.Bus.Lane(events.ShardBucket)); err != nil {
		t.Fatal(err)
	}
	if err := exchange.putIntoHub(t.Context(), part); !errors.Is(err, ErrHub) {
		t.Errorf("expected ErrHub, got %v", err)
	}
}

func TestAHubThatDoesNotAnswerThisNodeMayAnswerOthers(t *testing.T) {
	exchange := hub(t)
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	if err := exchange.putIntoHub(late, part); err == nil || errors.Is(err, ErrHub) {
		t.Errorf("expected an error that is not the hub's, got %v", err)
	}
}

func TestTheHubKeepsWhatItCannotRead(t *testing.T) {
	exchange, part := hub(t), bytes.Repeat([]byte("a weight of the model "), 100_000)
	key := seal.New()
	exchange.key, exchange.node.HubURL = key, exchange.node.Bus.Conn().ConnectedUrl()
	digest, given := events.Digest(part), bytes.Clone(part)
	if err := exchange.putIntoHub(t.Context(), toHub{digest, given, key}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(given, part) {
		t.Fatal("what was given is sealed in its owner's memory")
	}
	store, err := exchange.node.Bus.JetStream().ObjectStore(t.Context(), exchange.node.Bus.Lane(events.ShardBucket))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := store.GetBytes(t.Context(), key.Name(digest))
	if err != nil {
		t.Fatal(err)
	}
	if len(kept) != len(part) || bytes.Contains(kept, []byte("a weight")) {
		t.Errorf("the hub keeps %d bytes of %d, expected as many that say nothing", len(kept), len(part))
	}
	if got, err := fetched(t, exchange.hub(), digest, len(part), time.Minute); err != nil || !bytes.Equal(got, part) {
		t.Errorf("the receiver whose key it is opens it to something else: %v", err)
	}
	for who, key := range map[string]seal.Key{"another node, with a key of its own": seal.New(), "one without": nil} {
		exchange.key = key
		if _, err := fetched(t, exchange.hub(), digest, len(part), 2*time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: expected to wait for a part that is not there, got %v", who, err)
		}
	}
}

// fetched is a part as a source has it within a time.
func fetched(t *testing.T, source shards.Source, digest string, size int, patience time.Duration) ([]byte, error) {
	t.Helper()
	transfer, err := shards.NewTransfer([]shards.Source{source})
	if err != nil {
		t.Fatal(err)
	}
	into := make([]byte, size)
	err = transfer.Add(shards.Layer{Into: into, Parts: []shards.Part{{Digest: digest, End: int64(size)}}})
	if err != nil {
		t.Fatal(err)
	}
	transfer.Seal()
	patient, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return into, transfer.Run(patient)
}

// A member that asked with ever fresh keys had its giver fill the store that all nodes share.
func TestTheHubHasOneCopyOfAPartForAReceiver(t *testing.T) {
	exchange := hub(t)
	store, err := shards.Serve(t.Context(), shards.StoreConfig{Bucket: "n1", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	exchange.node.Store = store
	sender := NewSender(t.Context(), exchange, nil)
	data := bytes.Repeat([]byte("x"), 1<<20)
	sender.given = append(sender.given, given{store.Offer(events.Digest(data), data), []string{"n2"}, func(err error) { t.Error(err) }})
	key := seal.New()
	for range 3 {
		if err := sender.SendViaHub("n2", key); err != nil {
			t.Errorf("asked again with the same key: %v", err)
		}
		if err := sender.SendViaHub("n2", seal.New()); err == nil {
			t.Error("a second key of one receiver is taken")
		}
	}
	hubs := exchange.hub()
	hubs.URL, hubs.Seal = exchange.node.Bus.Conn().ConnectedUrl(), key
	if got, err := fetched(t, hubs, events.Digest(data), len(data), time.Minute); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("the part for its first key: %v", err)
	}
	sender.mutex.Lock()
	defer sender.mutex.Unlock()
	if copies := len(sender.inHub); copies != 1 {
		t.Errorf("%d copies are put into the hub", copies)
	}
}
