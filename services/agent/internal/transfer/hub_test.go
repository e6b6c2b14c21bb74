package transfer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
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

func TestAHubThatTakesAPartIsNoError(t *testing.T) {
	if err := hub(t).putIntoHub(t.Context(), []byte("part")); err != nil {
		t.Fatal(err)
	}
}

func TestAHubThatTakesNothingIsAtFaultItself(t *testing.T) {
	exchange := hub(t)
	if err := exchange.node.Bus.JetStream().DeleteObjectStore(t.Context(), exchange.node.Bus.Lane(events.ShardBucket)); err != nil {
		t.Fatal(err)
	}
	if err := exchange.putIntoHub(t.Context(), []byte("part")); !errors.Is(err, ErrHub) {
		t.Errorf("expected ErrHub, got %v", err)
	}
}

func TestAHubThatDoesNotAnswerThisNodeMayAnswerOthers(t *testing.T) {
	exchange := hub(t)
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	if err := exchange.putIntoHub(late, []byte("part")); err == nil || errors.Is(err, ErrHub) {
		t.Errorf("expected an error that is not the hub's, got %v", err)
	}
}
