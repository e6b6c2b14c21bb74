package machine

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// delays has a node say that it will answer later.
func (w *world) delays(node string) {
	w.hear(events.ConsentDelayed, "/node/"+node, node, &events.Delay{
		Negotiation: w.opened.Negotiation, Node: node, Incarnation: w.process[node], Reason: "it adopts its units",
	})
	w.run()
}

func TestAMemberThatAsksForTimeInEachNegotiationHasItOnce(t *testing.T) {
	w := newWorld(t, 3)
	w.deaf["n3"] = true
	w.join("n4")
	w.run()
	before := w.openings()
	for i := range 30 {
		w.delays("n3")
		w.tick(time.Minute)
		if given := len(w.refusals("n3")) > 0; given {
			if i < 9 {
				t.Fatal("given up in the time that it has")
			}
			break
		}
		w.join(fmt.Sprintf("n%d", 5+i))
		w.lose(fmt.Sprintf("n%d", 4+i)) // which ends the negotiation, and the next joiner has another
		w.run()
	}
	if opened := w.openings() - before; len(w.refusals("n3")) != 1 || opened < 9 {
		t.Fatalf("for half an hour, in %d negotiations, it stops %d joiners", opened, len(w.machine.state.Joiners))
	}
}

func TestTheTimeThatAMemberAskedForIsForgottenWithWhatWasNegotiated(t *testing.T) {
	w := newWorld(t, 3)
	w.deaf["n3"] = true
	for _, joiner := range []string{"n4", "n5"} {
		w.join(joiner)
		w.run()
		w.delays("n3")
		w.tick(time.Minute)
		if len(w.refusals("n3")) > 0 {
			t.Fatalf("%s: given up in the time that it has", joiner)
		}
		w.lose(joiner)
		w.run()
		w.tick(time.Hour)
	}
}

func TestAMemberThatSaysHowLongItNeedsHasThatTimeAndNoLonger(t *testing.T) {
	w := newWorld(t, 3)
	w.deaf["n3"] = true
	w.breaks("n1")
	w.run()
	w.hear(events.ConsentDelayed, "/node/n3", "n3", &events.Delay{
		Negotiation: w.opened.Negotiation, Node: "n3", Incarnation: w.process["n3"],
		Reason: "it gives up its step", Seconds: 30,
	})
	w.tick(29 * time.Second)
	if len(w.refusals("n3")) > 0 {
		t.Fatal("it is given up in the time that it needs")
	}
	w.tick(7 * time.Second)
	if len(w.refusals("n3")) != 1 || w.nodes() != "n1 n2" {
		t.Fatalf("refused %+v, nodes %q", w.refusals("n3"), w.nodes())
	}
}

// measureSteps has all tell how long a step usually takes.
func (w *world) measureSteps(seconds float64) {
	for _, node := range []string{"n1", "n2", "n3"} {
		w.hear(events.PlanActivated, "/node/"+node, node,
			&events.Activation{Node: node, Generation: 1, Step: 1, StepSeconds: seconds})
	}
}

// Three steps of a minute are to be waited for, whatever the planner thought that a step takes.
func TestTheLongerAStepIsTheLongerIsWaitedForWhoIsInOne(t *testing.T) {
	w := newWorld(t, 3)
	w.measureSteps(60)
	w.deaf["n3"] = true
	w.breaks("n1")
	w.run()
	w.tick(179 * time.Second)
	if len(w.refusals("n3")) > 0 {
		t.Fatal("it is given up within three steps")
	}
	w.tick(2 * time.Second)
	if len(w.refusals("n3")) != 1 {
		t.Fatal("it is waited for after three steps")
	}
}

func TestUnitsAreWaitedForUntilAllHaveComeToTheStopStepToo(t *testing.T) {
	w := newWorld(t, 3)
	w.transfer, w.mute[events.Scheduled] = true, true
	w.measureSteps(60)
	w.lose("n3")
	w.run()
	w.tick(3 * time.Minute)
	if w.phase() != protocol.Transferring || w.count(events.Scheduled) != 1 {
		t.Fatalf("phase %q, scheduled %d times", w.phase(), w.count(events.Scheduled))
	}
}

func TestOneNodesWordMakesNoStepLong(t *testing.T) {
	for name, measured := range map[string][]float64{"one of two": {1, 1e9}, "one of three": {1e9, 2, 1}} {
		if got := protocol.UsualStep(1, measured); got > 2 {
			t.Errorf("%s: a step takes %v s", name, got)
		}
	}
	if got := protocol.UsualStep(1, []float64{math.MaxFloat64}); got > 3600 {
		t.Errorf("a step takes %v s", got)
	}
}

// stands has a node fall silent after a failure and say that it needs so many seconds, and returns how long the others stand.
func (w *world) stands(node string, needs float64) time.Duration {
	w.deaf[node] = true
	refused, began := len(w.refusals(node)), w.now
	w.lose("n2")
	w.run()
	w.hear(events.ConsentDelayed, "/node/"+node, node, &events.Delay{
		Negotiation: w.opened.Negotiation, Node: node, Incarnation: w.process[node], Reason: "it gives up its step", Seconds: needs,
	})
	w.run()
	for len(w.refusals(node)) == refused && w.now.Sub(began) < 12*time.Hour {
		w.tick(time.Second)
	}
	stood := w.now.Sub(began)
	delete(w.deaf, node)
	w.join("n2")
	w.join(node)
	w.tick(10 * time.Minute)
	return stood
}

// Fault 10 of the hostile reading: one member's word had all others stand for three hours, again and again.
func TestOneNodesWordHasTheOthersStandForWhatItsRecordExplainsAndForHalfAsLongEachTime(t *testing.T) {
	w := newWorld(t, 3)
	for round, most := range []time.Duration{660, 330, 165, 83} {
		if stood := w.stands("n3", 1e9); stood < most*time.Second/2 || stood > (most+6)*time.Second {
			t.Errorf("round %d: all stood for %v, expected about %v", round, stood, most*time.Second)
		}
		if w.nodes() != "n1 n2 n3" {
			t.Fatalf("round %d: nodes %q", round, w.nodes())
		}
	}
}

func TestAMemberThatHasMadeItsFirstStepIsWaitedForAsStepsAndPausesWereMeasured(t *testing.T) {
	for name, c := range map[string]struct {
		pauses []float64
		most   time.Duration
	}{"steps of a second": {[]float64{0, 0, 0}, 30 * time.Second}, "one tells of an endless pause": {[]float64{2, 2, 1e9}, 30 * time.Second},
		"all evaluate for a minute": {[]float64{61, 60, 60}, 2 * time.Minute}} {
		w := newWorld(t, 3)
		for i, node := range []string{"n1", "n2", "n3"} {
			w.hear(events.PlanActivated, "/node/"+node, node,
				&events.Activation{Node: node, Generation: 1, Step: 1, StepSeconds: 1, LongestSeconds: c.pauses[i]})
		}
		w.run()
		if stood := w.stands("n3", 1e9); stood < c.most-time.Second || stood > c.most+6*time.Second {
			t.Errorf("%s: all stood for %v, expected %v", name, stood, c.most)
		}
	}
}

func TestOfWhomNobodyNeedsAUnitIsNotWaitedForThoughItAsksForTime(t *testing.T) {
	w := newWorld(t, 3)
	w.deaf["n4"] = true
	w.lose("n3")
	w.join("n4")
	w.run()
	w.delays("n4")
	if w.tick(6 * time.Second); w.nodes() != "n1 n2" {
		t.Fatalf("nodes %q: expected n1 and n2, which hold all that n3 had, to go on without n4", w.nodes())
	}
	w = newWorld(t, 3)
	w.split = true
	w.join("n4")
	w.run()
	w.tick(time.Minute)
	w.deaf["n5"] = true
	w.lose("n4") // which alone had the last layer
	w.join("n5")
	w.run()
	w.delays("n5")
	if w.tick(time.Minute); len(w.refusals("n5")) > 0 {
		t.Fatalf("n5, which may bring what nobody else has, is given up: %+v", w.refusals("n5"))
	}
}
