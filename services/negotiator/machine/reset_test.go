package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// hasAt has nodes tell, where training begins, that they hold all units at a step, and at no other one.
func (w *world) hasAt(steps map[string]uint64) {
	opening := w.lastOpening()
	for _, member := range opening.Members {
		step, odd := steps[member.Node]
		if !odd {
			continue
		}
		w.hear(events.Consented, "/node/"+member.Node, member.Node, &events.Consent{
			Negotiation: opening.Negotiation, Node: member.Node, Incarnation: member.Incarnation, Accepted: true, Step: step,
			Holdings: []events.Holding{{Units: events.Range{End: 3}, Steps: []uint64{step}}},
		})
	}
	w.run()
	w.tick(5 * time.Second)
}

// resets has a user ask for a new beginning of two nodes that had trained to step 40, and fell silent.
func resets(t *testing.T, snapshots bool) *world {
	w := newWorld(t, 2)
	w.tiers = true
	w.step = 40
	w.lose("n1")
	w.lose("n2")
	w.run()
	w.hear(events.ResetRequested, "/user", "opticks", &events.ResetRequest{Reason: "a wrong learning rate", Snapshots: snapshots})
	w.run()
	w.step = 0
	return w
}

func TestWhatALaterStepIsHeldAtDecidesNothingWhereTrainingBeginsAnew(t *testing.T) {
	for how, told := range map[string]map[string]uint64{
		"a process that fell silent lives, and has what was given up": {"n1": 40},
		"a node that nobody knows lies":                               {"n9": 1_000_000},
	} {
		for odd := range told {
			w := resets(t, false)
			w.deaf[odd] = true
			w.joins(12, "n3", odd)
			w.tick(time.Second)
			w.hasAt(told)
			w.first(2, w.nodes())
			if plan := w.plan; len(plan.Nodes) != 2 {
				t.Errorf("%s: the plan has %+v", how, plan.Nodes)
			}
		}
	}
}

// A reset from a snapshot of a job whose scripts have none had all wait for ever.
func TestTrainingDoesNotBeginFromASnapshotOfScriptsThatKeepTheirOwnState(t *testing.T) {
	w := resets(t, false)
	w.machine.state.Job = script()
	refused := w.asksReset(&events.ResetRequest{Reason: "longer", Snapshots: true})
	if reset := w.machine.state.Reset; !strings.Contains(refused, "--unchanged") || reset == nil || reset.Snapshots {
		t.Errorf("refused: %q, reset %+v", refused, reset)
	}
}

// The step of the byte that stands for their state was told: more than four thousand million.
func TestAResetOfScriptsThatKeepTheirOwnStateTellsOfNoStep(t *testing.T) {
	w := newWorld(t, 2)
	w.machine.state.Job = script()
	w.step = 40
	w.prove(40, "n1", "n2")
	if refused := w.reset(); refused != "" {
		t.Fatal(refused)
	}
	if told := lastAsked[events.JobReset](w, events.TrainingReset); told.Step != 0 {
		t.Errorf("told %+v", told)
	}
}

func TestAClusterThatBeginsAnewAndHasOnlyWhatWasGivenUpSaysSo(t *testing.T) {
	w := resets(t, false)
	w.deaf["n1"], w.deaf["n2"] = true, true
	w.joins(12, "n1", "n2")
	w.tick(time.Second)
	w.hasAt(map[string]uint64{"n1": 40, "n2": 40})
	if held := w.held(); len(w.plans()) != 1 || held == nil || len(held.Awaits) > 0 || !strings.Contains(held.Reason, "was given up") {
		t.Errorf("%d plans, held %+v", len(w.plans()), held)
	}
}

func TestALiarThatTellsOfAStepHasNoJobThatMadeNoneForgetThat(t *testing.T) {
	w := newWorld(t, 2)
	w.prove(0, "n1", "n2")
	w.deaf["n9"] = true
	w.joins(12, "n1", "n9")
	w.tick(time.Second)
	w.hasAt(map[string]uint64{"n9": 5})
	w.first(2, "n1 n9")
}

func TestAnActivationOfAStrangerOrOfAnOlderPlanTellsOfNoStep(t *testing.T) {
	w := newWorld(t, 2)
	w.hear(events.PlanActivated, "/node/n9", "n9", &events.Activation{Node: "n9", Generation: 1, Step: 5})
	w.run()
	if !w.machine.state.Unbegun {
		t.Error("a stranger tells that training has begun")
	}
	w = resets(t, false)
	w.joins(12, "n1", "n2")
	w.tick(5 * time.Second)
	w.first(2, "n1 n2")
	w.hear(events.PlanActivated, "/node/n1", "n1", &events.Activation{Node: "n1", Generation: 1, Step: 40})
	w.run()
	if !w.machine.state.Unbegun {
		t.Error("a word of the plan before the reset tells that training has begun")
	}
}

func TestAStepThatAnyWordTellsOfIsNotBegunAnewByItself(t *testing.T) {
	for how, tells := range map[string]func(*world){
		"the end of a script": func(w *world) {
			w.hear(events.NodeExited, "/node/n1", "n1", &events.Exit{
				Node: "n1", Incarnation: w.process["n1"], Generation: 1, Step: new(uint64(40)), Reason: "NameError",
			})
		},
		"a part of a snapshot": func(w *world) {
			w.hear(events.SnapshotWritten, "/node/n1", "n1", &events.SnapshotPart{
				Node: "n1", Tier: "disk", Step: 30, Plan: w.machine.state.PlanDigest, Units: []events.Range{{End: 3}},
			})
		},
	} {
		w := newWorld(t, 2)
		tells(w)
		w.prove(0, "n1", "n2")
		w.joins(12, "n1", "n2")
		w.tick(time.Minute)
		if len(w.plans()) != 1 {
			t.Errorf("%s: it begins at step %d", how, w.plan.ResumeStep)
		}
	}
}

func TestWhoeverBeginsFromASnapshotWaitsForTheNodesThatCanReadOne(t *testing.T) {
	w := resets(t, true)
	digest := w.machine.state.PlanDigest
	w.joins(12, "n3") // another host, which has none of n1's disk
	w.joins(12, "n4")
	w.tick(time.Hour)
	if held := w.held(); len(w.plans()) != 1 || held == nil || !strings.Contains(held.Reason, "can read none as a whole") {
		t.Fatalf("%d plans, held %+v", len(w.plans()), held)
	}
	w.reads = map[string][]events.Snapshot{"n1": {snapshotOf(30, digest, 0, 3)}}
	w.joins(12, "n1")
	w.tick(5 * time.Second)
	if w.plan.ResumeStep != 30 || w.plan.Snapshot != digest {
		t.Errorf("it goes on at step %d of snapshot %q, held %+v", w.plan.ResumeStep, w.plan.Snapshot, w.held())
	}
}

func TestWhoeverBeginsFromASnapshotWaitsForTheNewestAQuarterOfAnHour(t *testing.T) {
	for _, comes := range []bool{true, false} {
		w := newWorld(t, 2)
		w.tiers = true
		w.step = 100
		digest := w.machine.state.PlanDigest
		w.hear(events.SnapshotCompleted, "/restorer", "disk", &events.CompleteSnapshot{Tier: "disk", Step: 90, Plan: digest})
		w.prove(100, "n1", "n2")
		w.hear(events.ResetRequested, "/user", "opticks", &events.ResetRequest{Reason: "longer", Snapshots: true})
		w.run()
		w.step = 0
		w.reads = map[string][]events.Snapshot{"n1": {snapshotOf(90, digest, 0, 3)}, "n3": {snapshotOf(60, digest, 0, 3)}}
		w.joins(12, "n3", "n4")
		w.tick(10 * time.Minute)
		if held := w.held(); len(w.plans()) != 1 || held == nil || !strings.Contains(held.Reason, "none of step 90") {
			t.Fatalf("%d plans, held %+v", len(w.plans()), held)
		}
		expected := uint64(60)
		if comes {
			expected = 90
			w.joins(12, "n1")
		}
		w.tick(6 * time.Minute)
		if w.plan.ResumeStep != expected {
			t.Errorf("step %d, expected %d; held %+v", w.plan.ResumeStep, expected, w.held())
		}
	}
}

func TestAResetThatIsAskedForTwiceBeginsNothingTwice(t *testing.T) {
	w := resets(t, false)
	w.deaf["n3"] = true
	w.joins(12, "n3", "n4")
	w.tick(time.Second)
	before := w.openings()
	for range 5 {
		if refused := w.reset(); refused != "" {
			t.Fatal(refused)
		}
	}
	if again := w.openings() - before; before < 2 || again > 0 {
		t.Errorf("%d openings, and %d more", before, again)
	}
}

func TestWhoeverKeepsWhatWasGivenUpWithoutAScriptDefinesNoJob(t *testing.T) {
	w := resets(t, false)
	w.gives = true
	w.join("n1")
	w.run()
	if told := w.refusals("n1"); len(told) == 0 || !told[len(told)-1].OtherJob {
		t.Errorf("after the reset: %+v", told)
	}
	w.gives, w.words = false, "another job"
	w.joins(12, "n3", "n4")
	w.tick(5 * time.Second)
	w.first(2, "n3 n4")

	w = newEmptyWorld(t, 1, 0)
	w.joins(12, "n1", "n2")
	w.tick(5 * time.Second)
	w.step = 40
	before := w.plan.Generation
	w.prove(40, "n1", "n2")
	w.gives = true
	w.join("n1") // it waits as the reset is asked for
	w.run()
	if refused := w.reset(); refused != "" {
		t.Fatal(refused)
	}
	w.step, w.gives, w.words = 0, false, "another job"
	w.joins(12, "n3")
	w.tick(5 * time.Second)
	w.first(before+1, "n3")
}

func TestAResetTellsTheStepThatItGivesUpAndWhoMayLive(t *testing.T) {
	w := newWorld(t, 3)
	w.step = 40
	w.prove(40, "n1")
	w.hear(events.NodeLost, "/monitor", "n2", &events.NodeState{Node: "n2", Incarnation: w.process["n2"], Step: 41, Reason: "no heartbeat"})
	w.prove(41, "n3")
	for range 2 { // asked for again, it is told again
		if refused := w.reset(); refused != "" {
			t.Fatal(refused)
		}
		if told := lastAsked[events.JobReset](w, events.TrainingReset); told.Step != 41 || !slices.Equal(told.Silent, []string{"n2"}) {
			t.Errorf("told %+v", told)
		}
		w.restart()
	}
}

func TestAResetIsToldAgainEachDayUntilThereIsAPlan(t *testing.T) {
	w := resets(t, false)
	at, first := w.now, lastAsked[events.JobReset](w, events.TrainingReset)
	for range 7 * 2 {
		w.now = w.now.Add(12 * time.Hour)
		w.restart()
		w.tick(time.Second)
	}
	told := 0
	for _, event := range w.said {
		if event.Kind == events.TrainingReset {
			told++
			if again := must[events.JobReset](t, event); event.Time.Sub(at).Abs() > time.Second || again.Reason != first.Reason {
				t.Errorf("told of %v: %+v", event.Time, again)
			}
		}
	}
	if told != 1+7 {
		t.Errorf("in a week it is told %d times", told)
	}
	w.joins(12, "n3", "n4")
	w.tick(5 * time.Second)
	w.first(2, "n3 n4")
	before := len(w.said)
	w.now = w.now.Add(48 * time.Hour)
	w.tick(time.Second)
	if slices.ContainsFunc(w.said[before:], func(event events.Event) bool { return event.Kind == events.TrainingReset }) {
		t.Error("it is told behind the plan")
	}
}

// Its memory is gone, and the log has dropped the request.
func TestANegotiatorThatHearsItsWordOfAResetAgainKnowsOfIt(t *testing.T) {
	w := newWorld(t, 2)
	w.tiers, w.step = true, 40
	w.lose("n1")
	w.lose("n2")
	w.run()
	w.now = w.now.Add(time.Hour)
	w.hear(events.TrainingReset, "/negotiator", "opticks", &events.JobReset{Generation: 1, Reason: "a wrong learning rate"})
	w.run()
	w.reads = map[string][]events.Snapshot{"n3": {snapshotOf(30, w.machine.state.PlanDigest, 0, 3)}}
	w.step = 0
	w.joins(12, "n3", "n4")
	w.tick(5 * time.Second)
	w.first(2, "n3 n4")
	w.hear(events.TrainingReset, "/negotiator", "opticks", &events.JobReset{Generation: 1, Reason: "a wrong learning rate"})
	w.run()
	if w.machine.state.Reset != nil || len(w.machine.state.Members) != 2 {
		t.Error("what it said before the plan gives that up, too")
	}
}

// A build of before December 2026 remembered why, and nothing else.
func TestAResetThatAnOlderBuildRememberedStands(t *testing.T) {
	w := resets(t, true)
	w.machine.state.Reset = nil
	snapshot, err := w.machine.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	older := strings.Replace(string(snapshot), `"heard"`, `"anew":"a wrong learning rate","anewFrom":true,"heard"`, 1)
	if err := w.machine.Restore([]byte(older)); err != nil {
		t.Fatal(err)
	}
	if !w.machine.begins() || !w.machine.fromSnapshots() || w.machine.state.Reset.Generation != 1 {
		t.Errorf("it remembers %+v", w.machine.state.Reset)
	}
}

// A reading of hostile nodes: one said at generation 1 that it held step 1,000,000, and everybody began there.
func TestWhatANodeSaysToHoldBeyondTheFirstStepDecidesNothingInTheVeryFirstPlan(t *testing.T) {
	w := newEmptyWorld(t, 3, 0)
	w.deaf["n9"] = true
	w.joins(12, "n1", "n2", "n9")
	w.tick(time.Second)
	w.hasAt(map[string]uint64{"n9": 1_000_000})
	w.first(1, "n1 n2 n9")

	w = newEmptyWorld(t, 1, 0)
	w.deaf["n9"] = true
	w.joins(12, "n9")
	w.tick(time.Second)
	w.hasAt(map[string]uint64{"n9": 1_000_000})
	if held := w.held(); len(w.plans()) > 0 || held == nil || !strings.Contains(held.Reason, "begins at its first step") {
		t.Errorf("%d plans, held %+v", len(w.plans()), held)
	}
}
