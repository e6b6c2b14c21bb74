package bus_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/shared/bus"
)

func TestAServerThatTakesLongToLetSomebodyInIsNotLeftForEver(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	b, err := bus.Connect(ctx, bus.Config{URL: behind(t, startServer(t).URL(), 3*time.Second), Name: "late", Cluster: "opticks"})
	if err != nil {
		t.Fatalf("expected a connection by the second attempt, which waits longer: %v", err)
	}
	b.Close()
}

// behind returns the URL of a server that lets everybody wait before anything goes to and fro.
func behind(t *testing.T, url string, wait time.Duration) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				time.Sleep(wait)
				server, err := net.Dial("tcp", url[len("nats://"):])
				if err != nil {
					return
				}
				defer server.Close()
				go func() { _, _ = io.Copy(server, client) }()
				_, _ = io.Copy(client, server)
			}()
		}
	}()
	return "nats://" + listener.Addr().String()
}

// An agent without a kit heard "no NATS server answers yet" of a secured server, and error <nil>.
func TestWhoHasNoKitHearsThatAServerMayAskForOne(t *testing.T) {
	for says, of := range map[string]string{
		"REKNIT_NATS_KIT names the folder": bus.Unheard("", 1), "no NATS server answers yet": bus.Unheard("", 0),
		"no NATS server answers": bus.Unheard("secret/n1", 1),
	} {
		if !strings.Contains(of, says) {
			t.Errorf("says %q, expected %q", of, says)
		}
	}
}
