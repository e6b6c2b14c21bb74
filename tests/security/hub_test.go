package security

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/links"
	"github.com/reknit/reknit/shared/bus"
)

// operator connects to the hub as who runs it: it hears and says whatever it likes in the nodes' account.
func (p *place) operator() *nats.Conn {
	p.Helper()
	seed := must(os.ReadFile(filepath.Join(p.dir, "operator", "nodes.nk")))
	account, user := must(nkeys.FromSeed(seed)), must(nkeys.CreateUser())
	claims := jwt.NewUserClaims(must(user.PublicKey()))
	token := must(claims.Encode(account))
	options := []nats.Option{nats.UserJWT(func() (string, error) { return token, nil }, user.Sign), nats.TLSHandshakeFirst(),
		nats.RootCAs(filepath.Join(p.dir, "operator", "ca.pem")),
		nats.ClientCert(filepath.Join(p.dir, "server", bus.CertificateFile), filepath.Join(p.dir, "server", bus.KeyFile))}
	connection, err := nats.Connect(p.url, options...)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(connection.Close)
	return connection
}

// TestTheHubReadsNoRelayedGradientAndReplacesNone has two nodes without a link train, and who runs the hub listen to what they relay,
// repeat it, and say frames in the name of the one to the other. It read all of them, and each of its own broke a step or was summed.
func TestTheHubReadsNoRelayedGradientAndReplacesNone(t *testing.T) {
	p := open(t)
	w := p.trainTwo(nil)
	w.await(events.PlanActivated)
	plan := w.unlinked()
	n1, n2 := p.key("n1"), p.key("n2")
	peer, _ := plan.Member(n1)
	hello := links.Hello{Cluster: cluster, Node: n1, Incarnation: peer.Incarnation}.Bytes()
	var relayed, plain atomic.Int64
	hub := p.operator()
	say := func(subject string, data []byte) {
		if err := hub.PublishMsg(&nats.Msg{Subject: subject, Data: data, Header: nats.Header{"Of": {"the hub"}}}); err != nil {
			t.Error(err)
		}
	}
	if _, err := hub.Subscribe(events.RelaySubject(cluster, "*", "*"), func(message *nats.Msg) {
		if len(message.Header) > 0 {
			return
		}
		if relayed.Add(1)%50 == 0 {
			say(message.Subject, message.Data)
		}
		if bytes.Contains(message.Data, []byte(peer.Node)) || bytes.Contains(message.Data, []byte(cluster)) {
			plain.Add(1)
		}
	}); err != nil {
		t.Fatal(err)
	}
	_, next := w.steps()
	broken := w.count(events.StepBroken)
	for step := next; step < next+attacked; step += 5 {
		say(events.RelaySubject(cluster, n2, n1), slices.Concat(hello, frame(plan.Generation, step, 1<<40)))
	}
	w.trainOn(next + attacked)
	broken = w.count(events.StepBroken) - broken
	if relayed.Load() < 100 || plain.Load() > 0 || broken > 0 {
		t.Errorf("of %d frames the hub read %d, and its own broke %d steps", relayed.Load(), plain.Load(), broken)
	}
}

// unlinked has a user end the only link between the two who train, and returns the plan that follows.
func (w *two) unlinked() events.Plan {
	w.Helper()
	user := events.Speaker{Source: "/user", Cluster: cluster}
	if _, err := w.connect("user").Publish(w.ctx, user.First(time.Now(), "cut", events.DisconnectRequested, "cut",
		&events.LinkRequest{From: w.key("n1"), To: w.key("n2")})); err != nil {
		w.Fatal(err)
	}
	for {
		if plan := w.planOf(w.await(events.PlanActivated)); len(plan.Relays) == 1 {
			return plan
		}
	}
}

// TestTheHubAsksNothingInANodesName has who runs the hub ask a trainer in its peer's name to keep a snapshot of a step to come, from the peer's
// own store, and to put what it gives into the hub. It did both.
func TestTheHubAsksNothingInANodesName(t *testing.T) {
	t.Parallel()
	p := open(t)
	w := p.trainTwo(map[string]string{"REKNIT_SNAPSHOT_MEMORY_EVERY": "100"})
	plan := w.planOf(w.await(events.PlanActivated))
	n1, n2 := p.key("n1"), p.key("n2")
	peer, _ := plan.Member(n1)
	hub, sniffed := p.operator(), make(chan string, 64)
	if _, err := hub.Subscribe(events.KeepSubject(cluster, "*", "*"), func(message *nats.Msg) {
		if bytes.Contains(message.Data, []byte("shardAddress")) && len(message.Header) == 0 {
			sniffed <- string(message.Data)
		}
	}); err != nil {
		t.Fatal(err)
	}
	empty := events.Digest(nil)
	asks := must(json.Marshal(events.Keeping{Node: n1, Step: 1 << 20, Plan: empty, ShardAddress: peer.ShardAddress, Bytes: 8,
		Parts: []events.Part{{Digest: empty, End: 8}}, Units: []events.KeptUnit{{Bytes: 8}}}))
	inbox := hub.NewInbox()
	answers, err := hub.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	for subject, words := range map[string][]byte{
		events.KeepSubject(cluster, n2, n1):    asks,
		events.ShardSubject(cluster, n2, n1):   must(json.Marshal(events.ViaHub{Negotiation: "g1", To: n1})),
		events.PreCopySubject(cluster, n2, n1): must(json.Marshal(events.PreCopyRequest{Negotiation: "g1", To: n1})),
	} {
		if err := hub.PublishMsg(&nats.Msg{Subject: subject, Reply: inbox, Data: words, Header: nats.Header{"Of": {"the hub"}}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, answer := range w.answers(answers) {
		if len(answer.Data) > 0 {
			t.Errorf("a node answers %q", answer.Data)
		}
	}
	if len(sniffed) > 0 {
		t.Errorf("the hub reads what nodes ask of one another: %s", <-sniffed)
	}
}
