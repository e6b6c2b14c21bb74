package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// whileAllArePaused is a cluster of four that lost n4 and moves layers to the others.
func whileAllArePaused(t *testing.T) *world {
	w := newWorld(t, 4)
	w.transfer, w.mute[events.Scheduled] = true, true
	w.lose("n4")
	w.run()
	if w.phase() != protocol.Transferring {
		t.Fatalf("phase %q", w.phase())
	}
	return w
}

func (w *world) failTransfer(node string) {
	w.hear(events.RestorationFailed, "/node/"+node, node,
		&events.Failure{Negotiation: w.opened.Negotiation, Node: node, Reason: "layer 2: no space left on device"})
	w.run()
}

// Fault 8.
func TestANodeWhoseTransfersAlwaysFailIsGivenUpByName(t *testing.T) {
	w := whileAllArePaused(t)
	for range mostBlame {
		w.failTransfer("n3")
	}
	if refused := w.refusals("n3"); len(refused) != 1 || !strings.Contains(refused[0].Reason, "by its fault, the last: transfer failed: layer 2: no space left") {
		t.Fatalf("refused %+v", refused)
	}
	w.hear(events.RestorationDone, "/restorer", "r", &events.Completion{Negotiation: w.opened.Negotiation})
	w.run()
	if w.nodes() != "n1 n2" {
		t.Fatalf("nodes %q", w.nodes())
	}
}

// Three transfers that fail within a year are no pattern.
func TestWhatANodeWasBlamedForEndsWithTheChangeThatItHindered(t *testing.T) {
	w := newWorld(t, 3+mostBlame)
	w.transfer, w.mute[events.Scheduled] = true, true
	receiver := fmt.Sprint("n", 3+mostBlame)
	for i := range mostBlame {
		w.lose(fmt.Sprint("n", 1+i))
		w.run()
		w.failTransfer(receiver)
		w.hear(events.RestorationDone, "/restorer", "r", &events.Completion{Negotiation: w.opened.Negotiation})
		w.run()
		if w.opened != nil {
			t.Fatalf("change %d: phase %q", i, w.phase())
		}
	}
	if refused := w.refusals(receiver); len(refused) > 0 || !strings.Contains(w.nodes(), receiver) {
		t.Errorf("given up after one failure in each of %d changes: %+v, nodes %q", mostBlame, refused, w.nodes())
	}
}

// Seed 33116: a last holder never offered its unit, all stood, and nothing said who it was. Another node claims other bytes here.
func TestALastHolderThatGivesNothingIsNamedInTheHold(t *testing.T) {
	w := newWorld(t, 2)
	w.trained = map[string]*events.Trained{"n1": {Generation: 1, Plan: w.machine.state.PlanDigest, Step: w.step}}
	w.transfer, w.mute[events.Scheduled], w.behind, w.digest = true, true, "n2", "bad"
	w.lose("n1")
	w.join("n1")
	w.run()
	for range w.machine.settings.AttemptsLimit + 1 {
		w.tick(64 * time.Second)
	}
	held := must[events.Hold](t, w.last(events.ClusterHeld))
	if !slices.Equal(held.Awaits, []string{"n2"}) || !strings.Contains(held.Reason, "n2 alone has what others need") {
		t.Errorf("held %+v", held)
	}
}

// Seed 33116 as well: a node that had been given up came back with the very unit that the last holder did not give.
func TestAClaimCountsBesideALastHolderThatGivesNothingAndTellsOfTheSameBytes(t *testing.T) {
	for digest, givers := range map[string]string{"good": "n1 n2", "bad": "n2"} {
		w := newWorld(t, 2)
		w.trained = map[string]*events.Trained{"n1": {Generation: 1, Plan: w.machine.state.PlanDigest, Step: w.step}}
		w.transfer, w.mute[events.Scheduled], w.behind, w.digest = true, true, "n2", digest
		w.lose("n1")
		w.join("n1")
		w.run()
		if asked := w.opened.Digests; len(asked) > 0 || w.givers() != "n2" {
			t.Fatalf("%v asked for digests and %s give, before any transfer failed", asked, w.givers())
		}
		w.tick(64 * time.Second)
		if asked := w.opened.Digests; !slices.Equal(asked, []string{"n2"}) || w.givers() != givers || len(w.refusals("n2")) > 0 {
			t.Errorf("n2 tells of %s bytes: %v asked for digests, %s give, refused %+v", digest, asked, w.givers(), w.refusals("n2"))
		}
	}
}

// givers returns who has something to give, as the restorer was last told.
func (w *world) givers() string {
	var nodes []string
	for _, holder := range must[events.RestorationRequest](w.t, w.last(events.RestorationAsked)).Holders {
		nodes = append(nodes, holder.Node)
	}
	return strings.Join(nodes, " ")
}

// The restorer knows who has offered and received what.
func TestWhoHoldsUpATransferIsForTheRestorerToSay(t *testing.T) {
	w := whileAllArePaused(t)
	w.behind = "n2"
	for range mostBlame {
		w.tick(64 * time.Second)
	}
	if len(w.refusals("n2")) != 1 || len(w.refusals("n1"))+len(w.refusals("n3")) > 0 {
		t.Fatalf("n2 is to blame; refused %v %v %v", w.refusals("n1"), w.refusals("n2"), w.refusals("n3"))
	}
}

func TestAHubThatTakesNoPartsCostsNobodyItsPlace(t *testing.T) {
	w := whileAllArePaused(t)
	for i := range 3 * mostBlame {
		if w.opened == nil { // the cluster is held, and tried again
			w.tick(5 * time.Minute)
		}
		w.sayHubFails([]string{"n1", "n3"}[i%2])
	}
	for _, node := range []string{"n1", "n2", "n3"} {
		if refused := w.refusals(node); len(refused) > 0 {
			t.Errorf("%s was given up: %v", node, refused)
		}
	}
}

func (w *world) sayHubFails(node string) {
	w.hear(events.RestorationFailed, "/node/"+node, node,
		&events.Failure{Negotiation: w.opened.Negotiation, Reason: "unit 2: the hub does not take it: full"})
	w.run()
}

// It may lie, and the others can do without it.
func TestANodeThatAloneSaysThatTheHubFailsStopsNobodyForGood(t *testing.T) {
	w := whileAllArePaused(t)
	for range w.machine.settings.AttemptsLimit {
		w.sayHubFails("n3")
	}
	if refused := w.refusals("n3"); len(refused) != 1 || !strings.Contains(refused[0].Reason, "it alone says that transfers fail, 3 in a row") {
		t.Fatalf("refused %+v", refused)
	}
}

func TestWhoHasNoPartInTheMovesCannotFailThem(t *testing.T) {
	w := whileAllArePaused(t)
	before := w.opened.Negotiation
	for _, node := range []string{"n2", "n4", "n9"} {
		w.failTransfer(node)
	}
	if w.opened == nil || w.opened.Negotiation != before {
		t.Fatal("the negotiation was ended by who gives nothing and takes nothing")
	}
}

// differs has n3 tell that it could not verify what n1 gave it.
func (w *world) differs(receiver string, givers ...string) {
	w.hear(events.RestorationFailed, "/node/"+receiver, receiver, &events.Failure{
		Negotiation: w.opened.Negotiation, Node: receiver, Givers: givers, Reason: "unit 0: content is not that of its digest"})
	w.run()
}

func TestAReceiverThatCannotVerifyWhatItIsGivenTakesItFromOthersNext(t *testing.T) {
	w := whileAllArePaused(t)
	w.differs("n3", "n1", "n2") // n2 gives nothing, whatever n3 says
	w.mute[events.RestorationAsked] = true
	w.differs("n3", "n1")
	if doubts, want := w.machine.state.Doubts, []events.Doubt{{From: "n1", To: "n3", Times: 2}}; !slices.Equal(doubts, want) {
		t.Fatalf("doubts %+v, expected %+v", doubts, want)
	}
}

// One whom several receivers could not verify is wrong, and not they.
func TestAGiverWithWhomSeveralAreAtOddsIsGivenUpAndNotThey(t *testing.T) {
	w := whileAllArePaused(t)
	for _, receiver := range []string{"n2", "n3"} {
		w.machine.state.Negotiation.Plan.Migration.Transfers = []events.Transfer{{To: receiver, Sources: []events.Source{{Node: "n1"}}}}
		w.differs(receiver, "n1")
	}
	if len(w.refusals("n1")) != 1 || len(w.refusals("n2"))+len(w.refusals("n3")) > 0 {
		t.Fatalf("refused: n1 %v, n2 %v, n3 %v", w.refusals("n1"), w.refusals("n2"), w.refusals("n3"))
	}
}

// n3 blames n1, which gives it nothing, or does so alone: its word is all there is against n1.
func TestOneNodesWordGivesNobodyUp(t *testing.T) {
	for name, gives := range map[string]string{"which gives it nothing": "n2", "which gives it something": "n3"} {
		w := whileAllArePaused(t)
		w.hear(events.RestorationFailed, "/restorer", w.opened.Negotiation, &events.Failure{
			Negotiation: w.opened.Negotiation, Node: "n1", Givers: []string{"n1"}, Reason: "n1 has not offered unit 0"})
		w.run()
		w.machine.state.Negotiation.Plan.Migration.Transfers = []events.Transfer{
			{To: gives, Sources: []events.Source{{Node: "n1"}}}, {To: "n3", Sources: []events.Source{{Node: "n2"}}},
		}
		w.differs("n3", "n1")
		if refused := w.refusals("n1"); len(refused) > 0 {
			t.Errorf("n1, %s, is given up: %v", name, refused)
		}
	}
}

// Both may be the one.
func TestOfTwoGiversThatAreAlwaysNamedTogetherNoneIsGivenUp(t *testing.T) {
	w := whileAllArePaused(t)
	for range mostBlame - 1 {
		w.machine.state.Negotiation.Plan.Migration.Transfers = []events.Transfer{
			{To: "n3", Sources: []events.Source{{Node: "n1"}, {Node: "n2"}}},
		}
		w.differs("n3", "n1", "n2")
	}
	if len(w.refusals("n1"))+len(w.refusals("n2")) > 0 {
		t.Fatalf("refused: n1 %v, n2 %v", w.refusals("n1"), w.refusals("n2"))
	}
}

func TestWhoBlamesTheHubGivesNothingToTheNextPlanThatOthersCan(t *testing.T) {
	w := whileAllArePaused(t)
	w.sayHubFails("n3")
	asked := must[events.RestorationRequest](t, w.said[slices.IndexFunc(w.said, func(event events.Event) bool {
		return event.Kind == events.RestorationAsked && len(must[events.RestorationRequest](t, event).Doubts) > 0
	})])
	if want := []events.Doubt{{From: "n3", Times: 1}}; !slices.Equal(asked.Doubts, want) {
		t.Fatalf("doubts %+v, expected %+v", asked.Doubts, want)
	}
}

func TestFailuresOfDifferentNodesBlameNobody(t *testing.T) {
	w := whileAllArePaused(t)
	for _, node := range []string{"n1", "n2"} {
		w.failTransfer(node)
	}
	if len(w.refusals("n1"))+len(w.refusals("n2")) > 0 || w.phase() != protocol.Transferring {
		t.Fatalf("phase %s", w.phase())
	}
}

// Fault 20: whatever the plan predicted, a transfer ended after five minutes and began again.
func TestATransferMayTakeThreeTimesAsLongAsPredicted(t *testing.T) {
	w := newWorld(t, 3)
	w.transfer, w.seconds, w.mute[events.Scheduled] = true, 600, true
	w.lose("n3")
	w.run()
	w.tick(29 * time.Minute)
	if w.phase() != protocol.Transferring || len(w.refusals("n1")) > 0 {
		t.Fatalf("phase %q", w.phase())
	}
}

// n2 was given up, comes back, claims what n1 alone holds with other bytes, and says that n1 gives nothing.
func TestAClaimOfOtherBytesDoesNotHaveTheLastHolderGivenUp(t *testing.T) {
	w := newWorld(t, 2)
	w.step, w.transfer = 40, true
	w.mute[events.NegotiationOpened], w.mute[events.Scheduled] = true, true
	w.lose("n2")
	w.join("n2")
	w.run()
	for range 2 * mostBlame {
		if w.opened == nil {
			break
		}
		w.say(map[string]events.Consent{
			"n1": holding(events.Range{First: 0, End: 3}, 40, 39),
			"n2": {Step: 40, Trained: 1, Claims: claimed(40, "spoiled", 0, 1, 2)},
		})
		w.hear(events.RestorationFailed, "/node/n2", "n2", &events.Failure{Negotiation: w.opened.Negotiation, Node: "n1",
			Reason: "unit 2: not given", Givers: []string{"n1"}})
		w.run()
	}
	if refused := w.refusals("n1"); len(refused) > 0 {
		t.Errorf("the last that holds what was trained is given up: %+v", refused)
	}
}
