package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

var planOne = events.Digest([]byte("plan 1"))

// snapshotOf is units of a step under a plan.
func snapshotOf(step uint64, plan string, first, end int) events.Snapshot {
	return events.Snapshot{Step: step, Plan: plan, ConsumedSamples: 12 * step, Units: []events.Range{{First: first, End: end}}}
}

// newSnapshotWorld is three nodes that train at step 437 and take snapshots.
func newSnapshotWorld(t *testing.T) *world {
	w := newEmptyWorld(t, 3, 0)
	w.tiers, w.reads = true, map[string][]events.Snapshot{}
	w.begin(3)
	w.step = 437
	return w
}

// loseAll loses all who train at once; n4 and n5 join, who hold nothing.
func (w *world) loseAll() {
	for _, node := range []string{"n1", "n2", "n3"} {
		w.dies(node)
	}
	w.join("n4")
	w.join("n5")
	w.run()
}

// dies has a node be lost, and its process proven to be gone.
func (w *world) dies(node string) {
	w.hear(events.NodeLost, "/monitor", node,
		&events.NodeState{Node: node, Incarnation: w.process[node], Proven: true, Step: w.step})
	w.process[node] = ""
}

// asked returns in how many negotiations members were asked what they can read.
func (w *world) asked() (asking int) {
	for _, event := range w.said {
		if event.Kind == events.NegotiationOpened && must[events.Opening](w.t, event).Snapshots {
			asking++
		}
	}
	return asking
}

func TestWhereAllHoldersOfALayerAreLostTrainingGoesBackToASnapshot(t *testing.T) {
	w := newSnapshotWorld(t)
	planOne := w.machine.state.PlanDigest
	w.reads["n4"] = []events.Snapshot{snapshotOf(400, planOne, 0, 2), snapshotOf(300, planOne, 0, 3)}
	w.reads["n5"] = []events.Snapshot{snapshotOf(400, planOne, 2, 3)}
	w.loseAll()
	plan := w.plans()[len(w.plans())-1]
	if plan.ResumeStep != 400 || plan.Snapshot != planOne {
		t.Fatalf("plan %d goes on from step %d of snapshot %q; held %+v", plan.Generation, plan.ResumeStep, plan.Snapshot,
			w.held())
	}
	if lost := w.commitment().LostSteps; lost != 37 {
		t.Errorf("%d steps are lost: expected 37, all had completed step 437 by their last heartbeats", lost)
	}
	if want := uint64(400 * 12); plan.Data.ConsumedSamples != want {
		t.Errorf("%d samples are consumed: expected %d, they go back with the step", plan.Data.ConsumedSamples, want)
	}
	w.lose("n5")
	w.run()
	if plan := w.plans()[len(w.plans())-1]; plan.Snapshot != "" {
		t.Errorf("the plan after it is told to go back, too: %q", plan.Snapshot)
	}
}

func TestAPlanTellsHowManyStepsAreLost(t *testing.T) {
	w := newSnapshotWorld(t)
	planOne := w.machine.state.PlanDigest
	w.reads["n1"] = []events.Snapshot{snapshotOf(400, planOne, 0, 3)}
	w.lacks = 1 // n3 alone had layer 0
	w.dies("n3")
	w.run()
	plan := w.plans()[len(w.plans())-1]
	if plan.Snapshot == "" || w.commitment().LostSteps != w.step-400 {
		t.Errorf("snapshot %q of step %d: expected %d steps lost", plan.Snapshot, plan.ResumeStep, w.step-400)
	}
}

func TestWhatWasUndoneIsNotGoneBackTo(t *testing.T) {
	w := newSnapshotWorld(t)
	planOne := w.machine.state.PlanDigest
	undone := events.Digest([]byte("a plan before"))
	w.reads["n4"] = []events.Snapshot{snapshotOf(430, undone, 0, 3), snapshotOf(400, planOne, 0, 3)}
	w.loseAll()
	if plan := w.plans()[len(w.plans())-1]; plan.ResumeStep != 400 {
		t.Errorf("goes on from step %d: the plan in force went on from step 0, so that step 430 of another was undone",
			plan.ResumeStep)
	}
}

func TestWhatWasUndoneIsNotGoneBackToOnceTrainingHasComeByItsStepAgain(t *testing.T) {
	w := newSnapshotWorld(t)
	planOne := w.machine.state.PlanDigest
	w.reads["n4"] = []events.Snapshot{snapshotOf(400, planOne, 0, 3)}
	w.loseAll()
	planTwo := w.machine.state.PlanDigest
	w.step = 450
	w.join("n6")
	w.run()
	w.reads["n7"] = []events.Snapshot{snapshotOf(430, planOne, 0, 3), snapshotOf(410, planTwo, 0, 3)}
	for _, node := range []string{"n4", "n5", "n6"} {
		w.dies(node)
	}
	w.join("n7")
	w.run()
	plan := w.plans()[len(w.plans())-1]
	if plan.ResumeStep != 410 || plan.Snapshot != planTwo {
		t.Errorf("plan %d goes on from step %d: plan 2 went on from step 400, so that step 430 of plan 1 was undone", plan.Generation,
			plan.ResumeStep)
	}
}

func TestLivingStateIsPreferredToAnySnapshot(t *testing.T) {
	w := newSnapshotWorld(t)
	planOne := w.machine.state.PlanDigest
	w.reads["n1"] = []events.Snapshot{snapshotOf(500, planOne, 0, 3), snapshotOf(400, planOne, 0, 3)}
	w.lose("n3")
	w.run()
	if plan := w.plans()[len(w.plans())-1]; plan.ResumeStep != 437 || plan.Snapshot != "" {
		t.Errorf("training goes on from step %d, snapshot %q", plan.ResumeStep, plan.Snapshot)
	}
	if asking := w.asked(); asking != 1 { // before the first plan
		t.Errorf("members were asked for snapshots %d times", asking)
	}
}

func TestAClusterThatStartsAnewGoesOnFromTheNewestSnapshot(t *testing.T) {
	w := newEmptyWorld(t, 3, 0)
	w.tiers, w.reads = true, map[string][]events.Snapshot{"n2": {snapshotOf(400, planOne, 0, 3)}}
	w.begin(3)
	if plan := w.plans()[0]; plan.ResumeStep != 400 || plan.Snapshot != planOne || w.commitment().LostSteps != 0 {
		t.Errorf("the first plan goes on from step %d, snapshot %q", plan.ResumeStep, plan.Snapshot)
	}
}

func TestTheDataGoesOnWhereASnapshotOfAnotherClusterStoodInIt(t *testing.T) {
	w := newEmptyWorld(t, 3, 0)
	w.batchRule = &events.BatchRule{SamplesPerNode: 6, LearningRate: "linear"}
	captured := snapshotOf(400, planOne, 0, 3)
	captured.ConsumedSamples = 5000 // by two nodes for a while, by more later
	w.tiers, w.reads = true, map[string][]events.Snapshot{"n2": {captured}}
	w.begin(3)
	w.step = 410
	w.lose("n3")
	w.run()
	for i, want := range []uint64{5000, 5000 + 10*18} {
		if got := w.plans()[i].Data.ConsumedSamples; got != want {
			t.Errorf("plan %d goes on at sample %d, expected %d", i+1, got, want)
		}
	}
}

func TestWithoutACompleteSnapshotTheClusterHoldsAndNamesWhatIsMissing(t *testing.T) {
	w := newSnapshotWorld(t)
	planOne := w.machine.state.PlanDigest
	w.reads["n4"] = []events.Snapshot{snapshotOf(400, planOne, 0, 2)}
	w.reads["n5"] = []events.Snapshot{snapshotOf(400, events.Digest([]byte("plan 2")), 2, 3)}
	w.loseAll()
	held := w.held()
	if held == nil || !strings.Contains(held.Reason, "no live node holds layer 0") {
		t.Fatalf("held: %+v", held)
	}
	w.reads["n5"] = []events.Snapshot{snapshotOf(400, planOne, 2, 3)}
	w.tick(w.machine.settings.HoldTime * 2)
	if plan := w.plans()[len(w.plans())-1]; plan.ResumeStep != 400 {
		t.Errorf("it does not go on when the missing part can be read: step %d", plan.ResumeStep)
	}
}

func TestWhereNobodyHasTiersNobodyIsAskedForSnapshots(t *testing.T) {
	w := newWorld(t, 3)
	w.step = 437
	w.loseAll()
	if asking := w.asked(); asking > 0 || w.held() == nil {
		t.Errorf("%d openings ask for snapshots, held %+v", asking, w.held())
	}
}

func TestANegotiatorThatRestartsStillAsksForSnapshots(t *testing.T) {
	w := newSnapshotWorld(t)
	planOne := w.machine.state.PlanDigest
	w.loseAll()
	w.restart()
	w.reads["n4"] = []events.Snapshot{snapshotOf(400, planOne, 0, 3)}
	w.tick(w.machine.settings.HoldTime * 2)
	if plan := w.plans()[len(w.plans())-1]; plan.ResumeStep != 400 || plan.Snapshot == "" {
		t.Errorf("it goes on from step %d, snapshot %q", plan.ResumeStep, plan.Snapshot)
	}
}

func TestAHolderThatMayLiveIsWaitedForBeforeTrainingGoesBackToASnapshot(t *testing.T) {
	w := newSnapshotWorld(t)
	planOne := w.machine.state.PlanDigest
	w.reads["n1"] = []events.Snapshot{snapshotOf(400, planOne, 0, 3)}
	w.lacks = 1
	w.lose("n3") // it was silent for too long, and may be cut off
	w.run()
	held := w.held()
	if held == nil || !slices.Equal(held.Awaits, []string{"n3"}) ||
		!strings.Contains(held.Reason, "goes back by about 37 steps, to step 400") {
		t.Fatalf("held %+v after %d plans", held, len(w.plans()))
	}
	w.tick(38 * time.Second)
	if plan := w.plans()[len(w.plans())-1]; plan.ResumeStep != 400 || plan.Snapshot != planOne {
		t.Errorf("goes on from step %d of snapshot %q after the lost steps could have been trained again", plan.ResumeStep,
			plan.Snapshot)
	}
}

func TestTheNextAttemptDoesWithoutWhatANodeCouldNotRead(t *testing.T) {
	for name, test := range map[string]struct {
		node   string
		givers []string
		resume uint64
	}{
		"n4 does not offer it":                                     {"n4", []string{"n4"}, 300},
		"n4 and n6 offer different bytes (seed 65863)":             {"", []string{"n4", "n6"}, 300},
		"n4 offers it, and never says that it has it (seed 66828)": {"n4", nil, 400},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSnapshotWorld(t)
			planOne := w.machine.state.PlanDigest
			w.reads["n4"] = []events.Snapshot{snapshotOf(400, planOne, 0, 3), snapshotOf(300, planOne, 0, 3)}
			w.reads["n5"] = []events.Snapshot{snapshotOf(300, planOne, 0, 3)}
			w.transfer, w.mute[events.Scheduled] = true, true
			w.loseAll()
			w.mute[events.Scheduled] = false
			w.hear(events.RestorationFailed, "/restorer", "r",
				&events.Failure{Negotiation: w.opened.Negotiation, Node: test.node, Givers: test.givers, Reason: "unit 0: it fails"})
			w.run()
			if plan := w.plans()[len(w.plans())-1]; plan.ResumeStep != test.resume {
				t.Errorf("goes on from step %d, held %+v: expected %d", plan.ResumeStep, w.held(), test.resume)
			}
		})
	}
}

// Seed 98003: the cluster said that there was no snapshot, that its state was gone, and to begin anew.
func TestWhereReadersOfTheOnlySnapshotDifferTheClusterSaysSoAndNotThatTheStateIsGone(t *testing.T) {
	w := newSnapshotWorld(t)
	w.reads["n4"] = []events.Snapshot{snapshotOf(400, w.machine.state.PlanDigest, 0, 3)}
	w.reads["n5"] = w.reads["n4"]
	w.transfer, w.mute[events.Scheduled] = true, true
	w.loseAll()
	w.hear(events.RestorationFailed, "/restorer", "r",
		&events.Failure{Negotiation: w.opened.Negotiation, Givers: []string{"n4", "n5"}, Reason: "unit 0: they differ"})
	w.run()
	held := w.held()
	if held == nil || !strings.Contains(held.Reason, "the snapshot that there is cannot be used: unit 0: they differ") ||
		!strings.Contains(held.Reason, "End the script and the agent of whoever has it wrong") || strings.Contains(held.Reason, "gone") {
		t.Errorf("held %+v", held)
	}
}

// n4 had spoiled one unit before the snapshot was taken, and no other node had read its second layer (seed 90638).
func TestWhoMisreadsOneUnitOfASnapshotIsAskedForTheOthers(t *testing.T) {
	w := newSnapshotWorld(t)
	planOne := w.machine.state.PlanDigest
	w.reads["n4"] = []events.Snapshot{snapshotOf(400, planOne, 0, 3), snapshotOf(300, planOne, 0, 3)}
	w.reads["n5"] = []events.Snapshot{snapshotOf(400, planOne, 0, 1)}
	w.transfer, w.mute[events.Scheduled] = true, true
	w.loseAll()
	for i, of := range []int{0, 1} {
		if under := w.machine.state.Negotiation; under == nil || under.StopStep != 400 {
			t.Fatalf("attempt %d: it does not go back to step 400: %+v", i, under)
		}
		w.mute[events.Scheduled] = i == 0
		w.hear(events.RestorationFailed, "/restorer", fmt.Sprint("r", i), &events.Failure{Negotiation: w.opened.Negotiation, Node: "n4",
			Givers: []string{"n4"}, Units: []events.Range{{First: of, End: of + 1}}, Reason: "expected as most givers offer"})
		w.run()
	}
	if plan := w.plans()[len(w.plans())-1]; plan.ResumeStep != 300 {
		t.Errorf("goes on from step %d, held %+v: expected 300, for n4 misread two units of step 400", plan.ResumeStep, w.held())
	}
}

func TestReadersThatDifferInTwoSnapshotsGoBackToTheThird(t *testing.T) {
	w := newSnapshotWorld(t)
	planOne := w.machine.state.PlanDigest
	for _, node := range []string{"n4", "n5"} {
		w.reads[node] = []events.Snapshot{snapshotOf(400, planOne, 0, 3), snapshotOf(300, planOne, 0, 3), snapshotOf(200, planOne, 0, 3)}
	}
	w.transfer, w.mute[events.Scheduled] = true, true
	w.loseAll()
	for _, again := range []bool{true, false} {
		w.mute[events.Scheduled] = again
		w.hear(events.RestorationFailed, "/restorer", "r",
			&events.Failure{Negotiation: w.opened.Negotiation, Givers: []string{"n4", "n5"}, Reason: "unit 0: they differ"})
		w.run()
	}
	if plan := w.plans()[len(w.plans())-1]; plan.ResumeStep != 200 {
		t.Errorf("goes on from step %d, held %+v: expected 200", plan.ResumeStep, w.held())
	}
}
