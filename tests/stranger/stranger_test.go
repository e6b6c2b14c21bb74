package stranger

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// guest is a stranger in a house, and what becomes of it.
type guest struct {
	adopted chan [2]uint64 // generation and step of each plan
	left    chan struct{}
	leave   chan struct{}
	quit    context.CancelFunc // without a word
	refused chan string        // why it was
	ended   chan error
}

func invite(t *testing.T, h *house, cluster, node string, job map[string]any) *guest {
	t.Helper()
	g := &guest{adopted: make(chan [2]uint64, 64), left: make(chan struct{}), leave: make(chan struct{}),
		refused: make(chan string, 1), ended: make(chan error, 1)}
	s := &Stranger{
		Node: node, Cluster: cluster,
		Adopted: func(generation, step uint64) { g.adopted <- [2]uint64{generation, step} },
		Left:    func() { close(g.left) },
		Refused: func(reason string) { g.refused <- reason },
	}
	var ctx context.Context
	ctx, g.quit = context.WithCancel(t.Context())
	go func() { g.ended <- s.Run(ctx, h.url, job, g.leave) }()
	t.Cleanup(func() {
		g.quit()
		if err := <-g.ended; err != nil {
			t.Errorf("%s: %v", node, err)
		}
		select {
		case reason := <-g.refused:
			t.Errorf("%s was refused: %s", node, reason)
		default:
		}
	})
	return g
}

// follows waits until the guest works under a generation, and returns the step at which it took over.
func (g *guest) follows(t *testing.T, generation uint64) uint64 {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case adopted := <-g.adopted:
			if adopted[0] == generation {
				return adopted[1]
			}
		case <-deadline:
			t.Fatalf("no plan of generation %d within %v", generation, patience)
		}
	}
}

// works waits until a node completed a step under a generation.
func (h *house) works(t *testing.T, node string, generation uint64) {
	t.Helper()
	h.await(t, "plan.activated", func(event heard) bool {
		return event.Subject == node && event.Data["generation"] == float64(generation)
	})
}

func TestTwoStrangersTrainTogetherAndOneLeaves(t *testing.T) {
	h := build(t, "guests", 2)
	ada, ben := invite(t, h, "guests", "ada", job(1)), invite(t, h, "guests", "ben", job(1))
	ada.follows(t, 1)
	ben.follows(t, 1)
	h.works(t, "ada", 1)
	close(ben.leave)
	step := ada.follows(t, 2) // with the layer that ben held, verified by ada
	if step == 0 {
		t.Error("expected the plan to take over where training stood, got step 0")
	}
	<-ben.left
	h.works(t, "ada", 2)
	h.judge(t)
}

func TestAStrangerJoinsReceivesItsLayersAndIsMissedWhenItVanishes(t *testing.T) {
	h := build(t, "guests", 2)
	ada, ben := invite(t, h, "guests", "ada", job(2)), invite(t, h, "guests", "ben", job(2))
	ada.follows(t, 1)
	ben.follows(t, 1)
	h.works(t, "ben", 1)
	cyd := invite(t, h, "guests", "cyd", job(2))
	cyd.follows(t, 2)
	ben.follows(t, 2)
	h.works(t, "cyd", 2)
	cyd.quit()
	lost := h.await(t, "node.lost", func(heard) bool { return true })
	if lost.Subject != "cyd" {
		t.Errorf("expected cyd to be lost, got %s: %v", lost.Subject, lost.Data)
	}
	ada.follows(t, 3)
	ben.follows(t, 3)
	h.works(t, "ben", 3)
	h.judge(t)
}

// says puts an event of a node into the log, as its agent would say it.
func (h *house) says(t *testing.T, node, kind string, data map[string]any) {
	t.Helper()
	data["node"] = node
	event, err := json.Marshal(map[string]any{
		"specversion": "1.0", "id": strings.ReplaceAll(kind, ".", "-") + "-of-" + node, "source": "/node/" + node,
		"type": "io.reknit." + kind + ".v1", "subject": node, "cluster": "guests", "datacontenttype": "application/json",
		"data": data,
	})
	if err != nil {
		t.Fatal(err)
	}
	h.put(t, "reknit.event.guests."+kind+"."+node, string(event))
}

func TestStrangersWhoseStepBreaksTrainItAgainTogether(t *testing.T) {
	h := build(t, "guests", 2)
	guests, incarnations := map[string]*guest{}, map[string]any{}
	for _, node := range []string{"ada", "ben"} {
		guests[node] = invite(t, h, "guests", node, job(1))
		joined := h.await(t, "membership.join-requested", func(event heard) bool { return event.Subject == node })
		incarnations[node] = joined.Data["incarnation"]
	}
	for _, guest := range guests {
		guest.follows(t, 1)
	}
	h.works(t, "ben", 1)
	for node := range guests {
		h.says(t, node, "step.broken", map[string]any{
			"incarnation": incarnations[node], "generation": 1, "step": 1, "reason": "all-reduce timed out",
		})
	}
	for _, guest := range guests {
		guest.follows(t, 2)
	}
	h.works(t, "ben", 2)
	h.judge(t) // that all told of the same step opened one negotiation
}

func TestAStrangerWhoseAgentTellsThatItIsGoneIsMissedAtOnce(t *testing.T) {
	h := build(t, "guests", 2)
	ada, ben := invite(t, h, "guests", "ada", job(2)), invite(t, h, "guests", "ben", job(2))
	joined := h.await(t, "membership.join-requested", func(event heard) bool { return event.Subject == "ben" })
	ada.follows(t, 1)
	h.works(t, "ben", 1)
	ben.quit()
	h.says(t, "ben", "node.exited", map[string]any{
		"incarnation": joined.Data["incarnation"], "generation": 1, "reason": "exit status 1", "exitCode": 1,
	})
	lost := h.await(t, "node.lost", func(heard) bool { return true })
	if reason := lost.Data["reason"]; lost.Subject != "ben" || reason != "its trainer is gone: exit status 1" {
		t.Errorf("lost is %s: %v", lost.Subject, reason)
	}
	ada.follows(t, 2)
	h.works(t, "ada", 2)
	h.judge(t)
}

// The monitor is wrong: ben lives, and has a layer that nobody else has.
func TestAStrangerThatWasGivenUpWhileItLivedClaimsItsLayersAndTrainingGoesOn(t *testing.T) {
	h := build(t, "guests", 2)
	ada, ben := invite(t, h, "guests", "ada", job(1)), invite(t, h, "guests", "ben", job(1))
	joined := h.await(t, "membership.join-requested", func(event heard) bool { return event.Subject == "ben" })
	ada.follows(t, 1)
	ben.follows(t, 1)
	works := map[string]bool{} // both: else training goes on at step 0, which proves nothing
	h.await(t, "plan.activated", func(event heard) bool { works[event.Subject] = true; return len(works) == 2 })
	lost, err := json.Marshal(map[string]any{
		"specversion": "1.0", "id": "ben-is-lost", "source": "/monitor", "type": "io.reknit.node.lost.v1",
		"subject": "ben", "cluster": "guests", "datacontenttype": "application/json", "data": map[string]any{
			"node": "ben", "incarnation": joined.Data["incarnation"], "reason": "a mistake", "silentSeconds": 9,
			"failuresPerNodeSecond": 0,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	h.put(t, "reknit.event.guests.node.lost.ben", string(lost))
	consent := h.await(t, "negotiation.consented", func(event heard) bool { return event.Data["claims"] != nil })
	if consent.Subject != "ben" || consent.Data["trained"] != float64(1) {
		t.Errorf("claimed is %v", consent.Data)
	}
	if step := ada.follows(t, 2); step == 0 || ben.follows(t, 2) != step {
		t.Errorf("training goes on at step %d", step)
	}
	h.works(t, "ben", 2)
	h.judge(t)
}

func TestAStrangerReadsDataThatTravelsApart(t *testing.T) {
	h := build(t, "guests", 1)
	ada := invite(t, h, "guests", "ada", job(1))
	ada.follows(t, 1)
	stream, err := h.conn.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	objects, err := stream.ObjectStore("REKNIT_PAYLOADS_guests")
	if err != nil {
		t.Fatal(err)
	}
	refusal := []byte(`{"node":"ada","refused":"leave","reason":"too long to travel in an event"}`)
	if _, err := objects.PutBytes(digest(refusal), refusal); err != nil {
		t.Fatal(err)
	}
	event := fmt.Sprintf(`{"specversion":"1.0","id":"apart","source":"/negotiator","type":"io.reknit.membership.refused.v1",`+
		`"subject":"ada","cluster":"guests","dataref":%q}`, digest(refusal))
	h.put(t, "reknit.event.guests.membership.refused.ada", event)
	select {
	case reason := <-ada.refused:
		if reason != "too long to travel in an event" {
			t.Errorf("it read %q", reason)
		}
	case <-time.After(patience):
		t.Error("it did not read the data")
	}
}

// Three train both layers each. What one of them tells of a layer is not what the two others tell.
func TestANodeWhoseReplicaDiffersFromMostIsGivenUp(t *testing.T) {
	h := build(t, "guests", 3)
	guests := map[string]*guest{}
	for _, node := range []string{"ada", "ben", "cyd"} {
		guests[node] = invite(t, h, "guests", node, job(3))
	}
	for _, guest := range guests {
		guest.follows(t, 1)
	}
	for node, word := range map[string]string{"ada": "right", "ben": "right", "cyd": "wrong"} {
		event, err := json.Marshal(map[string]any{
			"specversion": "1.0", "id": "digests-of-" + node, "source": "/node/" + node, "type": "io.reknit.training.digested.v1",
			"subject": node, "cluster": "guests", "datacontenttype": "application/json", "data": map[string]any{
				"node": node, "generation": 1, "step": 1, "final": false,
				"units": []map[string]any{{"unit": 1, "digest": digest([]byte(word))}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		h.put(t, "reknit.event.guests.training.digested."+node, string(event))
	}
	diverged := h.await(t, "replica.diverged", func(heard) bool { return true })
	if minority := fmt.Sprint(diverged.Data["minority"]); diverged.Subject != "unit-1" || minority != "[cyd]" {
		t.Errorf("expected cyd to differ in layer 1, got %s: %v", diverged.Subject, diverged.Data)
	}
	if reason := <-guests["cyd"].refused; reason != "layer 1 at step 1 differs from that of most of its holders" {
		t.Errorf("cyd was refused: %s", reason)
	}
	guests["cyd"].quit()
	guests["ada"].follows(t, 2)
	h.works(t, "ben", 2) // the log is not judged: it tells of what must never happen
}

func TestADozenLinesAreEnoughForAPlan(t *testing.T) {
	h := build(t, "dev", 1)
	conn, err := nats.Connect(h.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	plans, stop := make(chan []byte, 1), make(chan struct{})
	defer close(stop)
	refused := make(chan string, 8)
	go hello(conn, job(0), func(plan []byte) { plans <- plan }, func(why string) { refused <- why }, stop)
	select {
	case why := <-refused:
		t.Fatal(why)
	case data := <-plans:
		var event struct{ Data plan }
		if err := json.Unmarshal(data, &event); err != nil {
			t.Fatal(err)
		}
		if place, ok := event.Data.place("me"); !ok || place != (layers{0, 2}) || event.Data.Generation != 1 {
			t.Errorf("expected both layers under generation 1, got %s", data)
		}
	case <-time.After(patience):
		t.Fatalf("no plan within %v", patience)
	}
}

func TestASpeakerHearsThatItsEventWasRefusedAndNotFromALiar(t *testing.T) {
	h := build(t, "dev", 1)
	refused, stop := make(chan string, 8), make(chan struct{})
	defer close(stop)
	for sequence := 40; sequence <= 100; sequence++ { // 61 messages, of which one is about the request behind them and the leases
		_ = h.conn.Publish(fmt.Sprint("reknit.event.dev.event.refused.", sequence),
			[]byte(`{"source": "/node/eve", "data": {"reason": "a lie", "detail": "of eve"}}`))
	}
	if err := h.conn.Flush(); err != nil {
		t.Fatal(err)
	}
	wrong := job(0)
	wrong["kind"] = "pipelines"
	go hello(h.conn, wrong, func([]byte) {}, func(why string) { refused <- why }, stop)
	select {
	case why := <-refused:
		if want := `membership.join-requested: invalid: data: field "job.kind": expected pipeline or data-parallel or sharded`; !strings.HasPrefix(why, want) {
			t.Errorf("it hears %q, expected %q", why, want)
		}
	case <-time.After(patience):
		t.Fatalf("not refused within %v", patience)
	}
}

func TestTheDozenLinesOfTheReadmeAreTheOnesThatRun(t *testing.T) {
	code, err := os.ReadFile("hello.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, function, found := strings.Cut(string(code), "func hello(")
	if !found || !strings.Contains(string(readme), "```go\nfunc hello("+function+"```") {
		t.Error("README.md: expected the function of hello.go between ```go and ```")
	}
}
