package security

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/provision"
	"github.com/reknit/reknit/shared/bus"
)

// rogue runs, with the files of the site's server, one that lets anybody say and hear anything.
func (s *spread) rogue() *nats.Conn {
	s.Helper()
	honest, err := server.ProcessConfigFile(filepath.Join(s.dir, "server", site, "nats.conf"))
	if err != nil {
		s.Fatal(err)
	}
	options := &server.Options{Host: site, Port: server.RANDOM_PORT, NoSigs: true, MaxPayload: 1 << 20}
	options.LeafNode.Remotes, options.LeafNode.ReconnectInterval = honest.LeafNode.Remotes, 100*time.Millisecond
	for _, remote := range options.LeafNode.Remotes {
		s.readdress(remote.URLs)
		remote.LocalAccount = ""
	}
	started, err := server.NewServer(options)
	if err != nil {
		s.Fatal(err)
	}
	started.Start()
	s.Cleanup(func() { started.Shutdown(); started.WaitForShutdown() })
	if !started.ReadyForConnections(10 * time.Second) {
		s.Fatal("the server takes no connection")
	}
	conn, err := nats.Connect(started.ClientURL())
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(conn.Close)
	return conn
}

// TestASitesServerSpeaksForItsOwnNodesOnly has whoever runs the server of a site send heartbeats in the names of nodes, say events on their
// subjects, and listen to what others tell them.
func TestASitesServerSpeaksForItsOwnNodesOnly(t *testing.T) {
	t.Parallel()
	s := openSpread(t)
	s.awaitLeaves(1)
	s.servers[len(hosts)].Shutdown()
	s.awaitLeaves(0)
	its, others := s.key("n3"), s.key("n1")
	monitor := s.connect("monitor")
	if err := monitor.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	pulses, err := monitor.Conn().SubscribeSync(events.PulseSubject(cluster, "*"))
	if err == nil {
		err = monitor.Conn().Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	rogue := s.rogue()
	frames := map[string]*nats.Subscription{}
	for _, node := range []string{its, others} {
		if frames[node], err = rogue.SubscribeSync(events.RelaySubject(cluster, node, "*")); err != nil {
			t.Fatal(err)
		}
	}
	heard := map[string]bool{}
	peer := s.connect("n2").Conn()
	for end := time.Now().Add(30 * time.Second); !(heard["pulse "+its] && heard["frame "+its]) && time.Now().Before(end); {
		for _, node := range []string{others, its} { // a message of the second is behind that of the first
			_ = rogue.Publish(events.PulseSubject(cluster, node), []byte("{}"))
			_ = rogue.Publish(events.EventSubject(cluster, events.NodeExited, node), []byte("{}"))
			_ = peer.Publish(events.RelaySubject(cluster, node, s.key("n2")), []byte("{}"))
		}
		for message, err := pulses.NextMsg(200 * time.Millisecond); err == nil; message, err = pulses.NextMsg(200 * time.Millisecond) {
			heard["pulse "+message.Subject[len(events.PulseSubject(cluster, "")):]] = true
		}
		for node, subscription := range frames {
			_, err := subscription.NextMsg(200 * time.Millisecond)
			heard["frame "+node] = heard["frame "+node] || err == nil
		}
	}
	if !heard["pulse "+its] || !heard["frame "+its] {
		t.Errorf("the server of a site cannot speak for its own node: %v", heard)
	}
	if heard["pulse "+others] || heard["frame "+others] {
		t.Errorf("it speaks for a node of another, or hears what that one is told: %v", heard)
	}
	log, err := monitor.JetStream().Stream(t.Context(), events.Lane(cluster, events.EventStream.Name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.GetLastMsgForSubject(t.Context(), events.EventSubject(cluster, events.NodeExited, its)); err != nil {
		t.Errorf("what its node says is not in the log: %v", err)
	}
	if _, err := log.GetLastMsgForSubject(t.Context(), events.EventSubject(cluster, events.NodeExited, others)); err == nil {
		t.Error("it says events on the subjects of a node of another")
	}
}

// TestALargeSiteConnects has the server of a site of 60 nodes connect: what it may takes more than a line has on other connections. The
// last of the nodes speaks through it.
func TestALargeSiteConnects(t *testing.T) {
	var nodes []string
	for n := range 60 {
		nodes = append(nodes, fmt.Sprint("s", n))
	}
	s := openSpreadOf(t, nodes...)
	s.awaitLeaves(1)
	monitor := s.connect("monitor").Conn()
	pulses, err := monitor.SubscribeSync(events.PulseSubject(cluster, "*"))
	if err == nil {
		err = monitor.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	last := s.key(nodes[len(nodes)-1])
	node := s.connectAt(s.site, nodes[len(nodes)-1]).Conn()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		_ = node.Publish(events.PulseSubject(cluster, last), []byte("{}"))
		if _, err := pulses.NextMsg(200 * time.Millisecond); err == nil {
			return
		}
	}
	t.Error("no heartbeat of a node of the site arrives")
}

// TestTheServerOfASiteSpeaksForNobodyWhoIsGone has the only node of a site be revoked. The token of before is still with whoever runs its
// server.
func TestTheServerOfASiteSpeaksForNobodyWhoIsGone(t *testing.T) {
	t.Parallel()
	s := openSpread(t)
	s.awaitLeaves(1)
	s.servers[len(hosts)].Shutdown()
	s.awaitLeaves(0)
	credentials := filepath.Join(s.dir, "server", site, bus.CredentialsFile)
	before, err := os.ReadFile(credentials)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second) // a token says in seconds when it was written
	revoked := optionsOf("beta")
	revoked.Revoke = []string{"n3"}
	key := s.key("n3")
	s.provision(revoked)
	if err := provision.Push(t.Context(), s.dir, s.url); err != nil {
		t.Fatal(err)
	}
	monitor := s.connect("monitor").Conn()
	pulses, err := monitor.SubscribeSync(events.PulseSubject(cluster, "*"))
	if err == nil {
		err = monitor.Flush()
	}
	if err == nil {
		err = os.WriteFile(credentials, before, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	rogue := s.rogue()
	for range 20 {
		_ = rogue.Publish(events.PulseSubject(cluster, key), []byte("{}"))
		if _, err := pulses.NextMsg(100 * time.Millisecond); err == nil {
			t.Fatal("it speaks for a node that was revoked")
		}
	}
}
