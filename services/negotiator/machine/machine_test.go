package machine

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

func TestTheFirstPlanWaitsForTheStartingNodes(t *testing.T) {
	w := newWorld(t, 3)
	if w.nodes() != "n1 n2 n3" || len(w.plans()) != 1 || w.plans()[0].ResumeStep != 0 {
		t.Fatalf("got %d plans, nodes %q", len(w.plans()), w.nodes())
	}
	opened := slices.IndexFunc(w.said, func(e events.Event) bool { return e.Kind == events.NegotiationOpened })
	if members := must[events.Opening](t, w.said[opened]).Members; len(members) != 3 {
		t.Fatalf("opened with %d members, before all had asked", len(members))
	}
}

func TestAJoinStopsEverybodyAtOneStepOnlyToMoveLayers(t *testing.T) {
	w := newWorld(t, 2)
	w.step, w.transfer = 40, true
	w.join("n3")
	w.run()
	if plan := w.plans()[1]; plan.ResumeStep != 42 || plan.Data.ConsumedSamples != 42*12 {
		t.Fatalf("resume step %d, consumed %d", plan.ResumeStep, plan.Data.ConsumedSamples)
	}
	if w.nodes() != "n1 n2 n3" {
		t.Fatalf("nodes: %s", w.nodes())
	}
}

func TestAPlanThatMovesNothingIsCommittedWithoutAStop(t *testing.T) {
	w := newWorld(t, 2)
	w.hear(events.DisconnectRequested, "/user", "n1", &events.LinkRequest{From: "n1", To: "n2"})
	w.run()
	if slices.Contains(w.saidKinds(), events.Scheduled) {
		t.Fatal("trainers were stopped for a plan that moves nothing")
	}
	if relays := w.plans()[1].Relays; !slices.Equal(relays, []events.Pair{{A: "n1", B: "n2"}}) {
		t.Fatalf("a disconnected link may still be used: %v", relays)
	}
}

func TestTheRestorerIsToldStateAndGradientsOfEveryLayer(t *testing.T) {
	w := newWorld(t, 2)
	at := slices.IndexFunc(w.said, func(event events.Event) bool { return event.Kind == events.RestorationAsked })
	request := must[events.RestorationRequest](t, w.said[at])
	if !slices.Equal(request.Units, []int64{300, 300, 300}) || !slices.Equal(request.Gradients, []int64{50, 50, 50}) {
		t.Fatalf("told %v and %v", request.Units, request.Gradients)
	}
}

// The fact is fenced by the lease and the plan is not: an instance that lost its lease must be refused before it
// reaches the plan.
func TestTheFencedFactGoesBeforeThePlan(t *testing.T) {
	w := newWorld(t, 2)
	kinds := w.saidKinds()
	if fact, plan := slices.Index(kinds, events.Committed), slices.Index(kinds, events.PlanCommitted); fact < 0 || fact > plan {
		t.Fatalf("said %v", kinds)
	}
}

func TestALostNodeIsReplannedFromTheNewestCommonStep(t *testing.T) {
	w := newWorld(t, 3)
	w.step = 17
	w.lose("n2")
	w.run()
	if w.nodes() != "n1 n3" || w.plans()[1].ResumeStep != 17 {
		t.Fatalf("nodes %q, resume step %d", w.nodes(), w.plans()[1].ResumeStep)
	}
}

func TestADeathDuringATransferSupersedesIt(t *testing.T) {
	w := newWorld(t, 3)
	w.transfer, w.mute[events.Scheduled] = true, true
	w.join("n4")
	w.run()
	if phase := w.phase(); phase != protocol.Transferring {
		t.Fatalf("phase %s", phase)
	}
	w.mute[events.Scheduled] = false
	w.lose("n1")
	w.run()
	if w.nodes() != "n2 n3 n4" || len(w.plans()) != 2 {
		t.Fatalf("nodes %q after %d plans", w.nodes(), len(w.plans()))
	}
}

func TestASecondJoinWaitsForTheShardsOfTheFirst(t *testing.T) {
	w := newWorld(t, 2)
	w.transfer, w.mute[events.Scheduled] = true, true
	w.join("n3")
	w.run()
	w.join("n4")
	w.run()
	if len(w.plans()) != 1 {
		t.Fatal("the second join did not wait")
	}
	w.mute[events.Scheduled] = false
	w.hear(events.RestorationDone, "/restorer", "r", &events.Completion{Negotiation: w.opened.Negotiation})
	w.run()
	if plans := w.plans(); len(plans) != 3 || len(plans[1].Nodes) != 3 || w.nodes() != "n1 n2 n3 n4" {
		t.Fatalf("%d plans, nodes %q", len(plans), w.nodes())
	}
}

func TestAMemberThatDoesNotAnswerIsGivenUp(t *testing.T) {
	w := newWorld(t, 3)
	w.deaf["n2"] = true
	w.join("n4")
	w.run()
	w.tick(time.Second)
	if len(w.plans()) != 1 {
		t.Fatal("given up before the deadline")
	}
	w.tick(5 * time.Second)
	if w.nodes() != "n1 n3 n4" {
		t.Fatalf("nodes: %q", w.nodes())
	}
}

func TestNobodyStandsStillForThePromiseOfANodeThatDoesNotTrainYet(t *testing.T) {
	w := newWorld(t, 2)
	w.mute[events.Prepared] = true
	w.join("n3")
	w.run()
	for _, node := range []string{"n1", "n2"} {
		w.hear(events.Promised, "/node/"+node, node,
			&events.Promise{Negotiation: w.opened.Negotiation, Node: node, StopStep: 3})
	}
	w.run()
	if len(w.plans()) != 2 {
		t.Fatal("trainers wait at step 3 for a promise that n3 cannot break")
	}
}

// Found by chaos seed 14: the abortion said that another negotiation follows, none did, and all stood still for ever.
func TestTrainersAreFreedWhenTheNodeThatWasToJoinIsLost(t *testing.T) {
	w := newWorld(t, 2)
	w.transfer, w.mute[events.Scheduled] = true, true
	w.join("n3")
	w.run()
	w.lose("n3")
	w.run()
	aborted := slices.IndexFunc(w.said, func(e events.Event) bool { return e.Kind == events.Aborted })
	if aborted < 0 || must[events.Abort](t, w.said[aborted]).Superseded || w.opened != nil {
		t.Fatalf("aborted at %d of %v", aborted, w.saidKinds())
	}
}

// The answers are in the log, but the negotiator was frozen and its clock ticks before it hears them.
func TestAnswersThatCameInTimeCountHoweverLateTheyAreHeard(t *testing.T) {
	w := newWorld(t, 3)
	w.hear(events.LeaveRequested, "/node/n3", "n3", &events.Leave{Node: "n3"})
	said, _ := w.machine.Handle(w.queue[0])
	w.queue = nil
	w.takeSaid(said) // the consents are queued now
	w.takeSaid(w.machine.Tick(w.now))
	w.now = w.now.Add(time.Hour)
	w.takeSaid(w.machine.Tick(w.now))
	w.run()
	if w.nodes() != "n1 n2" || slices.Contains(w.saidKinds(), events.MembershipRefused) {
		t.Fatalf("nodes %q, said %v", w.nodes(), w.saidKinds())
	}
}

func TestWhoHoldsAnotherLayerThanMostIsGivenUpAndRestored(t *testing.T) {
	w := newWorld(t, 3)
	digest := func(word string) string { return events.Digest([]byte(word)) }
	diverged := &events.Divergence{Generation: 1, Step: 9, Unit: 1, Digest: digest("a"), Minority: []string{"n2"}, Replicas: []events.Replica{
		{Node: "n1", Digest: digest("a")}, {Node: "n2", Digest: digest("b")}, {Node: "n3", Digest: digest("a")},
	}}
	old := *diverged
	old.Generation, old.Minority = 7, []string{"n1"}
	tied := *diverged
	tied.Digest, tied.Minority = "", nil
	for _, harmless := range []*events.Divergence{&old, &tied} {
		w.hear(events.ReplicaDiverged, "/restorer", "unit-1", harmless)
	}
	w.run()
	if len(w.plans()) != 1 {
		t.Fatal("a word about another plan, or without a minority, had an effect")
	}
	w.hear(events.ReplicaDiverged, "/restorer", "unit-1", diverged)
	w.hear(events.ReplicaDiverged, "/restorer", "unit-2", diverged) // the same node, of another layer
	w.run()
	refusals := 0
	for _, event := range w.said {
		if event.Kind == events.MembershipRefused {
			refusal := must[events.Refusal](t, event)
			refusals++
			if refusal.Node != "n2" || refusal.Refused != events.RefusedMembership ||
				refusal.Reason != "layer 1 at step 9 differs from that of most of its holders" {
				t.Fatalf("refused %+v", refusal)
			}
		}
	}
	if w.nodes() != "n1 n3" || refusals != 1 {
		t.Fatalf("nodes %q after %d refusals", w.nodes(), refusals)
	}
	w.join("n2")
	w.run()
	if w.nodes() != "n1 n2 n3" {
		t.Fatalf("nodes %q", w.nodes())
	}
}

func TestWhenNobodyAnswersNobodyIsGivenUp(t *testing.T) {
	w := newWorld(t, 3)
	w.deaf = map[string]bool{"n1": true, "n2": true, "n3": true, "n4": true}
	w.join("n4")
	w.run()
	w.tick(time.Minute)
	if slices.Contains(w.saidKinds(), events.MembershipRefused) {
		t.Fatal("the hub was away, and all members were given up")
	}
}

func TestAProcessThatRestartsDuringATransferSupersedesIt(t *testing.T) {
	for _, node := range []string{"n2", "n4"} {
		w := newWorld(t, 3)
		w.transfer, w.mute[events.Scheduled] = true, true
		w.join("n4")
		w.run()
		w.mute[events.Scheduled] = false
		w.join(node) // another incarnation
		w.run()
		if w.nodes() != "n1 n2 n3 n4" || len(w.plans()) != 2 {
			t.Fatalf("%s: nodes %q after %d plans", node, w.nodes(), len(w.plans()))
		}
	}
}

func TestATransferGoesOnWhenANodeIsLostThatHasNoPartInIt(t *testing.T) {
	w := newWorld(t, 2)
	w.transfer, w.mute[events.Scheduled] = true, true
	w.join("n3")
	w.run()
	under := w.opened.Negotiation
	w.join("n4")
	w.run()
	w.lose("n4")
	w.run()
	if w.opened == nil || w.opened.Negotiation != under {
		t.Fatal("a node that crashes while it waits to join stops everybody else's changes")
	}
}

func TestANewcomerIsTakenToBeAsFastAsTheOthers(t *testing.T) {
	w := newWorld(t, 3)
	for i, node := range []string{"n1", "n2", "n3"} {
		w.hear(events.NodeProfiled, "/node/"+node, node, &events.Profile{Node: node, SpeedFactor: 0.5 + 0.1*float64(i)})
	}
	w.join("n4")
	w.run()
	asked := w.requests()
	if last := asked[len(asked)-1].Nodes; last[3].Node != "n4" || last[3].SpeedFactor != 0.6 {
		t.Fatalf("taken for %+v: it would be given the most work unmeasured", last[3])
	}
}

func TestARestartedProcessIsAFailureAndAJoin(t *testing.T) {
	w := newWorld(t, 3)
	w.step = 5
	w.join("n2") // another incarnation
	w.run()
	if w.nodes() != "n1 n2 n3" || w.plans()[1].ResumeStep != 5 {
		t.Fatalf("nodes %q, resume %d", w.nodes(), w.plans()[1].ResumeStep)
	}
	if fresh := w.plans()[1].Nodes[1].Incarnation; fresh == w.plans()[0].Nodes[1].Incarnation {
		t.Fatal("the plan still names the dead incarnation")
	}
}

// The loop never hands a machine the same log position twice; what trainers and services say again under a new id
// reaches it all the same.
func TestRepeatedAndLateAnswersSayNothingNew(t *testing.T) {
	w := newWorld(t, 3)
	w.transfer, w.seconds = true, 5
	w.join("n4")
	w.run()
	w.lose("n1")
	w.run()
	for _, event := range w.heard {
		if event.Kind == events.JoinRequested { // a user may ask again, and is answered
			continue
		}
		if said, err := w.machine.Handle(event); err != nil || len(said) > 0 {
			t.Fatalf("%s again: said %d facts, %v", event.Kind, len(said), err)
		}
	}
}

// A restart between any two events must not change a word: the machine is rebuilt from its snapshot before each.
func TestARestartAtAnyMomentChangesNoWord(t *testing.T) {
	story := func(restart bool) []byte {
		w := newWorld(t, 3)
		var words bytes.Buffer
		w.transfer, w.seconds = true, 5
		w.join("n4")
		w.lose("n1")
		w.hear(events.LeaveRequested, "/node/n2", "n2", &events.Leave{Node: "n2"})
		for joined := false; len(w.queue) > 0; {
			if restart {
				w.restart()
			}
			event := w.queue[0]
			w.queue = w.queue[1:]
			said, err := w.machine.Handle(event)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range said {
				fmt.Fprintf(&words, "%s %s %s\n", e.ID, e.Kind, e.Data)
			}
			w.takeSaid(said)
			if len(w.queue) == 0 && !joined { // n1 failed: only now may layers move while training goes on
				joined = true
				w.join("n5")
				w.join("n6")
			}
		}
		return words.Bytes()
	}
	plain, restarted := story(false), story(true)
	if !bytes.Equal(plain, restarted) {
		t.Fatal("a restarted negotiator says other words")
	}
	if !bytes.Contains(plain, []byte(events.PreCopyStarted)) {
		t.Fatal("the story does not follow")
	}
}

// The only node that was to go on without the leaver dies. The leaver has all there is.
func TestWhoIsOnItsWayOutIsCalledBackWhereNobodyIsLeft(t *testing.T) {
	w := newWorld(t, 2)
	w.hear(events.LeaveRequested, "/node/n1", "n1", &events.Leave{Node: "n1"})
	w.run()
	w.lose("n2")
	w.run()
	refused := w.refusals("n1")
	if len(refused) != 1 || refused[0].Refused != events.RefusedMembership || refused[0].Incarnation != w.process["n1"] {
		t.Fatalf("refused %+v", refused)
	}
	w.tick(time.Hour)
	if len(w.refusals("n1")) != 1 {
		t.Error("it is called back again and again")
	}
}

func TestAClusterTakesNoMoreNodesThanItCanCarry(t *testing.T) {
	w := newEmptyWorld(t, events.MostNodes+1, 0) // no plan before that, so that they only ask
	for i := range events.MostNodes {
		w.join(fmt.Sprint("m", i))
	}
	w.join("late")
	w.run()
	if got := w.refusals("late"); len(got) != 1 || !strings.Contains(got[0].Reason, "takes no more") {
		t.Fatalf("refused %v", got)
	}
	w.join("m7") // it restarted
	w.run()
	if got := w.refusals("m7"); len(got) > 0 {
		t.Fatalf("who asked before is refused: %v", got)
	}
	w.lose("m7")
	w.join("late")
	w.run()
	if got := w.refusals("late"); len(got) != 1 {
		t.Fatalf("there is room now, and it is refused: %v", got)
	}
}
