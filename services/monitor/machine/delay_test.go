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

func TestWhoKeepsOthersWaitingInOneStepAndInALaterOneIsNamedInBoth(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	w.train(11, "")
	w.stand(10, 60)
	if said := w.stand(11, 60); len(said) != 2 || said[0].Step != 10 || said[1].Step != 11 {
		t.Errorf("expected n2 to be named in both steps, got %+v", said)
	}
}
