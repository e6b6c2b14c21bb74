package machine_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// exits has the agent of a node tell that its trainer is gone. The agent lives on.
func (w *world) exits(name, incarnation string, expected bool) {
	w.hear("/node/"+name, events.NodeExited, name, &events.Exit{
		Node: name, Incarnation: incarnation, Generation: 2, Reason: "killed by signal 9", Expected: expected,
	})
}

func TestATrainerWhoseAgentSaysThatItIsGoneIsLostAtOnceWithoutAPeer(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.exits("n3", "a", false)
	if len(w.said) != 1 {
		t.Fatalf("expected the loss at once, got %v", w.said)
	}
	lost, err := events.Open[events.NodeState](w.said[0])
	if err != nil || lost.Incarnation != "a" || !strings.Contains(lost.Reason, "killed by signal 9") {
		t.Errorf("%+v, %v", lost, err)
	}
	if heard := w.nodes["n3"].number; lost.Step != heard { // a step a heartbeat
		t.Errorf("its last heartbeat told step %d, its loss %d", heard, lost.Step)
	}
	w.said = nil
	w.exits("n3", "a", false)
	w.pulse("n1", refused("n3"))
	w.pass(20 * time.Second)
	w.expect() // once an incarnation, though its agent answers probes
}

// What it holds may come back, so that nobody goes back to an older step for it at once.
func TestATrainerThatHangsIsLostThoughNothingProvesThatItsStateIs(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.exits("n2", "a", false)
	w.hear("/node/n3", events.NodeExited, "n3",
		&events.Exit{Node: "n3", Incarnation: "a", Generation: 2, Reason: "no boundary for 30s", Hangs: true})
	said := w.said
	w.expect("node.lost n2", "node.lost n3")
	for i, proven := range []bool{true, false} {
		if lost, err := events.Open[events.NodeState](said[i]); err != nil || lost.Proven != proven {
			t.Errorf("expected proven %v, got %+v, %v", proven, lost, err)
		}
	}
}

func TestWhatAnAgentKeepsOfATrainerThatIsGoneMayComeBack(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.hear("/node/n3", events.NodeExited, "n3",
		&events.Exit{Node: "n3", Incarnation: "a", Generation: 2, Reason: "exit status 1", Keeps: true})
	lost, err := events.Open[events.NodeState](w.said[0])
	if err != nil || lost.Node != "n3" || lost.Proven || lost.Reason != "its trainer is gone: exit status 1" {
		t.Errorf("expected n3, and nothing proven of what it holds, got %+v, %v", lost, err)
	}
}

func TestTheExitOfAnOlderProcessIsNotThatOfTheOneInItsPlace(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.join("n3", "b")
	w.exits("n3", "a", false)
	w.exits("n9", "a", false) // nobody knows it
	w.expect()
	w.exits("n3", "b", false)
	w.expect("node.lost n3")
}

// The others must be told of it, for they need it until a plan does without it. It tells nothing of how often nodes
// fail.
func TestAnExitThatWasToBeExpectedIsALossAndNoFailure(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3", "n4")
	rate := func() float64 {
		t.Helper()
		lost, err := events.Open[events.NodeState](w.said[len(w.said)-1])
		if err != nil {
			t.Fatal(err)
		}
		return lost.FailuresPerNodeSecond
	}
	w.exits("n4", "a", true)
	before := rate()
	w.exits("n3", "a", false)
	if failed := rate(); before*1.9 > failed || before*2.1 < failed {
		t.Errorf("one failure more: expected the rate to double, got %v after %v", failed, before)
	}
	w.expect("node.lost n4", "node.lost n3")
}

// train has all trainers complete a step, or keep one of them waiting for the others.
func (w *world) train(steps int, hangs string) {
	for step := range steps {
		for _, name := range w.names() {
			node := w.nodes[name]
			node.number++
			beat := events.Pulse{
				Node: name, Incarnation: node.incarnation, Number: node.number, Generation: 2, Step: uint64(step),
				StepSeconds: 0.5, Phase: events.PhaseWaiting,
			}
			if hangs != "" {
				beat.Step = 10
			}
			if name == hangs {
				beat.Phase = events.PhaseComputing
			}
			w.note(w.machine.Pulse(beat, 0, w.now))
		}
		w.now = w.now.Add(500 * time.Millisecond)
		w.note(w.machine.Tick(w.now))
	}
}

func TestATrainerThatComputesWhileOthersWaitForLongIsLostAndSaysFor(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.train(11, "")
	w.expect()
	w.train(5, "n2")
	w.expect()
	w.train(2, "n2")
	w.said = slices.DeleteFunc(w.said, func(event events.Event) bool { return event.Kind == events.LinkMeasured })
	if len(w.said) != 1 {
		t.Fatalf("expected the loss of n2, got %v", w.said)
	}
	lost, err := events.Open[events.NodeState](w.said[0])
	if err != nil || lost.Node != "n2" || lost.Proven || !strings.Contains(lost.Reason, "n1 has waited for it for") ||
		lost.WaitedSeconds < 2.5 || lost.WaitedSeconds > 3.5 {
		t.Errorf("%+v, %v", lost, err)
	}
}

// The negotiator hears the request first, and takes up who comes then; the monitor hears of that only behind the join.
func TestANodeThatComesBetweenTheRequestForAResetAndItsAnswerIsWatched(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	w.hear("/negotiator", events.TrainingCompleted, "end", &events.JobEnd{Generation: 1, Step: 30, Nodes: []string{"n1", "n2"}})
	w.join("n3", "a")
	w.hear("/negotiator", events.MembershipRefused, "n3",
		&events.Refusal{Node: "n3", Refused: events.ChangeJoin, Incarnation: "a", Reason: "the job is complete", Complete: true})
	w.join("n4", "a")
	w.hear("/negotiator", events.TrainingReset, "c", &events.JobReset{Generation: 1, Reason: "longer"})
	w.nodes["n3"].dead, w.nodes["n4"].dead = true, true
	w.pass(time.Minute)
	var lost []string
	for _, event := range w.said {
		if event.Kind == events.NodeLost {
			lost = append(lost, event.Subject)
		}
	}
	if !slices.Equal(lost, []string{"n4"}) {
		t.Errorf("lost are %v, expected n4 alone", lost)
	}
}

// A process that was stopped was said to be gone, and noticed at once.
func TestATrainerThatStoodStillIsSaidToHangSinceThen(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.hear("/node/n3", events.NodeExited, "n3",
		&events.Exit{Node: "n3", Incarnation: "a", Generation: 2, Reason: "its process is stopped", Keeps: true, WaitedSeconds: 2})
	lost, err := events.Open[events.NodeState](w.said[0])
	if err != nil || lost.WaitedSeconds != 2 || lost.Reason != "its trainer hangs: its process is stopped" {
		t.Errorf("%+v, %v: expected that n3 hangs, for 2 s so far", lost, err)
	}
}
