package machine

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// prove has agents tell that their processes have ended, which had completed so many steps.
func (w *world) prove(step uint64, nodes ...string) {
	for _, node := range nodes {
		w.hear(events.NodeLost, "/monitor", node,
			&events.NodeState{Node: node, Incarnation: w.process[node], Proven: true, Step: step, Reason: "its trainer is gone"})
	}
	w.run()
}

// first returns the last plan, and fails where it does not begin training.
func (w *world) first(generation uint64, nodes string) {
	w.t.Helper()
	plans := w.plans()
	if len(plans) == 0 || w.nodes() != nodes {
		w.t.Fatalf("%d plans, nodes %q; held %+v", len(plans), w.nodes(), w.held())
	}
	plan := plans[len(plans)-1]
	if plan.Generation != generation || plan.ResumeStep != 0 || plan.Data.ConsumedSamples != 0 || plan.Snapshot != "" {
		w.t.Errorf("generation %d goes on at step %d and sample %d, of snapshot %q", plan.Generation, plan.ResumeStep,
			plan.Data.ConsumedSamples, plan.Snapshot)
	}
	if told := lastAsked[events.PlanRequest](w, events.PlanRequested).Current; told != nil {
		w.t.Errorf("the planner is told of %+v, which nobody trained", told)
	}
}

func TestAJobOfWhichNoStepWasMadeBeginsOnceItsScriptsAreStartedAgain(t *testing.T) {
	w := newWorld(t, 2)
	w.prove(0, "n1", "n2")
	if held := w.held(); held == nil || len(held.Awaits) > 0 || !strings.Contains(held.Reason, "training begins once nodes join") {
		t.Errorf("held %+v", held)
	}
	w.restart()
	w.join("n1")
	w.join("n7")
	w.run()
	w.tick(5 * time.Second)
	w.first(2, "n1 n7")
}

func TestAScriptThatIsMendedAfterItsFirstStepFailedMayBeAnotherJob(t *testing.T) {
	w := newWorld(t, 2)
	w.prove(0, "n1", "n2")
	w.words = "a job with another learning rate"
	w.join("n1")
	w.join("n2")
	w.run()
	w.tick(5 * time.Second)
	w.first(2, "n1 n2")
}

func TestWhereAStepWasMadeNothingBeginsAnewByItself(t *testing.T) {
	for how, tells := range map[string]func(*world){
		"a node told of its first step": func(w *world) {
			w.hear(events.PlanActivated, "/node/n1", "n1", &events.Activation{Node: "n1", Generation: 1, Step: 1})
		},
		"the last heartbeat of a node told of one": func(w *world) {
			w.hear(events.NodeLost, "/monitor", "n1",
				&events.NodeState{Node: "n1", Incarnation: w.process["n1"], Proven: true, Step: 3})
		},
	} {
		w := newWorld(t, 2)
		tells(w)
		w.prove(0, "n1", "n2")
		w.join("n1")
		w.join("n2")
		w.run()
		w.tick(time.Minute)
		held := w.held()
		if len(w.plans()) != 1 || held == nil || len(held.Awaits) > 0 ||
			!strings.Contains(held.Reason, "its state is gone. To begin anew at the first step: reknit cluster reset") {
			t.Errorf("%s: %d plans, held %+v", how, len(w.plans()), held)
		}
	}
}

func TestOneOfWhomNobodyKnowsThatItHasEndedIsWaitedFor(t *testing.T) {
	w := newWorld(t, 2)
	w.lose("n2") // silent: it may train on
	w.prove(0, "n1")
	w.join("n1")
	w.join("n3")
	w.run()
	w.tick(time.Minute)
	if held := w.held(); len(w.plans()) != 1 || held == nil || !slices.Equal(held.Awaits, []string{"n2"}) {
		t.Errorf("%d plans, held %+v", len(w.plans()), held)
	}
}

func (w *world) reset() (refused string) {
	return w.asksReset(&events.ResetRequest{Reason: "a wrong learning rate"})
}

// asksReset has a user ask for a new beginning, and returns what came of it: nothing where it was granted.
func (w *world) asksReset(request *events.ResetRequest) (refused string) {
	w.hear(events.ResetRequested, "/user", "opticks", request)
	w.run()
	for _, event := range slices.Backward(w.said) {
		switch event.Kind {
		case events.ResetRefused:
			return must[events.ResetRefusal](w.t, event).Reason
		case events.TrainingReset:
			return ""
		}
	}
	return "nothing was said"
}

func TestAJobWhoseStateIsGoneBeginsAnewWhereAUserAsksForIt(t *testing.T) {
	w := newWorld(t, 2)
	w.tiers = true
	w.step = 40
	w.prove(40, "n1", "n2")
	w.reads = map[string][]events.Snapshot{}
	w.join("n1")
	w.join("n2")
	w.run()
	w.reads["n1"] = []events.Snapshot{{Step: 30, Plan: w.machine.state.PlanDigest, ConsumedSamples: 360, Units: []events.Range{{End: 3}}}}
	w.step = 0
	if refused := w.reset(); refused != "" {
		t.Fatal(refused)
	}
	w.restart()
	w.tick(5 * time.Second)
	w.first(2, "n1 n2") // and does not go on from the snapshot
}

func TestAUserResetsNobodyWhoTrains(t *testing.T) {
	w := newWorld(t, 2)
	if refused := w.reset(); !strings.Contains(refused, "n1, n2 may train") {
		t.Error(cmp.Or(refused, "it was reset"))
	}
	if empty := newEmptyWorld(t, 2, 0); empty.reset() == "" {
		t.Error("of a cluster that trained nothing")
	}
}

func TestACompleteJobIsFollowedByAnotherWhereAUserAsksForIt(t *testing.T) {
	w := newWorld(t, 2)
	for _, node := range []string{"n1", "n2"} {
		w.hear(events.TrainingDigested, "/node/"+node, node, &events.Digests{
			Node: node, Incarnation: w.process[node], Generation: 1, Step: 100, Final: true,
		})
	}
	w.run()
	if w.machine.state.Complete == nil {
		t.Fatal("it is not complete")
	}
	if refused := w.reset(); refused != "" {
		t.Fatal(refused)
	}
	w.words = "another job"
	w.join("n3")
	w.join("n4")
	late := &events.JobEnd{Generation: 1, Step: 100, Nodes: []string{"n1", "n2"}}
	w.hear(events.TrainingCompleted, "/negotiator", "opticks", late)
	w.run()
	w.tick(5 * time.Second)
	w.first(2, "n3 n4")
	if w.tick(72 * time.Hour); w.machine.state.Complete != nil {
		t.Error("the end of the job before is told of this one")
	}
}

func TestACompleteJobTrainsLongerFromItsNewestSnapshotWhereAUserAsksForIt(t *testing.T) {
	w := newWorld(t, 2)
	w.tiers = true
	for _, node := range []string{"n1", "n2"} {
		w.hear(events.TrainingDigested, "/node/"+node, node, &events.Digests{
			Node: node, Incarnation: w.process[node], Generation: 1, Step: 100, Final: true,
		})
	}
	w.run()
	w.hear(events.ResetRequested, "/user", "opticks", &events.ResetRequest{Reason: "longer", Snapshots: true})
	w.run()
	whole := []events.Range{{End: 3}}
	w.steps, w.reads = 200, map[string][]events.Snapshot{"n3": {
		{Step: 990, Plan: events.Digest([]byte("given up before")), ConsumedSamples: 990 * 12, Units: whole},
		{Step: 90, Plan: w.machine.state.PlanDigest, ConsumedSamples: 90 * 12, Units: whole},
	}}
	w.join("n3")
	w.join("n4")
	w.run()
	w.tick(5 * time.Second)
	plans := w.plans()
	last, steps := plans[len(plans)-1], w.machine.state.Job.Steps
	if last.Generation != 2 || last.ResumeStep != 90 || last.Data.ConsumedSamples != 90*12 || steps != 200 {
		t.Errorf("generation %d from step %d and sample %d, to step %d; held %+v", last.Generation, last.ResumeStep,
			last.Data.ConsumedSamples, steps, w.held())
	}
}

// An agent outlives its script, keeps what it left, and asks for a place with that: the script's end is no proof that its state is gone.
func TestAJobOfWhichNoStepWasMadeBeginsThoughAgentsKeptWhatTheirScriptsLeft(t *testing.T) {
	for _, step := range []uint64{0, 3} {
		w := newWorld(t, 2)
		w.lose("n1")
		w.lose("n2")
		w.trained = map[string]*events.Trained{}
		for _, node := range []string{"n1", "n2"} {
			w.trained[node] = &events.Trained{Generation: 1, Plan: w.machine.state.PlanDigest, Step: step}
		}
		w.mute[events.NegotiationOpened] = true
		w.join("n1")
		w.join("n2")
		w.run()
		w.lose("n1") // the agents end, too
		w.lose("n2")
		w.trained, w.mute = nil, map[events.Kind]bool{}
		w.run()
		if held := w.held(); step == 0 && len(held.Awaits) > 0 {
			t.Errorf("held %+v: expected nobody to be waited for", held)
		}
		w.join("n1")
		w.join("n2")
		w.run()
		w.tick(time.Minute)
		if step == 0 {
			w.first(2, "n1 n2")
		} else if held := w.held(); len(w.plans()) != 1 || held == nil || !strings.Contains(held.Reason, "its state is gone") {
			t.Errorf("%d plans, held %+v", len(w.plans()), held)
		}
	}
}

// Agents of before hold nothing where training begins anew.
func TestWhereNobodyCanMakeTheFirstStateAnewTheClusterHoldsAndDoesNotAskAgainAndAgain(t *testing.T) {
	w := newWorld(t, 2)
	w.tiers = true
	w.prove(40, "n1", "n2")
	if refused := w.reset(); refused != "" {
		t.Fatal(refused)
	}
	w.lacks = 1
	before := w.openings()
	w.join("n1")
	w.join("n2")
	w.run()
	w.tick(10 * time.Second)
	if opened := w.openings() - before; opened > 4 || len(w.plans()) != 1 || w.held() == nil {
		t.Errorf("%d openings, %d plans, held %+v", opened, len(w.plans()), w.held())
	}
}

func TestWhereTrainingBeginsAnewTheJobOfMostWhoWaitIsTheClusters(t *testing.T) {
	for how, begins := range map[string]func(*world){
		"no step was made": func(w *world) { w.prove(0, "n1", "n2", "n3") },
		"a user asked for it": func(w *world) {
			w.prove(40, "n1", "n2", "n3")
			if refused := w.reset(); refused != "" {
				t.Fatal(refused)
			}
		},
	} {
		w := newWorld(t, 3)
		begins(w)
		w.joins(24, "n1")
		w.restart()
		w.joins(18, "n2", "n3")
		w.tick(5 * time.Second)
		refusals := w.refusals("n1") // the first tells of its end before
		if last := refusals[len(refusals)-1]; !strings.Contains(last.Reason, `field "job.globalBatch": expected 18`) {
			t.Fatalf("%s: n1 is refused %+v, held %+v", how, refusals, w.held())
		}
		w.joins(18, "n4")
		w.tick(5 * time.Second)
		w.first(2, "n2 n3 n4")
	}
}

func TestAStepThatIsHeldIsForgottenWhereTrainingBeginsAnew(t *testing.T) {
	w := newWorld(t, 3)
	w.step = 30
	w.faults("n1")
	w.faults("n2")
	if w.heldStep() == nil {
		t.Fatal("no step is held")
	}
	w.prove(30, "n3")
	if refused := w.reset(); refused != "" {
		t.Fatal(refused)
	}
	w.step = 0
	w.joins(12, "n1", "n2", "n3")
	w.tick(5 * time.Second)
	w.first(3, "n1 n2 n3")
}

// A mended script waited for minutes, by itself or for what had failed on its host.
func TestNobodyWaitsAfterAResetForWhatFailedBefore(t *testing.T) {
	for when, joins := range map[string]func(w *world){
		"before": func(w *world) { w.join("n2") },
		"after":  func(w *world) {},
	} {
		w := newWorld(t, 2)
		w.host["n2"], w.host["n3"] = "a-host", "a-host"
		for range 6 {
			w.lose("n2")
			w.run()
			w.tick(time.Second)
			w.join("n2")
			w.run()
			w.tick(20 * time.Second)
		}
		w.prove(40, "n1", "n2")
		joins(w)
		w.run()
		if refused := w.reset(); refused != "" {
			t.Fatal(refused)
		}
		told := len(w.joinDelays("n2")) + len(w.joinDelays("n3"))
		for _, node := range []string{"n1", "n2", "n3"} {
			w.join(node)
			w.run()
		}
		w.tick(time.Second)
		if told := len(w.joinDelays("n2")) + len(w.joinDelays("n3")) - told; told > 0 || w.nodes() != "n1 n2 n3" {
			t.Errorf("n2 asks %s the reset too: %d are told to wait, and %q train", when, told, w.nodes())
		}
	}
}

// The negotiator of the build before waited for the holders of what was given up.
func TestABuildOfBeforeKnowsThatTrainingBeginsAnew(t *testing.T) {
	w := newWorld(t, 2)
	w.prove(40, "n1", "n2")
	if refused := w.reset(); refused != "" {
		t.Fatal(refused)
	}
	memory, err := w.machine.Snapshot()
	var before struct {
		Anew     string `json:"anew"`
		AnewFrom bool   `json:"anewFrom"`
	}
	if err != nil || json.Unmarshal(memory, &before) != nil || before.Anew != "a wrong learning rate" || before.AnewFrom {
		t.Errorf("it reads %+v; %v", before, err)
	}
}
