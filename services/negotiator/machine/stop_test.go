package machine

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// stopped is a cluster that a user stopped after step 7, of which a snapshot is complete.
func stopped(t *testing.T) *world {
	w := newEmptyWorld(t, 2, 0)
	w.tiers, w.step = true, 0
	w.begin(2)
	w.step = 5
	w.stops()
	return w
}

// stops has a user stop training two steps later.
func (w *world) stops() {
	w.t.Helper()
	w.hear(events.StopRequested, "/user", "opticks", &events.StopRequest{Reason: "the rack is moved"})
	w.run()
	w.hear(events.SnapshotCompleted, "/restorer", "disk",
		&events.CompleteSnapshot{Tier: "disk", Step: w.step + 2, Plan: w.machine.state.PlanDigest})
	w.run()
	if w.machine.state.Stop == nil {
		w.t.Fatalf("it is not stopped: %v", w.saidKinds())
	}
}

// The log forgets what is older than three days, and a job may stand for a holiday.
func TestThatTrainingHasStoppedIsToldAgainEachDayUntilItGoesOn(t *testing.T) {
	w := stopped(t)
	at := w.now
	for range 7 * 2 {
		w.now = w.now.Add(12 * time.Hour)
		w.restart()
		w.tick(time.Second)
	}
	var told []events.Event
	for _, event := range w.said {
		if event.Kind == events.TrainingStopped {
			told = append(told, event)
		}
	}
	if len(told) != 1+7 {
		t.Fatalf("in a week it is told %d times", len(told))
	}
	if last := told[len(told)-1]; !last.Time.Equal(at) || !bytes.Equal(last.Data, told[0].Data) {
		t.Errorf("it is told of %v, %s, expected of %v", last.Time, last.Data, at)
	}
	w.join("n1")
	w.run()
	w.now = w.now.Add(48 * time.Hour)
	before := len(w.said)
	w.tick(time.Second)
	for _, event := range w.said[before:] {
		if event.Kind == events.TrainingStopped {
			t.Error("it is told while a node waits for a place")
		}
	}
}

func TestWhoWasOnlyRestartingWhileTrainingStoppedIsToldToStopTooAndWhoIsStartedAgainGoesOn(t *testing.T) {
	w := newEmptyWorld(t, 1, 0)
	w.tiers = true
	w.joins(12, "n1", "n2")
	w.tick(5 * time.Second)
	w.step = 5
	w.lose("n2") // its script is started again
	w.hear(events.StopRequested, "/user", "opticks", &events.StopRequest{Reason: "the rack is moved"})
	w.run()
	plans := len(w.plans())
	w.hear(events.SnapshotCompleted, "/restorer", "disk",
		&events.CompleteSnapshot{Tier: "disk", Step: w.lastStop(), Plan: w.machine.state.PlanDigest})
	w.run()
	w.restart()
	w.reads = map[string][]events.Snapshot{"n2": {
		{Step: 7, Plan: w.machine.state.PlanDigest, ConsumedSamples: 84, Units: []events.Range{{End: 3}}},
	}}
	w.trained = map[string]*events.Trained{"n2": {Generation: 1, Step: 4}}
	w.joins(12, "n2")
	w.tick(20 * time.Minute)
	if told := w.refusals("n2"); !told[len(told)-1].Stopped || len(w.plans()) != plans || len(w.machine.state.Joiners) > 0 {
		t.Errorf("n2 is told %+v, %d plans after %d", told[len(told)-1], len(w.plans()), plans)
	}
	w.trained, w.step = nil, 0
	w.agentSeconds = 30 * 60 // it was started before the stop, and its script left nothing
	w.joins(12, "n2")
	w.tick(20 * time.Minute)
	if told := w.refusals("n2"); !told[len(told)-1].Stopped || len(w.plans()) != plans {
		t.Errorf("whose script left nothing is told %+v, %d plans after %d", told[len(told)-1], len(w.plans()), plans)
	}
	w.agentSeconds = 60
	w.trained = map[string]*events.Trained{"n2": {Generation: 1, Step: 4}} // of a process that its agent adopted
	w.joins(12, "n2")
	w.tick(5 * time.Second)
	if len(w.plans()) == plans {
		t.Errorf("a node that is started again waits, held %+v", w.held())
	}
}

// A memory of before November 2026 tells that the job has stopped, and not when that was told.
func TestWhoIsStartedOnPurposeAfterAStopThatAnOlderBuildRememberedGoesOn(t *testing.T) {
	w := stopped(t)
	w.machine.state.Ended, w.machine.state.EndTold = time.Time{}, time.Time{}
	w.restart()
	w.now = w.now.Add(24 * time.Hour)
	w.hear(events.LeaveRequested, "/node/n9", "n9", &events.Leave{Node: "n9", Reason: "whatever is heard since"})
	w.run()
	w.tick(time.Second)
	w.agentSeconds = 60
	w.join("n1")
	w.run()
	if told := w.refusals("n1"); len(told) > 0 && told[len(told)-1].Stopped {
		t.Errorf("n1 is told %+v", told[len(told)-1])
	}
}

func TestAnAgentThatKeepsWhatItsScriptLeftIsNotToldForEverThatTrainingHasStopped(t *testing.T) {
	for _, after := range []time.Duration{time.Minute, 24 * time.Hour} {
		w := stopped(t)
		w.now = w.now.Add(after)
		w.trained = map[string]*events.Trained{"n1": {Generation: 1, Step: 7}}
		w.join("n1")
		w.run()
		told := w.refusals("n1")
		if isTold := len(told) > 0 && told[len(told)-1].Stopped; isTold != (after < restartTime) {
			t.Errorf("%s after the stop: told %+v", after, told)
		}
	}
}

// lastStop returns the step of which the last snapshot was asked for.
func (w *world) lastStop() uint64 {
	return lastAsked[events.SnapshotRequest](w, events.SnapshotRequested).Step
}

func TestAStoppedJobBeginsAnewWhereAUserAsksForIt(t *testing.T) {
	w := stopped(t)
	w.step = 0
	w.reads = map[string][]events.Snapshot{
		"n1": {{Step: 7, Plan: w.machine.state.PlanDigest, ConsumedSamples: 84, Units: []events.Range{{End: 3}}}},
	}
	if refused := w.reset(); refused != "" {
		t.Fatal(refused)
	}
	w.join("n1")
	w.join("n2")
	w.run()
	w.tick(5 * time.Second)
	w.first(2, "n1 n2")
}

// Scripts were started again with another folder, and nothing said so.
func TestWhoIsStartedWhereTheLastSnapshotIsNotIsToldWhichSettingToGive(t *testing.T) {
	for tier, setting := range theirPlace {
		w := stopped(t)
		w.machine.state.Stop.Tier = tier
		w.step = 0
		w.join("n1")
		w.join("n2")
		w.run()
		w.tick(5 * time.Second)
		held := w.held()
		if held == nil || !strings.Contains(held.Reason, setting) || !strings.Contains(held.Reason, "If it is gone, begin anew at the first step: reknit") {
			t.Errorf("%s: held %+v", tier, held)
		}
	}
}
