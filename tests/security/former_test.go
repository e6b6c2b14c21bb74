package security

import (
	"fmt"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/provision"
	"github.com/reknit/reknit/shared/bus"
)

// plan is one that a negotiator commits, then by its own clock.
func (p *place) plan(then time.Time, generation uint64) events.Event {
	node := p.key("n2")
	layers := events.Range{First: 0, End: 2}
	return events.Speaker{Source: "/negotiator", Cluster: cluster}.First(then, "decision", events.PlanCommitted, fmt.Sprint(generation),
		&events.Plan{
			Cluster: cluster, Generation: generation, Parent: "sha256:parent", Policy: "repipeline", Nodes: []events.Member{{Node: node}},
			Pipelines: []events.Pipeline{{MicroBatches: 1, Stages: []events.Stage{{Node: node, Layers: layers}}}},
			Data:      events.Data{GlobalBatch: 1, MicroBatch: 1},
		})
}

// TestWhatAFormerKeySignedIsReadAsFarAsItWasLoggedBeforeItsRevocation has a negotiator commit a plan before its key is replaced. The server
// is not told of that, so that a thief commits another with the key of before. Whoever starts with a kit of now reads the first and not
// the second, and the third, of the new key. Whoever is connected since before hears the third, too. The hub's time counts: the first plan
// says that it is of after the revocation, and the thief's that it is of before.
func TestWhatAFormerKeySignedIsReadAsFarAsItWasLoggedBeforeItsRevocation(t *testing.T) {
	p := open(t)
	negotiator := p.connect("negotiator")
	if err := negotiator.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	say := func(by *bus.Bus, ahead time.Duration, generation uint64) {
		t.Helper()
		if _, err := by.Publish(t.Context(), p.plan(time.Now().Add(ahead), generation)); err != nil {
			t.Fatal(err)
		}
	}
	heard := make(chan string, 8)
	for _, name := range []string{"n1", "monitor"} {
		_, err := p.connect(name).Follow(t.Context(), events.PlanStream, []string{events.PlanSubject(cluster, "3")}, bus.All,
			func(event events.Event) { heard <- name })
		if err != nil {
			t.Fatal(err)
		}
	}
	say(negotiator, time.Hour, 1)
	thief := p.connectWith(p.url, p.stolen("negotiator"))
	p.provision(provision.Options{Institution: "alpha", Revoke: []string{"negotiator"}})
	say(thief, -time.Hour, 2)
	say(p.connect("negotiator"), 0, 3)
	for _, name := range []string{"n1", "user", "planner"} {
		reader := p.connect(name)
		for generation, read := range map[uint64]bool{1: true, 2: false, 3: true} {
			_, found, err := reader.LastEvent(t.Context(), events.PlanStream, events.PlanSubject(cluster, fmt.Sprint(generation)))
			if found != read {
				t.Errorf("%s reads plan %d: %v (%v), expected %v", name, generation, found, err, read)
			}
		}
	}
	for in := map[string]bool{}; len(in) < 2; {
		select {
		case name := <-heard:
			in[name] = true
		case <-time.After(waits):
			t.Fatalf("who is connected since before hears nothing of the new key: only %v do", in)
		}
	}
}
