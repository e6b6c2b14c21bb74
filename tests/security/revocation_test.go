package security

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/services/agent"
	"github.com/reknit/reknit/services/reknit/provision"
	"github.com/reknit/reknit/shared/bus"
)

// refused reports that the server does not let a kit in.
func (p *place) refused(folder string) bool {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), 500*time.Millisecond)
	defer cancel()
	b, err := bus.Connect(ctx, bus.Config{URL: p.url, Name: identity(p.T, folder).Key, Cluster: cluster, Kit: folder})
	if err == nil {
		b.Close()
	}
	return err != nil
}

func (p *place) push() {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), waits)
	defer cancel()
	if err := provision.Push(ctx, p.dir, p.url); err != nil {
		p.Fatal(err)
	}
}

// stolen is a copy of a kit, as its thief has it.
func (p *place) stolen(name string) string {
	p.Helper()
	copied := p.TempDir()
	if err := os.CopyFS(copied, os.DirFS(p.kit(name))); err != nil {
		p.Fatal(err)
	}
	return copied
}

func TestWhoIsRevokedIsDisconnectedAndStaysOut(t *testing.T) {
	for _, name := range []string{"n1", "monitor"} {
		t.Run(name, func(t *testing.T) {
			p := open(t)
			stolen := p.stolen(name)
			before, others := p.connect(name), []*bus.Bus{p.connect("n2"), p.connect("planner")}
			p.provision(provision.Options{Institution: "alpha", Revoke: []string{name}})
			if p.refused(stolen) {
				t.Error("refused before the server knows")
			}
			begun := time.Now()
			p.push()
			for deadline := begun.Add(waits); before.Conn().IsConnected(); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("still connected")
				}
			}
			t.Logf("disconnected %v after the push began", time.Since(begun).Round(time.Millisecond))
			if !p.refused(stolen) {
				t.Error("the key that was revoked opens a connection")
			}
			for _, other := range others {
				if other.Conn().Status() != nats.CONNECTED || other.Conn().Stats().Reconnects > 0 {
					t.Error("somebody else was disconnected")
				}
			}
			p.provision(provision.Options{Institution: "alpha", Nodes: []string{"n1"}})
			p.push()
			if identity(t, p.kit(name)).Key == identity(t, stolen).Key {
				t.Error("the new kit has the old key")
			}
			p.connect(name)
			if !p.refused(stolen) {
				t.Error("with a new kit the old key is good again")
			}
		})
	}
}

func TestAKitThatIsWrittenAnewKeepsItsIdentity(t *testing.T) {
	p := open(t)
	before := p.key("n1")
	p.provision(provision.Options{Institution: "alpha", Nodes: []string{"n1"}})
	if p.key("n1") != before {
		t.Error("the node has another id")
	}
	p.connect("n1")
}

func TestAKitIsNoGoodForAnotherNode(t *testing.T) {
	p := open(t)
	_, err := agent.Join(t.Context(), agent.Config{NATSURL: p.url, NATSKit: p.kit("n1"), Cluster: cluster, Node: p.key("n2")})
	if err == nil || !strings.Contains(err.Error(), "REKNIT_NATS_KIT") {
		t.Errorf("expected an error that names the setting, got %v", err)
	}
}
