package machine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// faults has the trainer of a node end by a fault of its own in the step under way; its agent has the state that it left.
func (w *world) faults(node string) { w.faultsWith(node, events.Exit{Keeps: true}) }

func (w *world) faultsWith(node string, exit events.Exit) {
	w.tellFault(node, exit)
	w.run()
}

func (w *world) tellFault(node string, exit events.Exit) {
	step := w.step
	exit.Node, exit.Incarnation, exit.Generation, exit.Reason = node, w.process[node], w.plan.Generation, "ValueError: record 3605"
	if exit.Step == nil {
		exit.Step = &step
	}
	w.hear(events.NodeExited, "/node/"+node, node, &exit)
	w.lose(node)
}

// heldStep returns the step that was held last; nil where none was since the last plan.
func (w *world) heldStep() (step *events.HeldStep) {
	for _, event := range w.said {
		switch event.Kind {
		case events.PlanCommitted:
			step = nil
		case events.ClusterHeld:
			step = must[events.Hold](w.t, event).Step
		}
	}
	return step
}

// asks has a user say what becomes of a step that is held, and returns the answer.
func (w *world) asks(hold *events.HeldStep, skip bool) events.Kind {
	before := len(w.said)
	w.hear(events.ReleaseRequested, "/user", "opticks",
		&events.ReleaseRequest{Hold: hold.Hold, Step: hold.Step, Skip: skip, Reason: "asked by eva"})
	w.run()
	for _, event := range w.said[before:] {
		if event.Kind == events.StepReleased || event.Kind == events.ReleaseRefused {
			return event.Kind
		}
	}
	return ""
}

func TestAStepThatEndsOneTrainerAfterTheOtherIsHeldBeforeTheLastIsGivenIt(t *testing.T) {
	w := newWorld(t, 3)
	w.step = 30
	w.faults("n1")
	if w.heldStep() != nil || w.nodes() != "n2 n3" {
		t.Fatalf("one that ended is the end of all: %v, nodes %s", w.heldStep(), w.nodes())
	}
	w.faults("n2")
	held := w.heldStep()
	if held == nil || held.Step != 30 || held.Samples != (events.Samples{First: 360, Count: 12}) ||
		strings.Join(held.Died, " ") != "n1 n2" {
		t.Fatalf("held %+v", held)
	}
	reason := w.holds()[len(w.holds())-1].Reason
	for _, says := range []string{
		"step 30", "samples 360 to 371", "n1, n2", "ValueError: record 3605", "reknit step retry", "reknit step skip",
	} {
		if !strings.Contains(reason, says) {
			t.Errorf("the reason does not say %q: %s", says, reason)
		}
	}
	plans := len(w.plans())
	w.join("n1")
	w.join("n4")
	w.run()
	w.tick(2 * time.Hour)
	if len(w.plans()) != plans {
		t.Error("somebody who joins is given the step")
	}
}

func TestWhereAllEndAtOnceAStepIsHeldTheSecondTime(t *testing.T) {
	w := newWorld(t, 3)
	w.step = 30
	for range 2 {
		if w.heldStep() != nil {
			t.Fatal("it is held before it has ended anybody twice")
		}
		for _, node := range []string{"n1", "n2", "n3"} {
			w.tellFault(node, events.Exit{Keeps: true})
		}
		w.run()
		w.bringBack(30, "n1", "n2", "n3")
	}
	if held := w.heldStep(); held == nil || len(held.Died) != 3 {
		t.Fatalf("held %+v", held)
	}
}

// bringBack has nodes join that have what their scripts left of a step.
func (w *world) bringBack(step uint64, nodes ...string) {
	w.trained = map[string]*events.Trained{}
	for _, node := range nodes {
		w.trained[node] = &events.Trained{Generation: w.plan.Generation, Step: step}
		w.join(node)
	}
	w.run()
	w.tick(5 * time.Minute)
}

func TestOneNodeThatEndsAgainAndAgainInAStepHoldsNobody(t *testing.T) {
	for nodes, all := range map[int]string{2: "n1 n2", 4: "n1 n2 n3 n4"} {
		w := newWorld(t, nodes)
		w.step = 30
		for range 6 {
			w.faults("n1")
			if w.heldStep() != nil {
				t.Fatalf("of %d nodes one holds %+v", nodes, w.heldStep())
			}
			w.step = 30
			w.bringBack(30, "n1")
			w.tick(10 * time.Minute)
			w.step = w.plan.ResumeStep
		}
		if w.nodes() != all {
			t.Errorf("nodes %s, expected %s", w.nodes(), all)
		}
	}
}

// The others ended by their collective, and counted as if the step ended each of them.
func TestOneNodeThatOnceTookOthersDownWithItHoldsNobodyWhereItEndsAgain(t *testing.T) {
	w := newWorld(t, 4)
	w.step = 30
	for round := range 2 {
		down := []string{"n1", "n2", "n3"}
		if round > 0 {
			down = down[:1]
		}
		for _, node := range down {
			w.tellFault(node, events.Exit{Keeps: true})
		}
		w.bringBack(30, down...) // before n4 makes the step
		if held := w.heldStep(); held != nil {
			t.Fatalf("in round %d, and n1 alone ended but for the first, held %+v", round+1, held)
		}
		if plan := w.plans()[len(w.plans())-1]; w.nodes() != "n1 n2 n3 n4" || round == 0 && plan.ResumeStep != 30 {
			t.Fatalf("after round %d train %s, from step %d", round+1, w.nodes(), plan.ResumeStep)
		}
	}
}

func TestAStepThatAllHaveMadeIsSuspectedNoMoreThoughTrainingGoesBackBehindIt(t *testing.T) {
	w := newWorld(t, 5)
	w.step = 30
	w.faults("n1")
	w.faults("n2")
	w.step = 40
	w.machine.state.Negotiation = &negotiation{consenting: consenting{Consents: map[string]events.Consent{}}}
	for _, node := range []string{"n3", "n4", "n5"} {
		w.machine.state.Negotiation.Consents[node] = events.Consent{Incarnation: w.process[node], Step: 40}
	}
	if w.machine.countEnds(10); len(w.machine.state.Poison.Suspects) != 0 {
		t.Errorf("suspected still: %v", w.machine.state.Poison.Suspects)
	}
}

func TestNodesOfOneHostHoldNobodyWhereOthersStandElsewhere(t *testing.T) {
	for held, hosts := range map[bool][]string{
		false: {"a", "a", "a", "b", "b"},
		true:  {"a", "a", "b", "b", "b"},
	} {
		w := newEmptyWorld(t, 5, 0)
		for i, host := range hosts {
			w.host[fmt.Sprintf("n%d", i+1)] = host
		}
		w.begin(5)
		w.step = 30
		for _, node := range []string{"n1", "n2", "n3"} {
			w.faults(node)
		}
		if (w.heldStep() != nil) != held {
			t.Errorf("on hosts %v: held %+v, expected %t", hosts, w.heldStep(), held)
		}
	}
}

func TestWhoeverIsKilledOrTellsOfAnotherStepHoldsNobody(t *testing.T) {
	far, past := uint64(1e9), uint64(3)
	for name, end := range map[string]func(*world, string){
		"killed":                       func(w *world, node string) { w.lose(node); w.run() },
		"in a step nobody has come to": func(w *world, node string) { w.faultsWith(node, events.Exit{Step: &far, Keeps: true}) },
		"in a step that is made":       func(w *world, node string) { w.faultsWith(node, events.Exit{Step: &past, Keeps: true}) },
	} {
		w := newWorld(t, 5)
		w.step = 30
		for _, node := range []string{"n1", "n2", "n3"} {
			end(w, node)
		}
		if w.heldStep() != nil || w.nodes() != "n4 n5" {
			t.Errorf("%s: held %+v, nodes %s", name, w.heldStep(), w.nodes())
		}
	}
}

func TestEndsInStepsThatAreMadeCountForNothing(t *testing.T) {
	w := newWorld(t, 5)
	for i, node := range []string{"n1", "n2", "n3"} {
		w.step = uint64(30 + i)
		w.faults(node)
	}
	if w.heldStep() != nil || w.nodes() != "n4 n5" {
		t.Errorf("held %+v, nodes %s", w.heldStep(), w.nodes())
	}
}

func TestTheLastOfTwoWaitsForAnotherWhereWhatTheFirstHeldIsLost(t *testing.T) {
	w := newWorld(t, 2)
	w.step = 30
	w.faultsWith("n1", events.Exit{})
	if plans := len(w.plans()); plans != 1 || w.heldStep() != nil || !strings.Contains(w.holds()[0].Reason, "The last holder") {
		t.Fatalf("%d plans, holds %+v", plans, w.holds())
	}
	w.join("n3")
	w.run()
	if w.nodes() != "n2 n3" {
		t.Fatalf("nodes %s", w.nodes())
	}
	w.faultsWith("n3", events.Exit{}) // by whatever: two different nodes ended in it
	if w.heldStep() == nil {
		t.Error("the last is given a step that ended two")
	}
}

func TestASingleNodeWaitsForNobodyAfterItsOwnFault(t *testing.T) {
	w := newWorld(t, 1)
	w.step = 30
	w.tellFault("n1", events.Exit{})
	w.run()
	w.trained = map[string]*events.Trained{"n1": {Generation: w.plan.Generation, Step: 30}}
	w.join("n1")
	w.run()
	w.tick(30 * time.Second)
	if len(w.plans()) != 2 {
		t.Errorf("%d plans, holds %+v", len(w.plans()), w.holds())
	}
}

func TestTheLastOfTwoWaitsForNoMoreThanFiveMinutesAndOnce(t *testing.T) {
	w := newWorld(t, 2)
	w.step = 30
	w.faultsWith("n1", events.Exit{})
	w.tick(6 * time.Minute)
	if w.nodes() != "n2" {
		t.Fatalf("nodes %s", w.nodes())
	}
	w.join("n1")
	w.run()
	w.tick(5 * time.Minute)
	w.step = 40
	w.faultsWith("n1", events.Exit{})
	if w.nodes() != "n2" {
		t.Error("one that fails again is waited for")
	}
}

// holds returns why the cluster held, each time that it was told.
func (w *world) holds() (holds []events.Hold) {
	for _, event := range w.said {
		if event.Kind == events.ClusterHeld {
			holds = append(holds, must[events.Hold](w.t, event))
		}
	}
	return holds
}

// A mistake in both scripts had the second wait for five minutes, so that it lost nothing: there was nothing.
func TestInTheFirstStepTheLastOfTwoWaitsForNobody(t *testing.T) {
	w := newWorld(t, 2)
	for _, node := range []string{"n1", "n2"} {
		step := uint64(0)
		w.hear(events.NodeExited, "/node/"+node, node, &events.Exit{
			Node: node, Incarnation: w.process[node], Generation: 1, Step: &step, Reason: "NameError: name 'x' is not defined",
		})
		w.prove(0, node)
		w.tick(time.Second)
	}
	held := w.held()
	if held == nil || held.Step != nil || !strings.Contains(held.Reason, "no node is left, and no step was made") {
		t.Fatalf("held %+v", held)
	}
	w.join("n1")
	w.join("n2")
	w.tick(5 * time.Second)
	w.first(w.plan.Generation, "n1 n2")
}
