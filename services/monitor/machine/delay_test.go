package machine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// stand has n2 be between steps, while the others wait for it in a step. It returns what was said of such waits so far.
func (w *world) stand(step uint64, beats int) (said []events.StepDelay) {
	for range beats {
		for _, name := range w.names() {
			node := w.nodes[name]
			node.number++
			beat := events.Pulse{Node: name, Incarnation: node.incarnation, Number: node.number, Generation: 2, Step: step,
				StepSeconds: 0.5}
			if beat.Between = name == "n2"; !beat.Between {
				beat.Phase = events.PhaseWaiting
			}
			w.note(w.machine.Pulse(beat, 0, w.now))
		}
		w.now = w.now.Add(500 * time.Millisecond)
		w.note(w.machine.Tick(w.now))
	}
	for _, event := range w.said {
		if told, err := events.Open[events.StepDelay](event); event.Kind == events.StepDelayed && err == nil {
			said = append(said, told)
		}
	}
	return said
}

func TestATrainerThatIsBetweenStepsWhileOthersWaitIsNamedOnceAndNotGivenUp(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.train(11, "")
	said := w.stand(10, 600)
	if len(said) != 1 {
		t.Fatalf("expected n2 to be named once, got %v", said)
	}
	told := said[0]
	if told.Node != "n2" || told.By != "n1" || told.Phase != events.PhaseBetween || told.UsualSeconds != 0.5 || told.Step != 10 ||
		told.WaitedSeconds > 3.5 || told.Reason != "n1 has waited for it for 3.0 s, 0.5 s is usual; it is between steps" {
		t.Errorf("%+v", told)
	}
	if slices.ContainsFunc(w.said, func(event events.Event) bool { return event.Kind == events.NodeLost }) {
		t.Error("it was given up, though it may evaluate or save")
	}
}

// TestWaitsAreOfAPlanWhateverHeartbeatsSay has heartbeats tell of no plan. A delay of generation 0 is no event of the catalogue: the monitor
// ended with it, where a store was wiped while others waited for a node (seed 81308), and would at each such heartbeat of a liar.
func TestWaitsAreOfAPlanWhateverHeartbeatsSay(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.train(11, "")
	for range 60 {
		for _, name := range w.names() {
			node := w.nodes[name]
			node.number++
			beat := events.Pulse{Node: name, Incarnation: node.incarnation, Number: node.number, Step: 10, StepSeconds: 0.5}
			if beat.Between = name == "n2"; beat.Between {
				beat.Script = &events.Script{RestsSeconds: 90}
			} else {
				beat.Phase = events.PhaseWaiting
			}
			w.note(w.machine.Pulse(beat, 0, w.now))
		}
		w.now = w.now.Add(500 * time.Millisecond)
		w.note(w.machine.Tick(w.now))
	}
	if slices.ContainsFunc(w.said, func(event events.Event) bool { return event.Kind == events.StepDelayed }) {
		t.Error("it says that others wait for a node under no plan")
	}
}

func TestWhoKeepsOthersWaitingInOneStepAndInALaterOneIsNamedInBoth(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.train(11, "")
	w.stand(10, 60)
	if said := w.stand(11, 60); len(said) != 2 || said[0].Step != 10 || said[1].Step != 11 {
		t.Errorf("expected n2 to be named in both steps, got %+v", said)
	}
}

func TestNobodyNamesAScriptThatRestsBeforeItsNodeTakesPart(t *testing.T) {
	w := newWorld(t, "n1")
	w.join("n2", "a")
	rests := events.Pulse{Node: "n2", Incarnation: "a", Number: 1, Generation: 2, Script: &events.Script{RestsSeconds: 61}}
	w.note(w.machine.Pulse(rests, 0, w.now))
	if len(w.said) > 0 {
		t.Errorf("it says %+v", w.said)
	}
}

func TestAScriptThatRestsIsNamedOnceForEachRestAndNotForEachHeartbeat(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	beats := func(seconds int, rests func(second int) float64) (said []events.StepDelay) {
		w.said = nil
		for second := range seconds {
			for _, name := range w.names() {
				node := w.nodes[name]
				node.number++
				beat := events.Pulse{Node: name, Incarnation: node.incarnation, Number: node.number, Generation: 2}
				if seconds := rests(second); name == "n2" && seconds > 0 {
					beat.Script = &events.Script{RestsSeconds: seconds, UsualSeconds: 3}
				}
				w.note(w.machine.Pulse(beat, 0, w.now))
			}
			w.now = w.now.Add(time.Second)
			w.note(w.machine.Tick(w.now))
		}
		for _, event := range w.said {
			if told, err := events.Open[events.StepDelay](event); event.Kind == events.StepDelayed && err == nil {
				said = append(said, told)
			}
		}
		return said
	}
	said := beats(300, func(second int) float64 { return float64(60 + second) })
	if len(said) != 1 || said[0].Node != "n2" || said[0].By != "n2" ||
		said[0].Reason != "its script has neither used a processor nor written for 60 s; the longest such time before was 3 s" {
		t.Errorf("%+v", said)
	}
	if said := beats(120, func(second int) float64 { return float64(second % 2) }); len(said) > 0 {
		t.Errorf("an agent that tells of one now, and of none then, has it said %d times", len(said))
	}
	if said := beats(120, func(second int) float64 { return max(0, float64(second)-100) }); len(said) != 1 {
		t.Errorf("its next rest is said %d times", len(said))
	}
}
