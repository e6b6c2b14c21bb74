package machine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// asksLate has a user ask for something, and the negotiator hear of it so much later. It returns the kind of the answer, and all of it.
func (w *world) asksLate(late time.Duration, kind events.Kind, asked events.Payload) (events.Kind, string) {
	w.mute[events.NegotiationOverdue] = true
	w.hear(kind, "/user", "opticks", asked)
	w.run()
	heard := w.said[len(w.said)-1]
	w.mute[events.NegotiationOverdue] = false
	w.now = w.now.Add(late)
	w.restart()
	before := len(w.said)
	w.answer(heard)
	w.run()
	if len(w.said) == before {
		return "", ""
	}
	return w.said[before].Kind, string(w.said[before].Data)
}

func TestWhatAUserAskedLongAgoIsRefusedAndAnythingElseIsDone(t *testing.T) {
	stands := func(t *testing.T) *world {
		w := newWorld(t, 2)
		w.step = 40
		w.prove(40, "n1", "n2")
		return w
	}
	trains := func(t *testing.T) *world {
		w := newEmptyWorld(t, 2, 0)
		w.tiers = true
		w.begin(2)
		return w
	}
	for name, test := range map[string]struct {
		world         func(*testing.T) *world
		kind          events.Kind
		asked         events.Payload
		done, refused events.Kind
	}{
		"a reset": {stands, events.ResetRequested, &events.ResetRequest{Reason: "r"}, events.TrainingReset, events.ResetRefused},
		"a stop":  {trains, events.StopRequested, &events.StopRequest{Reason: "r"}, events.NegotiationOpened, events.StopRefused},
	} {
		for _, late := range []time.Duration{59 * time.Second, 61 * time.Second} {
			w, want := test.world(t), test.done
			if late > time.Minute {
				want = test.refused
			}
			kind, answer := w.asksLate(late, test.kind, test.asked)
			if kind != want || want == test.refused && !strings.Contains(answer, "asked 61 s before a negotiator heard it") {
				t.Errorf("%s of %s ago: %s %s, expected %s", name, late, kind, answer, want)
			}
		}
	}
}

func TestAStepIsNotReleasedByWhatAUserAskedLongAgo(t *testing.T) {
	for _, late := range []time.Duration{59 * time.Second, 61 * time.Second} {
		w := newWorld(t, 3)
		w.step = 30
		w.faults("n1")
		w.faults("n2")
		held := w.heldStep()
		if held == nil {
			t.Fatal("no step is held")
		}
		kind, _ := w.asksLate(late, events.ReleaseRequested, &events.ReleaseRequest{Hold: held.Hold, Step: held.Step, Reason: "r"})
		if isReleased := kind == events.StepReleased; isReleased != (late < time.Minute) {
			t.Errorf("%s ago: %s", late, kind)
		}
	}
}

func TestWhoAsksAgainAndAgainWhileNothingIsDecidedIsRefused(t *testing.T) {
	w := newWorld(t, 2)
	w.mute[events.NegotiationOverdue] = true
	for range 100 {
		w.hear(events.StopRequested, "/user", "opticks", &events.StopRequest{Reason: "r"})
	}
	w.run()
	if kept := len(w.machine.state.Asked); kept > mostAsked {
		t.Errorf("%d requests are kept", kept)
	}
	if last := w.said[len(w.said)-1]; last.Kind != events.StopRefused || !strings.Contains(string(last.Data), fmt.Sprint(mostAsked)) {
		t.Errorf("the last is told %s %s", last.Kind, last.Data)
	}
}

func TestARequestThatABuildBeforeAnsweredKeepsNobodyFromAskingLater(t *testing.T) {
	w := newWorld(t, 2)
	ask := func() { w.hear(events.StopRequested, "/user", "opticks", &events.StopRequest{Reason: "r"}) }
	for range mostAsked {
		ask()
		heard := w.queue[len(w.queue)-1]
		w.queue = nil
		if _, err := w.machine.Handle(heard); err != nil { // in silence, as what an instance before was done with
			t.Fatal(err)
		}
	}
	w.now = w.now.Add(2 * time.Minute)
	ask()
	w.run()
	if last := w.said[len(w.said)-1]; strings.Contains(string(last.Data), "ask again") {
		t.Errorf("two minutes later: %s %s", last.Kind, last.Data)
	}
}
