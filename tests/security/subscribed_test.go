package security

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
)

// subscribe has a connection hear so many subjects of its own.
func subscribe(t *testing.T, conn *nats.Conn, key string, count int) {
	t.Helper()
	for n := range count {
		if _, err := conn.Subscribe(fmt.Sprintf("_INBOX.%s.%d", key, n), func(*nats.Msg) {}); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
}

// TestAConnectionHearsAFewHundredSubjects has a node and a user subscribe a thousand times: 16,000 connections would fill the hub's memory.
func TestAConnectionHearsAFewHundredSubjects(t *testing.T) {
	p := open(t)
	for _, name := range []string{"n3", "user"} {
		conn := p.connect(name).Conn()
		subscribe(t, conn, p.key(name), 1000)
		id, err := conn.GetClientID()
		if err != nil {
			t.Fatal(err)
		}
		known, err := p.server.Connz(&server.ConnzOptions{CID: id})
		if err != nil || len(known.Conns) != 1 {
			t.Fatalf("%v: %v", known, err)
		}
		if held := known.Conns[0].NumSubs; held < 200 || held > 256 {
			t.Errorf("a connection of %s has %d subscriptions, expected a few hundred at most", name, held)
		}
	}
}

// TestANodeOfASiteKeepsNoOtherFromHearing has a node of a site hear more subjects, over two connections, than one may: all subscriptions
// of the site are those of its server's one connection.
func TestANodeOfASiteKeepsNoOtherFromHearing(t *testing.T) {
	s := openSpreadOf(t, "n3", "n4")
	s.awaitLeaves(1)
	for from := range 2 {
		conn := s.connectAt(s.site, "n3").Conn()
		subscribe(t, conn, fmt.Sprint(s.key("n3"), ".", from), 200)
	}
	other := s.key("n4")
	frames, err := s.connectAt(s.site, "n4").Conn().SubscribeSync(events.RelaySubject(cluster, other, "*"))
	if err != nil {
		t.Fatal(err)
	}
	peer := s.connect("n1").Conn()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		_ = peer.Publish(events.RelaySubject(cluster, other, s.key("n1")), []byte("{}"))
		if _, err := frames.NextMsg(200 * time.Millisecond); err == nil {
			return
		}
	}
	t.Error("another node of the site hears nothing")
}
