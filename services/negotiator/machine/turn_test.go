package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/merit"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// Fault 9: a joiner that restarted every 3 s began 100 transfers in 100 restarts, and no plan was committed.
func TestAJoinerInACrashLoopDoesNotStopTheRecoveryOfOthers(t *testing.T) {
	w := whileAllArePaused(t)
	transfers := 0
	w.mute[events.Scheduled] = false
	for range 100 {
		w.join("n9")
		if w.phase() == protocol.Transferring {
			transfers++
		}
		w.run()
		w.tick(3 * time.Second)
	}
	if w.opened != nil && w.phase() == protocol.Transferring || len(w.plans()) < 2 || w.plans()[1].Nodes[0].Node != "n1" {
		t.Fatalf("phase %q, %d plans", w.phase(), len(w.plans()))
	}
	opened := 0
	for _, event := range w.said {
		if event.Kind == events.NegotiationOpened {
			opened++
		}
	}
	if opened > 20 {
		t.Fatalf("100 restarts of one joiner opened %d negotiations", opened)
	}
	w.tick(6 * time.Minute)
	if !strings.Contains(w.nodes(), "n9") {
		t.Fatalf("now that it stays it is taken: nodes %q", w.nodes())
	}
}

// Found by the worker over raw NATS: NATS was killed nine times in 30 s, all workers came back each time, and the
// cluster held for want of nodes while each of them waited for its turn.
func TestNobodyWaitsForItsTurnWhereNobodyElseIsLeft(t *testing.T) {
	w := newWorld(t, 2)
	for range 6 {
		w.lose("n2")
		w.run()
		w.join("n2")
		w.run()
	}
	w.lose("n1")
	w.run()
	if !w.invited("n2") {
		t.Fatalf("n2, which waited, is not asked what it holds: %+v", w.held())
	}
	w.lose("n2")
	w.run()
	for range 6 {
		w.lose("n9")
		w.run()
		w.join("n9")
		w.run()
	}
	if !w.invited("n9") {
		t.Fatalf("n9, which comes to an empty cluster, is not asked what it holds: %+v", w.held())
	}
}

// invited reports whether the last process of a node took part in a negotiation.
func (w *world) invited(node string) bool {
	return slices.ContainsFunc(w.said, func(event events.Event) bool {
		return event.Kind == events.NegotiationOpened &&
			slices.ContainsFunc(must[events.Opening](w.t, event).Members, func(member events.Member) bool {
				return member.Incarnation == w.process[node]
			})
	})
}

func TestAJoinThatWaitsForItsTurnLeavesTheNegotiationUnderWayAlone(t *testing.T) {
	w := newWorld(t, 3)
	for range 2 {
		w.join("n9")
		w.run()
		w.lose("n9")
		w.run()
	}
	w.mute[events.PlanRequested] = true
	w.breaks("n1") // all are paused: any change that is due begins anew
	w.run()
	under := w.opened.Negotiation
	w.join("n9")
	w.run()
	if w.opened == nil || w.opened.Negotiation != under {
		t.Fatal("the negotiation begins anew for a node whose turn has not come")
	}
	w.mute[events.PlanRequested] = false
	w.propose(w.requests()[len(w.requests())-1])
	w.run()
	if w.nodes() != "n1 n2 n3" {
		t.Fatalf("nodes %q", w.nodes())
	}
	if w.tick(2 * time.Second); w.nodes() != "n1 n2 n3 n9" {
		t.Errorf("nodes %q after its turn has come", w.nodes())
	}
}

// joinDelays are what nodes were told that have to wait for their turn.
func (w *world) joinDelays(node string) (told []events.JoinDelay) {
	for _, event := range w.said {
		if event.Kind == events.JoinDelayed && event.Subject == node {
			told = append(told, must[events.JoinDelay](w.t, event))
		}
	}
	return told
}

// flap has a node take part for a while, fail and come back.
func (w *world) flap(node string, lives time.Duration) {
	w.tick(lives)
	w.lose(node)
	w.run()
	w.join(node)
	w.run()
}

func TestAMemberThatFailsOnceHasItsPlaceBackAtOnceAndIsToldNothing(t *testing.T) {
	w := newWorld(t, 3)
	w.flap("n3", time.Minute)
	if w.nodes() != "n1 n2 n3" || len(w.joinDelays("n3")) > 0 {
		t.Fatalf("nodes %q, told %+v", w.nodes(), w.joinDelays("n3"))
	}
}

func TestAMemberThatFailsAgainAndAgainIsToldWhyItWaitsAndUntilWhen(t *testing.T) {
	w := newWorld(t, 3)
	var waits []float64
	for range 5 {
		w.flap("n3", 40*time.Second)
	}
	for _, told := range w.joinDelays("n3") {
		waits = append(waits, told.Seconds)
		if !strings.Contains(told.Reason, "times lately") || told.Incarnation == "" {
			t.Errorf("told %+v", told)
		}
	}
	if !slices.Equal(waits, []float64{1, 2, 4, 8}) {
		t.Errorf("waits %v", waits)
	}
	if w.tick(7 * time.Second); w.nodes() != "n1 n2" {
		t.Errorf("nodes %q before its turn has come", w.nodes())
	}
	if w.tick(2 * time.Second); w.nodes() != "n1 n2 n3" || len(w.joinDelays("n3")) != 4 {
		t.Errorf("nodes %q, told %d times", w.nodes(), len(w.joinDelays("n3")))
	}
}

func TestTheTimeThatAMemberLivedCountsForItAcrossARestartOfTheNegotiator(t *testing.T) {
	w := newWorld(t, 3)
	for range 4 {
		w.flap("n3", 30*time.Second)
	}
	w.tick(10 * time.Second)
	w.now = w.now.Add(time.Hour) // all train on, and nothing is said
	w.restart()
	w.flap("n3", time.Second)
	told := w.joinDelays("n3")
	if last := told[len(told)-1]; last.Seconds != 2 {
		t.Errorf("after an hour it waits %v s: expected two failures less", last.Seconds)
	}
}

// Processes that have another name each time would fill the memory.
func TestHoweverManyNodesFailTheMemoryIsBounded(t *testing.T) {
	w := newWorld(t, 2)
	w.mute[events.NegotiationOpened] = true
	for i := range merit.MostNodes + 10 {
		name := fmt.Sprintf("x%d", i)
		w.join(name)
		w.lose(name)
		w.run()
	}
	remembered := w.machine.state.Failed
	if _, first := remembered["x0"]; first || len(remembered) != merit.MostNodes {
		t.Errorf("%d are remembered", len(remembered))
	}
	w.now = w.now.Add(3 * time.Hour)
	w.join("late")
	w.lose("late")
	if w.run(); len(w.machine.state.Failed) != 1 {
		t.Errorf("%d are remembered after hours", len(w.machine.state.Failed))
	}
}

// The acknowledgement of a request that is stored may be late: the agent asks anew, by the name of another incarnation.
func TestANodeThatAsksAnewSinceItHeardNoAnswerHasNotFailed(t *testing.T) {
	for every, fails := range map[time.Duration]bool{30 * time.Second: false, 3 * time.Second: true} {
		w := newWorld(t, 3)
		w.mute[events.NegotiationOpened] = true
		for range 1 + mostAnew {
			w.join("n9")
			w.run()
			w.tick(every)
		}
		if told := w.joinDelays("n9"); len(told) > 0 != fails || w.machine.state.Failed["n9"].Count > 0 != fails {
			t.Errorf("of one that asks every %v it is said: %+v", every, told)
		}
	}
}

func TestANodeThatAnsweredAndAsksAnewHasFailed(t *testing.T) {
	w := newWorld(t, 3)
	w.mute[events.PlanRequested] = true
	w.join("n9")
	w.run()
	w.now = w.now.Add(25 * time.Second)
	w.join("n9")
	w.run()
	if w.machine.state.Failed["n9"].Count != 1 {
		t.Errorf("it is remembered by %+v", w.machine.state.Failed["n9"])
	}
}

// Steps take 30 s. Each request ends the negotiation that all others answer, before it is over.
func TestANodeThatAsksAnewForEverKeepsNobodyFromLeaving(t *testing.T) {
	w := newWorld(t, 2)
	w.machine.state.Paces["n1"], w.machine.state.Paces["n2"] = 30, 30
	w.deaf["n3"] = true
	w.join("n3")
	w.run()
	w.hear(events.LeaveRequested, "/node/n2", "n2", &events.Leave{Node: "n2", Reason: "its lease ends"})
	w.run()
	for range 10 {
		w.tick(asksAnewAfter + time.Second)
		w.join("n3")
		w.run()
	}
	if len(w.plans()) < 2 {
		t.Errorf("n2 cannot leave, and n3 is remembered by %+v", w.machine.state.Failed["n3"])
	}
}
