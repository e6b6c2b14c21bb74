package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// makes has a node tell that it made a step.
func (w *world) makes(node string, step uint64) {
	w.hear(events.TrainingDigested, "/node/"+node, node,
		&events.Digests{Node: node, Incarnation: w.process[node], Generation: w.machine.state.generation(), Step: step})
}

// stopping is a cluster of two whose nodes were asked for a snapshot of step 7, with which training stops.
func stopping(t *testing.T, stragglers ...string) *world { return stoppingIn(t, nil, stragglers...) }

// stoppingIn is such a cluster whose nodes tell to which tiers they write, as they consent.
func stoppingIn(t *testing.T, lasts map[string][]string, stragglers ...string) *world {
	w := newEmptyWorld(t, 2, 0)
	w.tiers, w.lasts, w.stragglers = true, lasts, map[string]bool{}
	for _, node := range stragglers {
		w.stragglers[node] = true
	}
	w.begin(2)
	w.step = 5
	w.hear(events.StopRequested, "/user", "opticks", &events.StopRequest{Reason: "the rack is moved"})
	w.run()
	if w.lastStop() != 7 {
		t.Fatalf("all stop after step %d", w.lastStop())
	}
	return w
}

// stores has the restorer say that the snapshot with which training stops is complete.
func (w *world) stores() {
	w.completes("disk", 7, w.machine.state.PlanDigest)
}

// cannotWrite has a node tell that it could not write its part of the snapshot with which training stops.
func (w *world) cannotWrite(node, tier, finding, reason string, tiers ...string) {
	w.hear(events.SnapshotFailed, "/node/"+node, node, &events.SnapshotFailure{
		Node: node, Tier: tier, Step: 7, Plan: w.machine.state.PlanDigest, Units: []events.Range{{End: 3}},
		Finding: finding, Reason: reason, Tiers: tiers,
	})
	w.run()
}

// refusedStop returns why training does not stop; empty where nobody said so.
func (w *world) refusedStop() string {
	for _, event := range w.said {
		if event.Kind == events.StopRefused {
			return must[events.StopRefusal](w.t, event).Reason
		}
	}
	return ""
}

// A stop was complete with the snapshots of two of three nodes, and the third ended with the model of the step before.
func TestTrainingStopsOnceAllHaveMadeTheStepOfWhichASnapshotIsComplete(t *testing.T) {
	w := stopping(t, "n2")
	w.stores()
	w.tick(20 * time.Second)
	if w.machine.state.Stop != nil {
		t.Fatal("it has stopped, and n2 has not made the step")
	}
	w.makes("n2", 7)
	w.run()
	if stop := w.machine.state.Stop; stop == nil || stop.Step != 7 || len(stop.Behind) > 0 {
		t.Errorf("all have made the step: %+v", stop)
	}
}

func TestWhoDoesNotTellThatItMadeTheLastStepIsNamedWhereTrainingStopsWithoutItsWord(t *testing.T) {
	w := stopping(t, "n2")
	w.stores()
	w.restart()
	w.tick(40 * time.Second)
	if stop := w.machine.state.Stop; stop == nil || !slices.Equal(stop.Behind, []string{"n2"}) {
		t.Errorf("expected n2 to be behind: %+v", stop)
	}
}

func TestAPartThatIsWrittenTellsThatTheStepIsMade(t *testing.T) {
	w := stopping(t, "n1", "n2") // agents of before tell nothing else
	for _, node := range []string{"n1", "n2"} {
		w.hear(events.SnapshotWritten, "/node/"+node, node, &events.SnapshotPart{
			Node: node, Tier: "disk", Step: 7, Plan: w.machine.state.PlanDigest, Units: []events.Range{{End: 3}}})
	}
	w.run()
	w.stores()
	if w.machine.state.Stop == nil {
		t.Error("it is not stopped")
	}
}

// A full disk had all stand still for five minutes.
func TestAStopIsCalledOffAtOnceWhereNobodyCanWriteItsSnapshot(t *testing.T) {
	w := stopping(t)
	w.cannotWrite("n1", "disk", "full", "no room: no space left on device", "disk")
	w.restart()
	if refused := w.refusedStop(); refused != "" {
		t.Fatalf("n2 has yet to write: %s", refused)
	}
	w.cannotWrite("n2", "disk", "full", "no room: no space left on device", "disk")
	refused := w.refusedStop()
	for _, says := range []string{
		"step 7 cannot be written: no room: no space left on device (disk of n1, n2)", "training goes on", "ask again",
	} {
		if !strings.Contains(refused, says) {
			t.Errorf("it says %q: expected %q", refused, says)
		}
	}
	if w.machine.state.Stop != nil || w.machine.state.Negotiation != nil || len(w.machine.state.Pending) > 0 {
		t.Errorf("training does not go on: %+v, pending %v", w.machine.state.Negotiation, w.machine.state.Pending)
	}
}

func TestAStopGoesOnWhereAnotherHolderOrAnotherTierMayHaveTheSnapshot(t *testing.T) {
	for name, fails := range map[string]func(*world){
		"another holder": func(w *world) { w.cannotWrite("n1", "disk", "full", "no room", "disk") },
		"another tier": func(w *world) {
			w.cannotWrite("n1", "disk", "full", "no room", "disk", "remote")
			w.cannotWrite("n2", "disk", "full", "no room", "disk", "remote")
		},
		"another step": func(w *world) {
			for _, node := range []string{"n1", "n2"} {
				w.hear(events.SnapshotFailed, "/node/"+node, node, &events.SnapshotFailure{Node: node, Tier: "disk", Step: 6,
					Plan: w.machine.state.PlanDigest, Units: []events.Range{{End: 3}}, Finding: "full", Reason: "r", Tiers: []string{"disk"}})
			}
			w.run()
		},
	} {
		w := stopping(t)
		fails(w)
		if refused := w.refusedStop(); refused != "" {
			t.Errorf("%s: %s", name, refused)
		}
		w.stores()
		if w.machine.state.Stop == nil {
			t.Errorf("%s: it has not stopped", name)
		}
	}
}

func TestAStopIsCalledOffWhereTheBucketRefusesAPart(t *testing.T) {
	w := stopping(t)
	w.cannotWrite("n1", "remote", "refused", "403", "remote")
	if refused := w.refusedStop(); !strings.Contains(refused, "403 (remote of n1)") {
		t.Errorf("it says %q", refused)
	}
}

// completes has the restorer say that a snapshot of a plan is complete in a tier.
func (w *world) completes(tier string, step uint64, plan string) {
	w.hear(events.SnapshotCompleted, "/restorer", tier, &events.CompleteSnapshot{Tier: tier, Step: step, Plan: plan})
	w.run()
}

// The slower tier has a snapshot of the plan before complete, while n2 evaluates.
func TestAnOlderSnapshotOfASlowerTierUndoesNoStop(t *testing.T) {
	for name, older := range map[string]func(*world){
		"of the plan before": func(w *world) { w.completes("remote", 3, events.Digest([]byte("the plan before"))) },
		"of a later step":    func(w *world) { w.completes("remote", 9, w.machine.state.PlanDigest) },
	} {
		w := stopping(t, "n2")
		w.completes("disk", 7, w.machine.state.PlanDigest)
		older(w)
		w.makes("n2", 7)
		w.run()
		if w.machine.state.Stop == nil {
			t.Errorf("%s: all have made the step of which a snapshot is complete, and it is not stopped: %+v", name, w.machine.state.Stored)
		}
	}
}

func TestASnapshotOfAStepThatNeverComesHasNobodyStandStillWhereAllStop(t *testing.T) {
	w := stopping(t)
	w.completes("disk", 1<<50, w.machine.state.PlanDigest)
	w.stores()
	if w.machine.state.Stop == nil {
		t.Errorf("it has not stopped: %+v", w.machine.state.Stored)
	}
}

func TestAnOlderSnapshotOfASlowerTierIsNotTakenForTheNewest(t *testing.T) {
	w := stopping(t, "n2")
	w.completes("disk", 4, w.machine.state.PlanDigest)
	w.completes("remote", 3, events.Digest([]byte("the plan before")))
	if stored := w.machine.state.Stored; stored.Step != 4 {
		t.Errorf("the newest snapshot is taken to be %+v", stored)
	}
}

// writes has a node tell that it wrote its part of the snapshot with which training stops.
func (w *world) writes(node, tier string) {
	w.hear(events.SnapshotWritten, "/node/"+node, node, &events.SnapshotPart{
		Node: node, Tier: tier, Step: 7, Plan: w.machine.state.PlanDigest, Units: []events.Range{{End: 3}}})
	w.run()
}

// All units are written to the disk of n1, too.
func TestAStopGoesOnWhereOneNodeFailsInATierThatNobodyElseHas(t *testing.T) {
	for name, before := range map[string]func(*world){
		"nothing is written yet":  func(*world) {},
		"a snapshot was complete": func(w *world) { w.completes("disk", 4, w.machine.state.PlanDigest) },
		"n1 has written":          func(w *world) { w.writes("n1", "disk") },
	} {
		for _, own := range [][]string{{"remote"}, {"disk", "remote"}, nil} {
			w := stoppingIn(t, map[string][]string{"n1": {"disk"}, "n2": own})
			before(w)
			w.cannotWrite("n2", "remote", "refused", "403", "remote")
			w.restart()
			if refused := w.refusedStop(); refused != "" {
				t.Errorf("%s: called off by one that tells %v: %s", name, own, refused)
			}
			w.stores()
			if w.machine.state.Stop == nil {
				t.Errorf("%s: it has not stopped", name)
			}
		}
	}
}

// No snapshot was ever complete, as in a job whose store was full from the beginning.
func TestAStopThatNobodyCanWriteIsCalledOffAtOnceBeforeAnySnapshotWasComplete(t *testing.T) {
	disks, bucket := []string{"disk"}, []string{"remote"}
	for name, c := range map[string]struct {
		lasts map[string][]string
		fails func(*world)
	}{
		"a bucket alone": {map[string][]string{"n1": bucket, "n2": bucket}, func(w *world) {
			w.cannotWrite("n1", "remote", "refused", "403", "remote")
		}},
		"full disks": {map[string][]string{"n1": disks, "n2": disks}, func(w *world) {
			w.cannotWrite("n1", "disk", "full", "no room", "disk")
			w.cannotWrite("n2", "disk", "full", "no room", "disk")
		}},
		"full disks of agents that do not tell": {nil, func(w *world) {
			w.cannotWrite("n1", "disk", "full", "no room", "disk")
			w.cannotWrite("n2", "disk", "full", "no room", "disk")
		}},
		"a bucket and a full disk": {map[string][]string{"n1": disks, "n2": bucket}, func(w *world) {
			w.cannotWrite("n1", "disk", "full", "no room", "disk")
			w.cannotWrite("n2", "remote", "refused", "403", "remote")
		}},
		"losses that are not finite": {map[string][]string{"n1": {"disk", "remote"}, "n2": {"disk", "remote"}}, func(w *world) {
			w.cannotWrite("n1", "disk", "other", "the loss is not finite", "disk") // they tell of the first tier alone, and write to none
			w.cannotWrite("n2", "disk", "other", "the loss is not finite", "disk")
		}},
	} {
		w := stoppingIn(t, c.lasts)
		c.fails(w)
		if refused := w.refusedStop(); !strings.Contains(refused, "cannot be written") {
			t.Errorf("%s: it says %q", name, refused)
		}
	}
}

// Builds of before December 2026 remember which units are written, and not by whom.
func TestAStopThatABuildOfBeforeRemembersWaitsForNobodyWhoWrote(t *testing.T) {
	w := stopping(t, "n1", "n2")
	w.writes("n1", "disk")
	w.writes("n2", "disk")
	w.machine.state.Negotiation.Made = nil
	w.restart()
	w.stores()
	if stop := w.machine.state.Stop; stop == nil || len(stop.Behind) > 0 {
		t.Errorf("all wrote what they hold, and it has stopped with %+v", stop)
	}
}

func TestOfAFailureToWriteTheLastSnapshotNoUnitsAreRemembered(t *testing.T) {
	w := stopping(t)
	w.cannotWrite("n1", "disk", "full", "no room", "disk")
	memory, err := w.machine.Snapshot()
	expected := `"unwritten":[{"node":"n1","tier":"disk","finding":"full","reason":"no room","tiers":["disk"]}]`
	if err != nil || !strings.Contains(string(memory), expected) {
		t.Errorf("%v, remembered otherwise: %s", err, memory)
	}
}

// script is the job of scripts that keep their own state.
func script() *events.Job {
	return &events.Job{Digest: events.Digest(nil), Kind: events.DataParallel, Layers: []events.LayerProfile{{ParameterBytes: 1}},
		GlobalBatch: 12, MicroBatch: 1}
}

// The stop was refused, for their state would be lost, which is in their own checkpoints.
func TestScriptsThatKeepTheirOwnStateStopWithoutASnapshot(t *testing.T) {
	w := newEmptyWorld(t, 2, 0)
	w.stragglers = map[string]bool{"n2": true}
	w.begin(2)
	w.machine.state.Job = script()
	w.step = 5
	w.hear(events.StopRequested, "/user", "opticks", &events.StopRequest{Reason: "the rack is moved"})
	w.run()
	if why, stop := w.refusedStop(), w.machine.state.Stop; why != "" || stop != nil {
		t.Fatalf("refused: %q; stopped before all stand where they stop: %+v", why, stop)
	}
	if asked := lastAsked[events.SnapshotRequest](w, events.SnapshotRequested); !asked.Unchanged {
		t.Errorf("asked for a snapshot that nobody writes: %+v", asked)
	}
	w.makes("n2", 7)
	w.run()
	if stop := w.machine.state.Stop; stop == nil || stop.Tier != "" || stop.Step != 7 || len(stop.Behind) > 0 {
		t.Errorf("stopped: %+v", stop)
	}
}

func TestWhereAllScriptsThatKeepTheirOwnStateHaveEndedNobodySaysThatItIsGone(t *testing.T) {
	w := newWorld(t, 2)
	w.machine.state.Job = script()
	w.prove(4, "n1", "n2")
	w.run()
	held := w.held()
	if held == nil || strings.Contains(held.Reason, "gone") || !strings.Contains(held.Reason, "go on from their own checkpoints") {
		t.Errorf("held: %+v", held)
	}
}
