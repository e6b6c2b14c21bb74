package machine

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/reknit/reknit/events"
)

// A node that stood still was given up, the others went on without it, and the reset did not name it.
func TestAResetNamesWhoWasLostUnderAnEarlierPlanAndMayLive(t *testing.T) {
	for hasEnded, silent := range map[bool][]string{false: {"n2"}, true: nil} {
		w := newWorld(t, 3)
		w.step = 40
		process, before := w.process["n2"], w.plan.Generation
		w.lose("n2")
		w.run()
		if _, there := w.plan.Member("n2"); there || w.plan.Generation == before {
			t.Fatalf("the plan is %+v", w.plan)
		}
		if hasEnded {
			w.hear(events.NodeExited, "/node/n2", "n2", &events.Exit{Node: "n2", Incarnation: process, Reason: "exit status 1"})
		}
		w.prove(41, "n1")
		w.prove(41, "n3")
		if refused := w.reset(); refused != "" {
			t.Fatal(refused)
		}
		if told := lastAsked[events.JobReset](w, events.TrainingReset); !slices.Equal(told.Silent, silent) {
			t.Errorf("it has ended: %v, told %+v", hasEnded, told)
		}
	}
}

// The 65th that was lost was not remembered, and not named once the 64 before it had ended.
func TestAResetNamesWhoMayLiveHoweverManyWereLostAndHaveEnded(t *testing.T) {
	w := newWorld(t, events.MostSilent+3)
	w.step = 40
	lost := make([]string, events.MostSilent+1)
	for i := range lost {
		lost[i] = fmt.Sprintf("n%d", 2+i)
	}
	processes := maps.Clone(w.process)
	for _, node := range lost {
		w.lose(node)
	}
	w.run()
	for _, node := range lost[:events.MostSilent] {
		w.hear(events.NodeExited, "/node/"+node, node, &events.Exit{Node: node, Incarnation: processes[node], Reason: "exit status 1"})
	}
	w.prove(41, "n1")
	w.prove(41, fmt.Sprintf("n%d", events.MostSilent+3))
	if refused := w.reset(); refused != "" {
		t.Fatal(refused)
	}
	if told := lastAsked[events.JobReset](w, events.TrainingReset); !slices.Equal(told.Silent, lost[events.MostSilent:]) {
		t.Errorf("told %+v", told)
	}
}
