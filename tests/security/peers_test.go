package security

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/mtls"
	"github.com/reknit/reknit/services/agent/shards"
)

// reads opens a connection to the store of a node with a kit, as a transfer does, and tells when it ends.
func (p *place) reads(kit string, victim events.Member) (ended <-chan struct{}, err error) {
	p.Helper()
	reader, err := mtls.Open(p.kit(kit))
	if err != nil {
		p.Fatal(err)
	}
	closed := make(chan struct{})
	options := append(shards.ReaderOptions(), reader.Options(victim.Node)...)
	connection, err := nats.Connect("nats://"+victim.ShardAddress, append(options, nats.NoReconnect(), nats.Timeout(waits),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }))...)
	if err == nil {
		p.Cleanup(connection.Close)
	}
	return closed, err
}

// TestAStoreIsReadByMembersAloneAndAsLongAsTheyAreSuch has a kit that never joined come to the store of a trainer, and one of a node that
// leaves stay there. Both read whatever was given.
func TestAStoreIsReadByMembersAloneAndAsLongAsTheyAreSuch(t *testing.T) {
	t.Parallel()
	p := open(t)
	w := p.trainTwo(map[string]string{"REKNIT_TRAINER_LEAST_STAGES": "1"})
	plan := w.planOf(w.await(events.PlanActivated))
	victim, _ := plan.Member(p.key("n2"))
	if _, err := p.reads("n3", victim); err == nil {
		t.Error("a kit that never joined is let into a trainer's store")
	}
	member, err := p.reads("n1", victim)
	if err != nil {
		t.Fatalf("a member is not let into a store: %v", err)
	}
	user := events.Speaker{Source: "/user", Cluster: cluster}
	if _, err := p.connect("user").Publish(w.ctx, user.First(time.Now(), "leave", events.LeaveRequested, p.key("n1"),
		&events.Leave{Node: p.key("n1")})); err != nil {
		t.Fatal(err)
	}
	if err := <-w.ended; err != nil {
		t.Fatalf("a node that is to leave ended: %v", err)
	}
	select {
	case <-member:
	case <-time.After(waits):
		t.Error("a node that has left is still in the store of one that stayed")
	}
	if _, err := p.reads("n1", victim); err == nil {
		t.Error("a node that has left is let in again")
	}
}

// TestConnectionsThatWaitToBeLetInAreBounded has a kit open more connections to a store than a node may have, none of which is let in yet.
func TestConnectionsThatWaitToBeLetInAreBounded(t *testing.T) {
	p := open(t)
	identity := p.identity("n2")
	store, err := shards.Serve(t.Context(), shards.StoreConfig{Bucket: "n2", Identity: identity})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	looked, decided := make(chan struct{}, 64), make(chan struct{})
	t.Cleanup(func() { close(decided) })
	identity.Admit(func(string) bool { looked <- struct{}{}; <-decided; return false })
	var oldest net.Conn
	for range 9 { // eight are a node's
		connection, err := tls.Dial("tcp", strings.TrimPrefix(store.URL(), "nats://"), with(certificate(t, p.kit("n1"))))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { connection.Close() })
		if _, err := connection.Write([]byte("CONNECT {}\r\n")); err != nil {
			t.Fatal(err)
		}
		<-looked
		if oldest == nil {
			oldest = connection
		}
	}
	oldest.SetReadDeadline(time.Now().Add(8 * time.Second)) // before the server ends it, for it was not let in
	if _, err := io.ReadAll(oldest); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the oldest of nine that wait stays open")
	}
}
