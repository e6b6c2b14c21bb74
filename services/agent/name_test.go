package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/shards"
)

// waitsForEver has a process that asks for its name wait for answers so long, and at last without end.
func waitsForEver(t *testing.T, waits ...time.Duration) {
	before := nameWaits
	nameWaits = append(waits, time.Hour)
	t.Cleanup(func() { nameWaits = before })
}

// again has a second process ask for a place by the name of the first.
func (h *hub) again(node, storeDir string) error {
	session, err := Join(h.t.Context(), Config{NATSURL: h.url, Cluster: "c", Node: node, Address: "127.0.0.1:1", MemoryBytes: 1 << 30,
		Job: h.job(), Store: shards.StoreConfig{Dir: storeDir}})
	if err == nil {
		h.t.Cleanup(session.Close)
	}
	return err
}

// A second trainer of a name in use ended the first one's membership, and where that held the only copy of a layer, training.
func TestASecondProcessOfANameInUseIsRefusedAndAsksForNothing(t *testing.T) {
	h := newHub(t)
	first := h.join("n1")
	err := h.again("n1", "")
	if err == nil || !strings.Contains(err.Error(), `node "n1" takes part in cluster c already`) ||
		!strings.Contains(err.Error(), first.Incarnation) || !strings.Contains(err.Error(), "REKNIT_AGENT_NODE") {
		t.Errorf("the second process of n1: %v", err)
	}
	if h.sessions[0].isReplaced() {
		t.Error("the second process asked for the place of the first")
	}
}

func TestAProcessComesBackByTheNameOfOneThatWasKilled(t *testing.T) {
	h := newHub(t)
	first := h.join("n1")
	h.sessions[0].bus.Conn().Close() // all that the hub hears of a kill
	waitsForEver(t)                  // for an answer that nobody gives
	if second := h.join("n1"); second.Incarnation == first.Incarnation {
		t.Error("it is the incarnation before")
	}
}

// A shard store empties its folder when it is made. That of the first process would be gone under it.
func TestASecondProcessOfANameInUseLeavesTheFolderOfItsShards(t *testing.T) {
	h, dir := newHub(t), t.TempDir()
	h.join("n1")
	shard := filepath.Join(dir, "shards", "of the first")
	if err := errors.Join(os.Mkdir(filepath.Dir(shard), 0o755), os.WriteFile(shard, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := h.again("n1", dir); err == nil {
		t.Fatal("the second process of n1 takes part")
	}
	if _, err := os.Stat(shard); err != nil {
		t.Error(err)
	}
}

// The hub gives a host that vanished up after a while; until then it has a subscriber, who is silent.
func TestOneWhoDoesNotAnswerDoesNotKeepItsName(t *testing.T) {
	h := newHub(t)
	var asked atomic.Int32
	_, err := h.bus.Conn().Subscribe(events.ProbeSubject("c", "n1"), func(*nats.Msg) { asked.Add(1) })
	if err := errors.Join(err, h.bus.Conn().Flush()); err != nil {
		t.Fatal(err)
	}
	h.join("n1")
	if times := asked.Load(); times != int32(len(nameWaits)) {
		t.Errorf("it asked %d times, expected %d: one who is far away cannot answer sooner", times, len(nameWaits))
	}
}

// A kit of before does not hold the right to ask, and each question would be an error in the log.
func TestOneWhoMayNotAskForItsNameDoesNotAskAgain(t *testing.T) {
	h := guarded(t, events.ProbeSubject("c", "n1"))
	last := len(nameWaits) - 1
	waitsForEver(t, nameWaits[last]) // for an answer to a second question
	if err := h.again("n1", ""); err != nil {
		t.Error(err)
	}
}

// guarded returns a hub that lets nobody say anything on a subject.
func guarded(t *testing.T, subject string) *hub {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, JetStreamMaxStore: 1 << 40,
		StoreDir: t.TempDir(),
		Users: []*server.User{{Username: "n1", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: []string{subject}},
		}}}, NoAuthUser: "n1",
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.Shutdown)
	return &hub{t: t, url: s.ClientURL()}
}

// standsStill returns a hub whose only member is in its first step, and by whose name another process has asked for a place.
func standsStill(t *testing.T, state State) (*hub, events.Member, context.Context) {
	h, member, step := inStep(t, state)
	h.asNode("n1", events.JoinRequested, &events.Join{
		Node: "n1", Incarnation: "another", Address: "127.0.0.1:2", MemoryBytes: 1, Job: h.job(),
	})
	if join := await[events.Join](h, events.JoinRequested); join.Incarnation != "another" {
		t.Fatalf("%+v asked", join)
	}
	return h, member, step
}

// The other process has nothing. To leave it the name would lose what this one alone holds.
func TestWhoHoldsStateTakesItsNameBack(t *testing.T) {
	state := &kernel{frozen: true}
	h, member, step := standsStill(t, state)
	h.say(events.MembershipRefused, "n1", &events.Refusal{
		Node: "n1", Incarnation: member.Incarnation, Refused: events.RefusedMembership, Reason: "lost: no heartbeat",
	})
	<-step.Done()
	go func() { _, _ = h.sessions[0].Boundary(t.Context(), 0, state) }() // it waits for a plan
	join := await[events.Join](h, events.JoinRequested)
	if !strings.HasPrefix(join.Incarnation, h.sessions[0].process) {
		t.Errorf("%+v asked", join)
	}
}

// Two processes of a name would take it from each other in turn.
func TestWhoWasReplacedByAPlanEndsAndDoesNotAskAgain(t *testing.T) {
	state := &kernel{frozen: true}
	h, member, step := standsStill(t, state)
	first := replicas(1, "", []events.Member{member}, "n1")
	parent := events.Digest(h.speaker.First(time.Now(), "1", events.PlanCommitted, "1", &first).Data)
	second := replicas(2, parent, []events.Member{{Node: "n1", Incarnation: "another", Address: "127.0.0.1:2"}}, "n1")
	h.say(events.PlanCommitted, "2", &second)
	<-step.Done()
	_, err := h.sessions[0].Boundary(t.Context(), 0, state)
	if err == nil || !strings.Contains(err.Error(), "another process asked for a place by this name") {
		t.Errorf("it ends with: %v", err)
	}
	if !h.sessions[0].isReplaced() {
		t.Error("it asked again")
	}
}
