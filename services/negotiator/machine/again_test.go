package machine

import (
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// withALastHolder is a cluster whose n3 alone has the last layer. A step is broken, and n3 does not answer.
func withALastHolder(t *testing.T) *world {
	w := newEmptyWorld(t, 3, 0)
	w.split = true
	w.begin(3)
	w.deaf["n3"], w.lacks = true, 2 // the others have not all units
	w.breaks("n1")
	w.run()
	return w
}

// Its answer was swallowed by a fault that is over, and nothing would have had it say it again.
func TestALastHolderThatHasLostItsAnswerIsAskedAgain(t *testing.T) {
	w := withALastHolder(t)
	w.tick(10 * time.Second)
	if held := w.held(); held == nil || len(held.Awaits) != 1 || held.Awaits[0] != "n3" {
		t.Fatalf("held %+v, expected that n3 is waited for", held)
	}
	w.deaf["n3"], w.lacks = false, 0 // of what it was asked before it knows nothing
	w.tick(time.Minute)
	if plans := w.plans(); len(plans) != 2 || len(w.refusals("n3")) > 0 {
		t.Fatalf("%d plans, refused %+v: expected that training goes on with n3", len(plans), w.refusals("n3"))
	}
}

func TestAMemberThatAloneIsLeftAndHasLostItsAnswerIsAskedAgain(t *testing.T) {
	w := newWorld(t, 2)
	w.deaf["n2"] = true
	w.lose("n1")
	w.run()
	w.tick(10 * time.Second)
	w.deaf["n2"] = false
	w.tick(time.Minute)
	if plans := w.plans(); len(plans) != 2 || w.nodes() != "n2" {
		t.Fatalf("%d plans, nodes %q", len(plans), w.nodes())
	}
}

// With 1,000 nodes each question is answered by 999.
func TestALastHolderThatNeverAnswersIsAskedLessAndLessOften(t *testing.T) {
	w := withALastHolder(t)
	asked := []int{w.openings()}
	for range 3 {
		w.tick(time.Hour)
		asked = append(asked, w.openings())
	}
	if first, last := asked[1]-asked[0], asked[3]-asked[2]; first < 3 || first > 10 || last < 1 || last > 4 {
		t.Errorf("asked %d times in the first hour, and %d times in the third", first, last)
	}
	if len(w.refusals("n3")) > 0 {
		t.Error("the last holder was given up")
	}
}

// n3 asks for time, has it, and is waited for because it is the last to hold a layer.
func TestTheWaitsBehindAnExcuseThatIsOverGrow(t *testing.T) {
	w := withALastHolder(t)
	w.delays("n3")
	w.tick(15 * time.Minute)
	before := w.count(events.NegotiationOverdue)
	w.tick(time.Hour)
	if said := w.count(events.NegotiationOverdue) - before; said > 60 {
		t.Errorf("an hour has %d overdue facts, expected waits that double", said)
	}
}

// activates has nodes tell that they have made a step under the first plan.
func (w *world) activates(nodes ...string) {
	for _, node := range nodes {
		w.hear(events.PlanActivated, "/node/"+node, node, &events.Activation{Node: node, Generation: 1, Step: 1, StepSeconds: 1})
	}
	w.run()
}

// A step ends for all or for nobody. One that kept its own to itself had eleven minutes of everybody's time at each change.
func TestHowLongAMemberMayTakeFollowsFromTheStepsOfMost(t *testing.T) {
	for name, tell := range map[string]struct {
		nodes []string
		given bool // up, after a minute
	}{
		"the two others": {[]string{"n1", "n2"}, true}, "one of three": {[]string{"n1"}, false},
		"itself": {[]string{"n3"}, true}, "nobody": {nil, false},
	} {
		w := newWorld(t, 3)
		w.activates(tell.nodes...)
		w.deaf["n3"] = true
		w.breaks("n1")
		w.run()
		w.delays("n3")
		w.tick(29 * time.Second)
		if len(w.refusals("n3")) > 0 {
			t.Errorf("%s: given up before its 30 s are over", name)
		}
		w.tick(31 * time.Second)
		if given := len(w.refusals("n3")) > 0; given != tell.given {
			t.Errorf("%s: given up %v, expected %v", name, given, tell.given)
		}
	}
}

// n2 is frozen, and lives. The claim of n1 may be of bytes that went astray, and n2 alone could contradict it.
func TestAClaimDoesNotTakeThePlaceOfALastHolderThatIsSilent(t *testing.T) {
	w := newWorld(t, 2)
	w.step, w.deaf["n2"] = 40, true
	w.lose("n1")
	w.run()
	w.bringBack(w.step, "n1")
	w.tick(time.Minute)
	if len(w.refusals("n2")) > 0 {
		t.Fatalf("n2 was given up, and n1 claims what n2 has: %+v", w.refusals("n2"))
	}
	if held := w.held(); held == nil || len(held.Awaits) != 1 || held.Awaits[0] != "n2" {
		t.Fatalf("held %+v, expected that n2 is waited for", held)
	}
}

// The stream forgets an id after ten minutes, and its joiner may have heard nothing for longer.
func TestARequestThatIsSaidAgainAfterALongTimeOpensANegotiationOfItsOwn(t *testing.T) {
	w := newWorld(t, 2)
	w.join("n3")
	asked := w.queue[0]
	w.deaf["n3"] = true
	w.run()
	first := w.opened
	w.tick(30 * time.Minute)
	asked.Logged, asked.Sequence = w.now, w.sequence+1
	w.sequence++
	w.queue = append(w.queue, asked)
	w.run()
	if first == nil || w.opened == nil || w.opened.Negotiation == first.Negotiation || len(w.refusals("n3")) == 0 {
		t.Fatalf("opened %+v and then %+v, refused %+v: expected two negotiations", first, w.opened, w.refusals("n3"))
	}
}
