package agentd

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/fence"
	"github.com/reknit/reknit/shared/embedded"
)

const patience = 2 * time.Minute

// holed returns a way to a server that passes nothing once it is told so, and keeps its connections: nobody is told of it.
func holed(t *testing.T, server string) (url string, hole *atomic.Bool) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	hole = &atomic.Bool{}
	pass := func(from, to net.Conn) {
		defer to.Close()
		for bytes := make([]byte, 64<<10); ; {
			read, err := from.Read(bytes)
			if !hole.Load() {
				_, _ = to.Write(bytes[:read]) // from ends, too
			}
			if err != nil {
				return
			}
		}
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			hub, err := net.Dial("tcp", strings.TrimPrefix(server, "nats://"))
			if err != nil {
				client.Close()
				continue
			}
			go pass(client, hub)
			go pass(hub, client)
		}
	}()
	return "nats://" + listener.Addr().String(), hole
}

// Its rank 0 would write beside the one that the others start without it (faults 9).
func TestANodeWhoseWayToTheHubPassesNothingAnyMoreHasItsScriptStopped(t *testing.T) {
	before := unheardFor
	unheardFor = 2 * fence.HearEvery
	t.Cleanup(func() { unheardFor = before })
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	hears, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hears.Close)
	pulses, err := hears.SubscribeSync(events.PulseSubject("c", "n1"))
	if err == nil {
		err = hears.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	url, hole := holed(t, server.URL())
	s := beginStandIn(t.Context(), Config{URL: url, Cluster: "c", Node: "n1", Listen: "127.0.0.1:0"}, "train.py")
	t.Cleanup(func() { hole.Store(false); s.close(end{}) })
	for range 2 {
		if _, err := pulses.NextMsg(patience); err != nil {
			t.Fatalf("the node does not take part: %v", err)
		}
	}
	hole.Store(true)
	select {
	case <-s.cut:
	case err := <-s.ended:
		t.Fatalf("the node ended: %v", err)
	case <-time.After(patience):
		t.Fatal("its script runs on")
	}
}
