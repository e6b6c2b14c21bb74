package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

func TestAStepThatIsTriedAgainIsHeldAgainWhereItEndsAsMany(t *testing.T) {
	w := newWorld(t, 4)
	w.step = 30
	for hold := 1; hold <= 2; hold++ {
		for _, node := range []string{"n1", "n2", "n3"} {
			w.faults(node)
		}
		held := w.heldStep()
		if held == nil || held.Hold != hold || held.Step != 30 {
			t.Fatalf("held %+v, expected hold %d", held, hold)
		}
		for _, node := range []string{"n1", "n2", "n3"} {
			w.join(node)
		}
		w.run()
		if answer := w.asks(held, false); answer != events.StepReleased {
			t.Fatalf("answered %q", answer)
		}
		w.tick(10 * time.Minute)
		if plan := w.plans()[len(w.plans())-1]; w.nodes() != "n1 n2 n3 n4" || plan.Data.Skipped != nil ||
			plan.Data.ConsumedSamples != 12*plan.ResumeStep {
			t.Fatalf("nodes %s, data %+v", w.nodes(), plan.Data)
		}
	}
}

func TestSamplesThatAreSkippedAreInNoStepAndThePlanSaysSo(t *testing.T) {
	w := newWorld(t, 3)
	w.step = 30
	w.faults("n1")
	w.faults("n2")
	held := w.heldStep()
	w.restart()
	if answer := w.asks(held, true); answer != events.StepReleased {
		t.Fatalf("answered %q", answer)
	}
	plan := w.plans()[len(w.plans())-1]
	if plan.ResumeStep != 30 || plan.Data.ConsumedSamples != 372 || plan.Data.Skipped == nil || *plan.Data.Skipped != held.Samples {
		t.Fatalf("from step %d: %+v", plan.ResumeStep, plan.Data)
	}
	w.lose("n3") // before it has made the step
	w.bringBack(30, "n3")
	if plan := w.plans()[len(w.plans())-1]; plan.Data.ConsumedSamples != 372 || plan.Data.Skipped != nil {
		t.Errorf("the next plan, of the same step: %+v", plan.Data)
	}
	if answer := w.asks(held, true); answer != events.StepReleased {
		t.Errorf("asked for again: %q", answer)
	}
	if answer := w.asks(held, false); answer != events.ReleaseRefused {
		t.Errorf("asked for the other way: %q", answer)
	}
	if skipped := w.machine.state.Poison.Skipped; len(skipped) != 1 {
		t.Errorf("passed over: %v", skipped)
	}
}

// A plan that goes back says what it trains from there on, the held step's samples among them: one ends by them, and they are passed over.
func TestSamplesThatAreSkippedStaySoWhereTrainingGoesBack(t *testing.T) {
	w := newWorld(t, 3)
	w.step = 30
	w.faults("n1")
	w.faults("n2")
	held := w.heldStep()
	w.asks(held, true)
	for _, node := range []string{"n1", "n2"} {
		w.join(node)
	}
	w.run()
	w.tick(5 * time.Minute)
	state := &w.machine.state
	state.Data = state.Data.From(25, 300, 12) // it went back to step 25
	w.faults("n1")
	plan := w.plans()[len(w.plans())-1]
	if w.heldStep() != nil || plan.Data.ConsumedSamples != 372 || plan.Data.Skipped == nil || *plan.Data.Skipped != held.Samples {
		t.Errorf("held %+v, data %+v", w.heldStep(), plan.Data)
	}
}

// A plan trains what lies before samples that are passed over, and then them: whoever ends by them loses what it made, each time.
func TestAStepWhoseSamplesArePassedOverIsHeldWhereTrainingWouldGoBackBeforeItForEver(t *testing.T) {
	w := newWorld(t, 2)
	w.step = 30
	w.faults("n1")
	w.faults("n2")
	w.bringBack(30, "n1", "n2")
	held := w.heldStep()
	if held == nil {
		t.Fatal("it is not held")
	}
	w.asks(held, true)
	m := w.machine
	m.state.Data = m.state.Data.From(25, 300, 12) // what was made since is lost
	m.state.Poison.Ends = map[string]stepEnd{"n1": {Step: 30, Reason: "ValueError: record 3605"}}
	m.state.Negotiation = &negotiation{Opening: events.Opening{Negotiation: "g9"}}
	m.state.Negotiation.Consents = map[string]events.Consent{
		"n1": {Incarnation: w.process["n1"], Step: 30}, "n2": {Incarnation: w.process["n2"], Step: 30},
	}
	w.takeSaid(hearing(m, w.heard[len(w.heard)-1], func() { m.poisoned(25) }))
	again := w.heldStep()
	if again == nil || again.Hold != held.Hold+1 || again.Samples != held.Samples {
		t.Fatalf("held %+v", again)
	}
	for _, says := range []string{"which are passed over", "go on from step 25", "Start another node", "reknit step retry"} {
		if reason := w.holds()[len(w.holds())-1].Reason; !strings.Contains(reason, says) {
			t.Errorf("the reason does not say %q: %s", says, reason)
		}
	}
}

func TestWhoAsksForWhatIsNotHeldIsRefusedAndNothingIsDone(t *testing.T) {
	w := newWorld(t, 3)
	if answer := w.asks(&events.HeldStep{Hold: 1, Step: 30}, true); answer != events.ReleaseRefused {
		t.Errorf("nothing is held: %q", answer)
	}
	w.step = 30
	w.faults("n1")
	w.faults("n2")
	held := w.heldStep()
	for _, wrong := range []events.HeldStep{{Hold: held.Hold + 1, Step: 30}, {Hold: held.Hold, Step: 31}} {
		if answer := w.asks(&wrong, true); answer != events.ReleaseRefused {
			t.Errorf("%+v: %q", wrong, answer)
		}
	}
	w.machine.state.Poison.Skipped = slices.Repeat([]events.Samples{{First: 0, Count: 12}}, mostSkipped)
	if answer := w.asks(held, true); answer != events.ReleaseRefused || w.heldStep() == nil {
		t.Errorf("a stretch too many: %q", answer)
	}
}

func TestStretchesThatTouchAreRememberedAsOne(t *testing.T) {
	stretches := joined([]events.Samples{
		{First: 24, Count: 12}, {First: 0, Count: 12}, {First: 12, Count: 12}, {First: 30, Count: 2}, {First: 40, Count: 1},
	})
	if !slices.Equal(stretches, []events.Samples{{First: 0, Count: 36}, {First: 40, Count: 1}}) {
		t.Errorf("got %v", stretches)
	}
}

func TestWhoAsksToLeaveWhileAStepIsHeldHearsWhyItMustWaitAndWhatItAloneHolds(t *testing.T) {
	w := newWorld(t, 3)
	w.step = 30
	w.faults("n1")
	w.faults("n2")
	w.hear(events.LeaveRequested, "/node/n3", "n3", &events.Leave{Node: "n3", Reason: "its spot ends", DeadlineSeconds: 120})
	w.run()
	last := w.said[len(w.said)-1]
	if last.Kind != events.LeaveDelayed || last.Subject != "n3" {
		t.Fatalf("said last: %s of %s", last.Kind, last.Subject)
	}
	delay := must[events.LeaveDelay](t, last)
	if delay.DeadlineSeconds != 120 || len(delay.Alone) != 1 || !strings.Contains(delay.Reason, "reknit step retry") {
		t.Errorf("told %+v", delay)
	}
}
