package machine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// complete is a world whose job is done.
func complete(t *testing.T) *world {
	w := newWorld(t, "n1")
	w.hear("/negotiator", events.TrainingCompleted, "end", &events.JobEnd{Generation: 1, Step: 30, Nodes: []string{"n1"}})
	return w
}

// Joins after the end were kept until they were refused, whatever became of who had asked.
func TestANodeThatComesAfterTheEndAndGoesBeforeAResetIsToldIsNotSaidToBeLost(t *testing.T) {
	for how, goes := range map[string]func(*world){
		"leaves": func(w *world) { w.exits("n9", "a", true) },
		"fails":  func(w *world) { w.exits("n9", "a", false) },
	} {
		w := complete(t)
		w.join("n9", "a")
		w.nodes["n9"].dead = true
		goes(w)
		w.hear("/negotiator", events.TrainingReset, "c", &events.JobReset{Generation: 1, Reason: "longer"})
		w.pass(time.Minute)
		for _, said := range w.said {
			t.Errorf("n9 %s: said %s of %s: %s", how, said.Kind, said.Subject, said.Data)
		}
	}
}

func TestTheExitOfTheProcessBeforeTakesNoLateNodeOut(t *testing.T) {
	w := complete(t)
	w.join("n9", "a")
	w.join("n9", "b")
	w.exits("n9", "a", false)
	w.hear("/negotiator", events.TrainingReset, "c", &events.JobReset{Generation: 1, Reason: "longer"})
	w.nodes["n9"].dead = true
	w.pass(time.Minute)
	w.expect("node.lost n9")
}

// Nobody refuses while no negotiator acts: 20,000 names took 1.86 MB.
func TestNodesThatComeAfterTheEndHaveABound(t *testing.T) {
	w := complete(t)
	for i := range 3 * 4096 {
		w.now = w.now.Add(time.Millisecond)
		w.join(fmt.Sprint("x", i), "a")
	}
	if memory, err := w.machine.Snapshot(); err != nil || len(memory) > 4096*150 {
		t.Errorf("%d bytes of memory, %v", len(memory), err)
	}
	w.hear("/negotiator", events.TrainingReset, "c", &events.JobReset{Generation: 1, Reason: "longer"})
	newest := fmt.Sprint("x", 3*4096-1)
	w.nodes[newest].dead = true
	w.exits(newest, "a", false)
	w.exits("x0", "a", false)
	w.expect("node.lost " + newest)
}
