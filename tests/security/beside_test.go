package security

import (
	"encoding/binary"
	"encoding/json"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/links"
)

// subjectsTo are the subjects on which somebody may try to reach a node beside the log: of before speakers were in them, in his own
// name and in another's.
func (a *attacker) subjectsTo(root, victim, as string) []string {
	subject := root + "." + cluster + "." + victim
	return []string{subject, subject + "." + a.key, subject + "." + as}
}

// frame is one of the data plane as services/trainer writes it: an empty message that nobody waits for.
func frame(generation, step, item uint64) []byte {
	f := []byte{1}
	f = binary.LittleEndian.AppendUint64(f, generation)
	f = binary.LittleEndian.AppendUint64(f, step)
	f = binary.LittleEndian.AppendUint32(f, 0)
	f = binary.LittleEndian.AppendUint64(f, item)
	return append(f, make([]byte, 3*4)...)
}

// TestFramesOfWhoIsInNoPlanBreakNoStep has a kit that never joined send a trainer frames for steps to come as if they were its peer's,
// while all links work and the plan has no relay. They came before the peer's own, and the trainer broke its step at each.
func TestFramesOfWhoIsInNoPlanBreakNoStep(t *testing.T) {
	p := open(t)
	w := p.trainTwo(nil)
	plan := w.planOf(w.await(events.PlanActivated))
	attacker, victim, said := p.attacker("n3"), p.key("n2"), 0
	peer, _ := events.MemberOf(plan.Nodes, p.key("n1"))
	hello := links.Hello{Cluster: cluster, Node: peer.Node, Incarnation: peer.Incarnation}
	opened, broken := w.count(events.NegotiationOpened), w.count(events.StepBroken)
	for early := false; !early; {
		_, next := w.steps()
		for step := next; step < next+attacked; step += 5 {
			for _, subject := range attacker.subjectsTo("reknit.relay", victim, peer.Node) {
				if err := attacker.conn.Publish(subject, slices.Concat(hello.Bytes(), frame(plan.Generation, step, 1<<40))); err != nil {
					t.Fatal(err)
				}
				said++
			}
		}
		if err := attacker.conn.FlushWithContext(w.ctx); err != nil {
			t.Fatal(err)
		}
		_, made := w.steps()
		early = made < next+attacked/2 // or the trainers were faster than the frames, and none of these counts
		w.trainOn(next + attacked)
	}
	opened, broken = w.count(events.NegotiationOpened)-opened, w.count(events.StepBroken)-broken
	if opened > 0 || broken > 0 {
		t.Errorf("%d frames of nobody broke %d steps, and opened %d negotiations", said, broken, opened)
	}
}

// attacked is how many steps to come somebody says frames for: some of them come before the peer's own, however fast these train.
const attacked = 300

// TestTwoWithoutALinkTrainThroughTheHub has a user cut the only link: what must pass still does.
func TestTwoWithoutALinkTrainThroughTheHub(t *testing.T) {
	p := open(t)
	w := p.trainTwo(nil)
	w.await(events.PlanActivated)
	w.unlinked()
	_, step := w.steps()
	w.trainOn(step + 100)
}

// planOf returns the newest plan, when a node has begun to train under one.
func (w *two) planOf(activated events.Event) (plan events.Plan) {
	w.Helper()
	var activation events.Activation
	if err := json.Unmarshal(activated.Data, &activation); err != nil {
		w.Fatal(err)
	}
	committed, found, err := w.connect("user").LastEvent(w.ctx, events.PlanStream, events.PlanSubject(cluster, "*"))
	if err == nil && found {
		err = json.Unmarshal(committed.Data, &plan)
	}
	if err != nil || plan.Generation < activation.Generation {
		w.Fatalf("no plan of generation %d: %v, found %v", activation.Generation, err, found)
	}
	return plan
}

// TestNobodyHasANodeKeepWhatNoPlanLends has a kit that never joined ask a trainer to keep a snapshot, in its own name and in a member's.
// The trainer dialled whatever address was asked for, and kept what was there.
func TestNobodyHasANodeKeepWhatNoPlanLends(t *testing.T) {
	t.Parallel()
	p := open(t)
	w := p.trainTwo(map[string]string{"REKNIT_SNAPSHOT_MEMORY_EVERY": "100"})
	w.await(events.PlanActivated)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var dialled atomic.Int64
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			dialled.Add(1)
			connection.Close()
		}
	}()
	attacker := p.attacker("n3")
	inbox := attacker.conn.NewInbox()
	answers, err := attacker.conn.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{attacker.key, p.key("n1")} {
		asks, err := json.Marshal(events.Keeping{Node: node, Step: 400, Plan: events.Digest(nil), ShardAddress: listener.Addr().String(), Bytes: 8,
			Parts: []events.Part{{Digest: events.Digest(nil), End: 8}}, Units: []events.KeptUnit{{Bytes: 8}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, subject := range attacker.subjectsTo("reknit.keep", p.key("n2"), node) {
			if err := attacker.conn.PublishRequest(subject, inbox, asks); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, answer := range w.answers(answers) {
		var reply events.KeepReply
		if len(answer.Data) == 0 {
			continue
		}
		if err := json.Unmarshal(answer.Data, &reply); err != nil || !strings.Contains(reply.Reason, "expected") {
			t.Errorf("a trainer answers %q: %v", reply.Reason, err)
		}
	}
	if dialled.Load() > 0 {
		t.Errorf("a trainer dialled an address %d times that no plan has", dialled.Load())
	}
}
