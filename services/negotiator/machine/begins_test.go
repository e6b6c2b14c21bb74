package machine

import (
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

func TestAJobThatFailsInItsFirstStepAfterAResetDoesNotGoOnFromWhatWasGivenUp(t *testing.T) {
	w := newWorld(t, 2)
	w.tiers = true
	w.step = 40
	w.prove(40, "n1", "n2")
	given := []events.Snapshot{{Step: 30, Plan: w.machine.state.PlanDigest, ConsumedSamples: 360, Units: []events.Range{{End: 3}}}}
	w.reads = map[string][]events.Snapshot{"n1": given}
	if refused := w.reset(); refused != "" {
		t.Fatal(refused)
	}
	w.step = 0
	w.joins(12, "n1", "n2")
	w.tick(5 * time.Second)
	w.first(2, "n1 n2")
	w.prove(0, "n1", "n2")
	w.joins(12, "n1", "n2")
	w.tick(5 * time.Second)
	w.first(3, "n1 n2")
}

func TestScriptsThatAllFailInTheirFirstStepBeginOnceTheyAreMended(t *testing.T) {
	w := newWorld(t, 2)
	for range 4 {
		for _, node := range []string{"n1", "n2"} {
			w.hear(events.NodeExited, "/node/"+node, node, &events.Exit{
				Node: node, Incarnation: w.process[node], Generation: w.plan.Generation, Step: new(uint64), Reason: "NameError: nam",
			})
			w.prove(0, node)
		}
		before := w.plan.Generation
		w.joins(12, "n1", "n2")
		w.tick(10 * time.Minute)
		w.first(before+1, "n1 n2")
	}
}

func TestTheAgentsOfScriptsThatFailedInTheirFirstStepMayAskWithAnotherJob(t *testing.T) {
	w := newWorld(t, 2)
	w.lose("n1")
	w.lose("n2")
	w.trained = map[string]*events.Trained{}
	for _, node := range []string{"n1", "n2"} {
		w.trained[node] = &events.Trained{Generation: 1, Plan: w.machine.state.PlanDigest}
	}
	w.words = "a job with another learning rate"
	w.joins(12, "n1", "n2") // the first is refused: the other one may train on
	w.trained = nil
	w.joins(12, "n1")
	w.tick(5 * time.Minute)
	w.first(2, "n1 n2")
}

func TestACompleteJobIsFollowedByOneOfAsManyNodesAsTheFirstPlanIsToHave(t *testing.T) {
	w := newWorld(t, 2)
	w.finals("n1", 100, nil)
	w.finals("n2", 100, nil)
	w.run()
	if refused := w.reset(); refused != "" {
		t.Fatal(refused)
	}
	w.joins(12, "n1")
	w.tick(time.Minute)
	if plans := len(w.plans()); plans != 1 {
		t.Errorf("%d plans: expected that the first waits for the second", plans)
	}
	w.joins(12, "n2")
	w.tick(5 * time.Second)
	w.first(2, "n1 n2")
}
