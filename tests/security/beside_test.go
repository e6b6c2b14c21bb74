package security

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/links"
	"github.com/reknit/reknit/shared/bus"
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
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	heard, ended := p.trainTwo(ctx)
	activated := p.await(ctx, heard, events.PlanActivated)
	plan := p.planOf(ctx, activated)
	var broken, opened atomic.Int64
	follow := []string{events.EventSubject(cluster, events.StepBroken, "*"), events.EventSubject(cluster, events.NegotiationOpened, "*")}
	if _, err := p.connect("user").Follow(ctx, events.EventStream, follow, bus.New, func(event events.Event) {
		if opened.Add(1); event.Kind == events.StepBroken {
			broken.Add(1)
		}
	}); err != nil {
		t.Fatal(err)
	}
	attacker, victim, said := p.attacker("n3"), p.key("n2"), 0
	peer, _ := events.MemberOf(plan.Nodes, p.key("n1"))
	hello := links.Hello{Cluster: cluster, Node: peer.Node, Incarnation: peer.Incarnation}
	for step := uint64(0); step < fewSteps; step += 5 {
		for _, subject := range attacker.subjectsTo("reknit.relay", victim, peer.Node) {
			if err := attacker.conn.Publish(subject, slices.Concat(hello.Bytes(), frame(plan.Generation, step, 1<<40))); err != nil {
				t.Fatal(err)
			}
			said++
		}
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Errorf("a trainer ended before its last step: %v", err)
		}
	}
	if opened.Load() > 0 {
		t.Errorf("%d frames of nobody broke %d steps, and %d events told of what came of it", said, broken.Load(), opened.Load())
	}
}

// TestTwoWithoutALinkTrainThroughTheHub has a user cut the only link: what must pass still does.
func TestTwoWithoutALinkTrainThroughTheHub(t *testing.T) {
	p := open(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	heard, ended := p.trainTwo(ctx)
	p.await(ctx, heard, events.PlanActivated)
	p.unlinked(ctx, heard)
	for range 2 {
		if err := <-ended; err != nil {
			t.Errorf("a trainer ended before its last step: %v", err)
		}
	}
}

// planOf returns the newest plan, when a node has begun to train under one.
func (p *place) planOf(ctx context.Context, activated events.Event) (plan events.Plan) {
	p.Helper()
	var activation events.Activation
	if err := json.Unmarshal(activated.Data, &activation); err != nil {
		p.Fatal(err)
	}
	committed, found, err := p.connect("user").LastEvent(ctx, events.PlanStream, events.PlanSubject(cluster, "*"))
	if err == nil && found {
		err = json.Unmarshal(committed.Data, &plan)
	}
	if err != nil || plan.Generation < activation.Generation {
		p.Fatalf("no plan of generation %d: %v, found %v", activation.Generation, err, found)
	}
	return plan
}

// TestNobodyHasANodeKeepWhatNoPlanLends has a kit that never joined ask a trainer to keep a snapshot, in its own name and in a member's.
// The trainer dialled whatever address was asked for, and kept what was there.
func TestNobodyHasANodeKeepWhatNoPlanLends(t *testing.T) {
	p := open(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	heard, _ := p.trainTwoWith(ctx, map[string]string{"REKNIT_SNAPSHOT_MEMORY_EVERY": "100"})
	p.await(ctx, heard, events.PlanActivated)
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
	for _, node := range []string{attacker.key, p.key("n1")} {
		asks, err := json.Marshal(events.Keeping{Node: node, Step: 400, Plan: events.Digest(nil), ShardAddress: listener.Addr().String(), Bytes: 8,
			Parts: []events.Part{{Digest: events.Digest(nil), End: 8}}, Units: []events.KeptUnit{{Bytes: 8}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, subject := range attacker.subjectsTo("reknit.keep", p.key("n2"), node) {
			answer, refused, err := attacker.publish(&nats.Msg{Subject: subject, Data: asks})
			var reply events.KeepReply
			if err == nil && answer != nil && answer.Header.Get("Status") == "" {
				err = json.Unmarshal(answer.Data, &reply)
			}
			if err != nil || !refused && answer != nil && len(answer.Data) > 0 && !strings.Contains(reply.Reason, "expected") {
				t.Errorf("asked on %s, a trainer answers %q: %v", subject, reply.Reason, err)
			}
		}
	}
	p.await(ctx, heard, events.SnapshotCompleted)
	if dialled.Load() > 0 {
		t.Errorf("a trainer dialled an address %d times that no plan has", dialled.Load())
	}
}
