package machine

import (
	"slices"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// large is a world of two nodes in which moves take five steps.
func large(t *testing.T) *world {
	w := newWorld(t, 2)
	w.transfer, w.seconds = true, 5
	return w
}

// whilePreCopying is one in which others join, and have not said that they follow.
func whilePreCopying(t *testing.T, joiners ...string) *world {
	w := large(t)
	w.mute[events.PreCopyStarted] = true
	for _, node := range joiners {
		w.join(node)
	}
	w.run()
	if phase := w.phase(); phase != protocol.PreCopying {
		t.Fatalf("phase %q", phase)
	}
	return w
}

func (w *world) hearCaughtUp(negotiation, node string) {
	w.hear(events.PreCopyCaughtUp, "/node/"+node, node,
		&events.CaughtUp{Negotiation: negotiation, Node: node, Step: w.step})
	w.run()
}

func (w *world) started() bool { return slices.Contains(w.saidKinds(), events.PreCopyStarted) }

func TestALargeMoveBeginsWhileTrainingGoesOn(t *testing.T) {
	w := large(t)
	w.step = 40
	w.join("n3")
	w.run()
	kinds := w.saidKinds()
	started, prepared := slices.Index(kinds, events.PreCopyStarted), slices.Index(kinds, events.Prepared)
	if started < 0 || started > prepared || w.nodes() != "n1 n2 n3" || w.plans()[1].ResumeStep != 42 {
		t.Fatalf("started at %d, prepared at %d, nodes %q", started, prepared, w.nodes())
	}
	begun, committed := must[events.PreCopyStart](t, w.said[started]).Plan, w.plans()[1]
	if begun.Parent != committed.Parent || begun.Generation != 2 || len(begun.Nodes) != 3 || begun.ResumeStep != 0 {
		t.Fatalf("began with %+v", begun)
	}
}

func TestAMoveThatTakesNoLongerThanAStepIsMadeWhileAllArePaused(t *testing.T) {
	w := large(t)
	w.seconds = 1
	w.join("n3")
	w.run()
	if w.started() || w.nodes() != "n1 n2 n3" {
		t.Fatalf("started %v, nodes %q", w.started(), w.nodes())
	}
	w.machine.settings.PreCopySteps = 0
	w.join("n4")
	w.run()
	if !w.started() || w.nodes() != "n1 n2 n3 n4" {
		t.Fatalf("of no steps every move is longer: started %v, nodes %q", w.started(), w.nodes())
	}
}

func TestWhatMovesNothingStartsNothing(t *testing.T) {
	w := large(t)
	w.transfer = false
	w.join("n3")
	w.run()
	if w.started() || w.nodes() != "n1 n2 n3" {
		t.Fatalf("started %v, nodes %q", w.started(), w.nodes())
	}
}

func TestAReceiverOrGiverThatCannotPreCopyPausesAll(t *testing.T) {
	for _, node := range []string{"n3", "n1"} {
		w := newWorld(t, 2)
		w.rigid[node] = true
		if node == "n1" {
			w.join("n1")
			w.run()
		}
		w.transfer, w.seconds = true, 5
		w.join("n3")
		w.run()
		if w.started() || w.nodes() != "n1 n2 n3" {
			t.Fatalf("%s cannot: started %v, nodes %q", node, w.started(), w.nodes())
		}
	}
}

func TestWhoLeavesGivesWhileItStillTrains(t *testing.T) {
	w := large(t)
	w.hear(events.LeaveRequested, "/node/n1", "n1", &events.Leave{Node: "n1"})
	w.run()
	if !w.started() || w.nodes() != "n2" {
		t.Fatalf("started %v, nodes %q", w.started(), w.nodes())
	}
}

func TestAfterAnAbandonedStepLayersMoveWhileAllArePaused(t *testing.T) {
	w := large(t)
	w.lose("n2")
	w.run()
	if w.started() || w.nodes() != "n1" || !slices.Contains(w.saidKinds(), events.Scheduled) {
		t.Fatalf("said %v", w.saidKinds())
	}
}

func TestEveryReceiverIsWaitedForAndNobodyElseCounts(t *testing.T) {
	w := whilePreCopying(t, "n3")
	other := w.opened.Negotiation
	w.join("n4")
	w.join("n3") // its process started anew
	w.run()
	under := w.opened.Negotiation
	for _, said := range [][2]string{{under, "n3"}, {under, "n3"}, {under, "n1"}, {under, "n9"}, {other, "n4"}} {
		w.hearCaughtUp(said[0], said[1])
	}
	if phase := w.phase(); phase != protocol.PreCopying {
		t.Fatalf("%s before n4 follows", phase)
	}
	w.mute[events.Prepared] = true
	w.hearCaughtUp(under, "n4")
	if phase := w.phase(); phase != protocol.Promising {
		t.Fatalf("%s when all follow", phase)
	}
	before := len(w.said)
	w.hearCaughtUp(under, "n4")
	if len(w.said) != before {
		t.Fatalf("a late word has an effect: %v", w.saidKinds()[before:])
	}
}

func TestAReceiverThatSaysWhyItDoesNotCatchUpIsWaitedForNoLonger(t *testing.T) {
	w := large(t)
	w.refusal = "no memory for layers beside those it trains"
	w.join("n3")
	w.run()
	if !w.started() || w.nodes() != "n1 n2 n3" {
		t.Fatalf("started %v, nodes %q", w.started(), w.nodes())
	}
}

func TestAReceiverThatNeverCatchesUpIsNotGivenUpAndGetsItsLayersWhileAllArePaused(t *testing.T) {
	w := whilePreCopying(t, "n3")
	w.tick(59 * time.Second)
	if phase := w.phase(); phase != protocol.PreCopying {
		t.Fatalf("%s before the time is over", phase)
	}
	w.tick(2 * time.Second)
	if w.nodes() != "n1 n2 n3" || slices.Contains(w.saidKinds(), events.Aborted) {
		t.Fatalf("nodes %q, said %v", w.nodes(), w.saidKinds())
	}
}

func TestAMoveThatFailsWhileTrainingGoesOnIsMadeWhileAllArePaused(t *testing.T) {
	w := whilePreCopying(t, "n3")
	w.hear(events.RestorationFailed, "/node/n3", "n3",
		&events.Failure{Negotiation: w.opened.Negotiation, Node: "n3", Reason: "the store is away"})
	w.run()
	if w.nodes() != "n1 n2 n3" || slices.Contains(w.saidKinds(), events.Aborted) {
		t.Fatalf("nodes %q, said %v", w.nodes(), w.saidKinds())
	}
}

// Each change comes to a cluster of n1 and n2 that n3 joins.
func TestOnlyWhoLeavesOrFailsEndsAMoveThatBegan(t *testing.T) {
	changes := map[string]struct {
		make       func(*world)
		supersedes bool
	}{
		"another node joins": {func(w *world) { w.join("n4") }, false},
		"a link is cut": {func(w *world) {
			w.hear(events.DisconnectRequested, "/user", "n1", &events.LinkRequest{From: "n1", To: "n2"})
		}, false},
		"a giver leaves": {func(w *world) {
			w.hear(events.LeaveRequested, "/node/n1", "n1", &events.Leave{Node: "n1", DeadlineSeconds: 30})
		}, true},
		"the receiver leaves": {func(w *world) {
			w.hear(events.LeaveRequested, "/node/n3", "n3", &events.Leave{Node: "n3"})
		}, true},
		"a giver is lost":       {func(w *world) { w.lose("n1") }, true},
		"the receiver is lost":  {func(w *world) { w.lose("n3") }, true},
		"a giver restarts":      {func(w *world) { w.join("n1") }, true},
		"the receiver restarts": {func(w *world) { w.join("n3") }, true},
		"a link is lost": {func(w *world) {
			w.hear(events.LinkLost, "/monitor", "n1-n2", &events.LinkState{From: "n1", To: "n2"})
		}, true},
	}
	for name, change := range changes {
		for _, phase := range []protocol.Phase{protocol.PreCopying, protocol.Promising} {
			w := whilePreCopying(t, "n3")
			under := w.opened.Negotiation
			if phase == protocol.Promising {
				w.mute[events.Prepared] = true
				w.hearCaughtUp(under, "n3")
			}
			w.restart()
			change.make(w)
			w.run()
			if goesOn := w.opened != nil && w.opened.Negotiation == under; goesOn == change.supersedes {
				t.Errorf("%s, %s: the negotiation goes on: %v", phase, name, goesOn)
			}
		}
	}
}

func TestAJoinThatWaitedForAMoveIsNegotiatedAfterIt(t *testing.T) {
	w := whilePreCopying(t, "n3")
	w.join("n4")
	w.run()
	w.mute[events.PreCopyStarted] = false
	w.hearCaughtUp(w.opened.Negotiation, "n3")
	if plans := w.plans(); len(plans) != 3 || len(plans[1].Nodes) != 3 || w.nodes() != "n1 n2 n3 n4" {
		t.Fatalf("%d plans, nodes %q", len(plans), w.nodes())
	}
}

func TestOfTwoThatLeaveTheOneWithTheEarlierDeadlineIsInTime(t *testing.T) {
	for _, seconds := range [][]float64{{60, 16}, {16, 60}} {
		w := newWorld(t, 4)
		w.transfer, w.seconds, w.mute[events.PreCopyStarted] = true, 5, true
		for i, node := range []string{"n1", "n2"} {
			w.hear(events.LeaveRequested, "/node/"+node, node, &events.Leave{Node: node, DeadlineSeconds: seconds[i]})
		}
		w.run()
		if w.phase() != protocol.PreCopying || len(w.opened.Changes) != 2 {
			t.Fatalf("phase %q of %+v", w.phase(), w.opened)
		}
		w.tick(15 * time.Second)
		if w.phase() == protocol.PreCopying {
			t.Errorf("deadlines %v: after 15 s all still train as before", seconds)
		}
	}
}
