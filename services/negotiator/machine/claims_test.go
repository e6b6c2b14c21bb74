package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// claimed is what a node's process claims of the three layers of these tests at a step, with the bytes that word stands
// for.
func claimed(step uint64, word string, units ...int) []events.Claim {
	var claims []events.Claim
	for _, unit := range units {
		claims = append(claims, events.Claim{Unit: unit, Step: step, Digest: events.Digest([]byte(word))})
	}
	return claims
}

// afterBothWereLost is a cluster of three pipelines of one node, at step 40, of which n2 alone lives; n1 and n3 were
// taken for lost and have asked to join again. What they say they hold is up to the test.
func afterBothWereLost(t *testing.T, consent func(node string) events.Consent) *world {
	return newWorld(t, 3).afterBothWereLost(consent)
}

func (w *world) afterBothWereLost(consent func(node string) events.Consent) *world {
	w.step = 40
	w.mute[events.NegotiationOpened] = true
	for _, node := range []string{"n1", "n2", "n3"} {
		w.lose(node)
	}
	w.run()
	for _, node := range []string{"n1", "n2", "n3"} {
		w.join(node)
	}
	w.run()
	w.say(map[string]events.Consent{"n1": consent("n1"), "n2": consent("n2"), "n3": consent("n3")}) // no step: none has a plan
	return w
}

// Fault 1: both holders of some layers were silent for four seconds, were given up, and the job was lost with all of it
// in memory.
func TestWhatAGivenUpNodeStillHoldsIsClaimedAndTrainingGoesOn(t *testing.T) {
	w := afterBothWereLost(t, func(string) events.Consent {
		return events.Consent{Trained: 1, Claims: claimed(40, "good", 0, 1, 2)}
	})
	if plans := w.plans(); len(plans) != 2 || plans[1].ResumeStep != 40 || w.nodes() != "n1 n2 n3" {
		t.Fatalf("%d plans, nodes %q, held %+v", len(w.plans()), w.nodes(), w.held())
	}
}

func TestClaimsOfOneNodeThatNobodyContradictsCount(t *testing.T) {
	w := afterBothWereLost(t, func(node string) events.Consent {
		if node == "n2" {
			return events.Consent{Trained: 1, Claims: claimed(40, "good", 0, 1, 2)}
		}
		return events.Consent{}
	})
	if plans := w.plans(); len(plans) != 2 || plans[1].ResumeStep != 40 {
		t.Fatalf("%d plans, held %+v", len(w.plans()), w.held())
	}
}

func TestClaimsThatContradictEachOtherHoldTheClusterAndSayOfWhat(t *testing.T) {
	w := afterBothWereLost(t, func(node string) events.Consent {
		return events.Consent{Trained: 1, Claims: append(claimed(40, "good", 0, 2), claimed(40, node, 1)...)}
	})
	if held := w.held(); held == nil || !strings.Contains(held.Reason,
		"hold different bytes of layer 1, and nobody can tell which are right: n1, n2, n3. End the script and the agent of whoever has it wrong") {
		t.Fatalf("held %+v, %d plans", held, len(w.plans()))
	}
}

func TestClaimsOfUnitsThatAreOnlyAlikeContradictNobody(t *testing.T) {
	w := newEmptyWorld(t, 3, 0)
	w.replicas = events.AlikeReplicas
	w.begin(3)
	w.afterBothWereLost(func(node string) events.Consent {
		return events.Consent{Trained: 1, Claims: claimed(40, node, 0, 1, 2)}
	})
	if plans := w.plans(); len(plans) != 2 || plans[1].ResumeStep != 40 {
		t.Fatalf("%d plans, held %+v", len(w.plans()), w.held())
	}
}

func TestOneClaimMovesNobodyToAStepThatTheOthersDidNotReach(t *testing.T) {
	for _, step := range []uint64{3, 5_000_000} {
		w := afterBothWereLost(t, func(node string) events.Consent {
			if node == "n2" {
				return events.Consent{Trained: 1, Claims: claimed(step, "good", 0, 1, 2)}
			}
			return events.Consent{Trained: 1, Claims: claimed(40, "good", 0, 1, 2)}
		})
		if plans := w.plans(); len(plans) != 2 || plans[1].ResumeStep != 40 {
			t.Errorf("n2 claims step %d: %d plans, held %+v", step, len(plans), w.held())
		}
	}
}

func TestAClaimThatIsNoneCountsForNothing(t *testing.T) {
	for name, consent := range map[string]events.Consent{
		"of another plan":                   {Trained: 7, Claims: claimed(40, "good", 0, 1, 2)},
		"of a new process that has nothing": {},
		"said as if it were a member": {Holdings: []events.Holding{
			{Units: events.Range{First: 0, End: 3}, Steps: []uint64{40}}}},
	} {
		w := afterBothWereLost(t, func(string) events.Consent { return consent })
		if held := w.held(); held == nil || len(w.plans()) != 1 || len(held.Awaits) > 0 {
			t.Errorf("a claim %s: held %+v after %d plans, though all are here and have nothing", name, held, len(w.plans()))
		}
	}
}

// A second process under the name of n2, which was taken for lost, still runs and answers.
func TestTheConsentOfADeadProcessIsNotThatOfTheOneInItsPlace(t *testing.T) {
	w := newWorld(t, 3)
	w.step = 5
	dead := w.process["n2"]
	w.deaf["n2"] = true
	w.join("n2")
	w.run()
	w.hear(events.Consented, "/node/n2", "n2", &events.Consent{
		Negotiation: w.opened.Negotiation, Node: "n2", Incarnation: dead, Accepted: true, Step: 5,
		Holdings: []events.Holding{{Units: events.Range{First: 0, End: 3}, Steps: []uint64{5}}},
	})
	w.run()
	if len(w.plans()) != 1 {
		t.Fatal("there is a plan though the new process of n2 has not answered")
	}
	w.listen()
	if w.nodes() != "n1 n2 n3" || len(w.plans()) != 2 {
		t.Fatalf("nodes %q after %d plans", w.nodes(), len(w.plans()))
	}
}

// A node that was cut off at the commit claims what it trained under the plan before. n2 died under the new plan, and
// n3 has layer 2.
func TestWhoMissedTheCommitHasItsUnitsAtTheStepAtWhichAllStopped(t *testing.T) {
	for step, plans := range map[uint64]int{42: 3, 41: 2} {
		w := newWorld(t, 2)
		w.step, w.transfer = 40, true
		w.join("n3")
		w.run()
		w.mute[events.NegotiationOpened] = true
		for _, node := range []string{"n1", "n2"} {
			w.lose(node)
			w.join(node)
		}
		w.run()
		w.say(map[string]events.Consent{
			"n1": {Trained: 1, Claims: claimed(step, "good", 0, 1)},
			"n3": {Step: 43, Holdings: []events.Holding{{Units: events.Range{First: 2, End: 3}, Steps: []uint64{43, 42, 41}}}},
		})
		if stopped := w.plans()[1].ResumeStep; stopped != 42 || len(w.plans()) != plans {
			t.Errorf("all stopped at step %d, and n1 claims step %d: expected %d plans, got %d", stopped, step, plans,
				len(w.plans()))
		}
	}
}

// 256 nodes that came back with 144 claims each made a memory of 1.3 MB, which the hub takes no more.
func TestWhatManyClaimIsRememberedOnce(t *testing.T) {
	w := newWorld(t, 3)
	w.mute[events.NegotiationOpened] = true
	for _, node := range []string{"n1", "n2", "n3"} {
		w.lose(node)
	}
	for _, node := range []string{"n1", "n2", "n3"} {
		w.join(node)
	}
	w.run()
	for _, node := range []string{"n1", "n1", "n2"} { // n1 was alone at first
		w.hear(events.Consented, "/node/"+node, node, &events.Consent{Negotiation: w.opened.Negotiation, Node: node,
			Incarnation: w.process[node], Accepted: true, Trained: 1, Claims: claimed(40, "good", 2)})
		w.run()
	}
	memory, err := w.machine.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if times := strings.Count(string(memory), events.Digest([]byte("good"))); times != 1 {
		t.Fatalf("the digest that two nodes claim is remembered %d times", times)
	}
}

func TestAClaimOnWhatAMemberHoldsIsNotNeeded(t *testing.T) {
	w := newWorld(t, 2)
	w.step = 40
	w.mute[events.NegotiationOpened] = true
	w.lose("n2")
	w.join("n2")
	w.run()
	w.say(map[string]events.Consent{
		"n1": holding(events.Range{First: 0, End: 3}, 40, 39),
		"n2": {Step: 40, Trained: 1, Claims: claimed(40, "spoiled", 0, 1, 2)},
	})
	var asked events.RestorationRequest
	for _, event := range w.said {
		if event.Kind == events.RestorationAsked {
			asked = must[events.RestorationRequest](t, event)
		}
	}
	if len(asked.Holders) != 1 || asked.Holders[0].Node != "n1" {
		t.Fatalf("a spoiled claim is taken for a copy beside the member's: %+v", asked.Holders)
	}
}

func TestTheClusterSaysForWhomItWaits(t *testing.T) {
	w := newWorld(t, 2)
	w.step = 9
	w.lose("n1")
	w.lose("n2")
	w.join("n3")
	w.run()
	if held := w.held(); held == nil || !slices.Equal(held.Awaits, []string{"n1", "n2"}) || !strings.Contains(held.Reason, "waiting for n1, n2") {
		t.Fatalf("held %+v", held)
	}
}

// Fault 1, proof B: the hub was away for 5.3 s in the middle of a join, and the overdue came before the answers it had
// delayed.
func TestTimeInWhichTheHubWasAwayIsNotSilence(t *testing.T) {
	w := newWorld(t, 3)
	w.deaf["n2"], w.deaf["n3"] = true, true
	w.join("n4")
	w.run()
	w.tick(time.Second)
	w.now = w.now.Add(5300 * time.Millisecond) // no tick comes meanwhile
	w.tick(time.Second)
	w.listen()
	if w.nodes() != "n1 n2 n3 n4" || len(w.refusals("n2")) > 0 {
		t.Fatalf("nodes %q, refused %v", w.nodes(), w.refusals("n2"))
	}
}

func TestAnOverdueThatTookLongIntoTheLogGivesNobodyUp(t *testing.T) {
	w := newWorld(t, 3)
	w.deaf["n2"] = true
	w.join("n4")
	w.run()
	said := w.machine.Tick(w.now)
	for len(said) == 0 {
		w.now = w.now.Add(250 * time.Millisecond)
		said = w.machine.Tick(w.now)
	}
	late := said[0]
	w.sequence++
	late.Logged, late.Sequence = w.now.Add(3*time.Second), w.sequence
	w.queue = append(w.queue, late)
	w.run()
	if len(w.refusals("n2")) > 0 {
		t.Fatal("the hub was away, and n2 was given up before its answer could come")
	}
}

// oneHolder is a cluster in which n2 alone trains layer 2.
func oneHolder(t *testing.T) *world {
	w := newWorld(t, 2)
	w.split = true
	w.join("n3")
	w.run()
	return w
}

func TestWhoWentAstrayKeepsItsPlaceWhereItIsTheLastToHoldALayer(t *testing.T) {
	w := oneHolder(t) // n1 holds the others alone
	astray := &events.Divergence{Generation: 2, Step: 9, Unit: 1, Digest: events.Digest([]byte("a")),
		Minority: []string{"n3"},
		Replicas: []events.Replica{
			{Node: "n1", Digest: events.Digest([]byte("a"))}, {Node: "n2", Digest: events.Digest([]byte("a"))},
			{Node: "n3", Digest: events.Digest([]byte("b"))},
		}}
	w.hear(events.ReplicaDiverged, "/restorer", "unit-1", astray)
	w.run()
	if refused := w.refusals("n3"); len(refused) > 0 {
		t.Fatalf("it forgets layer 2, which nobody else has: %+v", refused)
	}
}

func TestTheLastHolderOfALayerIsWaitedForAndNamed(t *testing.T) {
	w := oneHolder(t)
	w.deaf["n3"] = true
	w.join("n4")
	w.run()
	w.tick(time.Minute)
	if held := w.said[len(w.said)-1]; len(w.refusals("n3")) > 0 || held.Kind != events.ClusterHeld ||
		!slices.Equal(must[events.Hold](t, held).Awaits, []string{"n3"}) {
		t.Fatalf("refused %v, last said %s %s", w.refusals("n3"), held.Kind, held.Data)
	}
	w.listen()
	if w.nodes() != "n1 n2 n3 n4" {
		t.Fatalf("nodes %q", w.nodes())
	}
}

// A user killed his only trainer and started it again: the cluster held for ever, and said for nobody and for nothing.
func TestTheLastHolderThatComesBackWithNothingIsToldThatTheJobCanOnlyBeginAnew(t *testing.T) {
	w := newWorld(t, 1)
	w.step = 5
	w.mute[events.NegotiationOpened] = true
	w.join("n1") // another incarnation, which has nothing
	w.run()
	w.say(map[string]events.Consent{"n1": {}})
	if held := w.held(); held == nil || len(held.Awaits) > 0 || !strings.Contains(held.Reason, beginAnew) {
		t.Fatalf("held %+v", held)
	}
}

func TestAMemberThatIsBusyWithItsStateIsNotSilent(t *testing.T) {
	w := newWorld(t, 3)
	w.deaf["n2"] = true
	w.join("n4")
	w.run()
	w.hear(events.ConsentDelayed, "/node/n2", "n2",
		&events.Delay{Negotiation: w.opened.Negotiation, Node: "n2", Incarnation: w.process["n2"], Reason: "adopting"})
	w.tick(2 * time.Minute)
	if len(w.refusals("n2")) > 0 {
		t.Fatal("given up while it adopts its layers")
	}
	w.tick(15 * time.Minute)
	if len(w.refusals("n2")) != 1 || w.nodes() != "n1 n3 n4" {
		t.Fatalf("busy for a quarter of an hour, it still stops everybody: nodes %q", w.nodes())
	}
}

func TestWhoWentAstrayIsToldThatItMayClaimNothing(t *testing.T) {
	w := newWorld(t, 3)
	good, bad := events.Digest([]byte("good")), events.Digest([]byte("bad"))
	w.hear(events.ReplicaDiverged, "/restorer", "unit-1", &events.Divergence{Generation: 1, Step: 9, Unit: 1, Digest: good,
		Minority: []string{"n2", "n2"}, // fault 18: named twice, it ended the negotiator for good
		Replicas: []events.Replica{{Node: "n1", Digest: good}, {Node: "n2", Digest: bad}, {Node: "n3", Digest: good}}})
	w.run()
	if refused := w.refusals("n2"); len(refused) != 1 || !refused[0].Astray {
		t.Fatalf("refused %+v", refused)
	}
	w.lose("n1")
	w.run()
	if refused := w.refusals("n1"); len(refused) != 1 || refused[0].Astray {
		t.Fatalf("a node that was only lost keeps what it holds: %+v", refused)
	}
}
