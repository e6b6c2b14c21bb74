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

// Fault 14.
func TestAnObjectionToAFailureEndsWithTheObjector(t *testing.T) {
	w := newWorld(t, 4)
	w.mute[events.NegotiationOpened] = true
	w.lose("n4")
	w.run()
	opened := 0
	for range 1000 {
		if w.opened == nil {
			break
		}
		opened++
		for i, member := range w.opened.Members {
			w.hear(events.Consented, "/node/"+member.Node, member.Node, &events.Consent{Negotiation: w.opened.Negotiation,
				Node: member.Node, Incarnation: member.Incarnation, Accepted: i > 0, Reason: "not now"})
		}
		w.run()
	}
	if opened > 4 || len(w.refusals("n1")) != 1 {
		t.Fatalf("%d negotiations, refused %+v", opened, w.refusals("n1"))
	}
}

// joinsAgainst has a node ask for a place, to which n1 objects.
func (w *world) joinsAgainst(node, objection string) {
	w.mute[events.NegotiationOpened] = true
	w.join(node)
	w.run()
	w.hear(events.Consented, "/node/n1", "n1", &events.Consent{
		Negotiation: w.opened.Negotiation, Node: "n1", Incarnation: w.process["n1"], Reason: objection})
	w.run()
	w.mute[events.NegotiationOpened] = false
}

func TestAMemberThatObjectsToAJoinHasItRefused(t *testing.T) {
	w := newWorld(t, 2)
	w.joinsAgainst("n3", "unknown institution")
	if refused := w.refusals("n3"); len(refused) != 1 || !strings.Contains(refused[0].Reason, "n1 does not consent: unknown institution") || w.opened != nil {
		t.Fatalf("refused %+v", refused)
	}
}

func TestANodeThatIsRefusedAgainAndAgainWaitsForNoTurnOnceItMayJoin(t *testing.T) {
	w := newWorld(t, 2)
	for range 8 {
		w.joinsAgainst("n3", "not in these hours")
	}
	w.join("n3")
	w.run()
	if refused := w.refusals("n3"); len(refused) != 8 || w.nodes() != "n1 n2 n3" {
		t.Fatalf("refused %+v, nodes %q", refused, w.nodes())
	}
}

// Fault 13: one node's word took everybody from step 1000 to 0, or to 5,000,000.
func TestOneNodesWordTakesNobodyToAStepThatCannotBe(t *testing.T) {
	for _, step := range []uint64{0, 5_000_000} {
		w := newWorld(t, 4)
		w.step, w.transfer = 1000, true
		w.join("n5")
		w.run() // a plan that takes over at step 1002
		w.step = 1010
		w.mute[events.NegotiationOpened] = true
		w.lose("n5")
		w.run()
		for _, member := range w.opened.Members {
			consent := &events.Consent{Negotiation: w.opened.Negotiation, Node: member.Node, Incarnation: member.Incarnation,
				Accepted: true, Step: 1010,
				Holdings: []events.Holding{{Units: events.Range{First: 0, End: 3}, Steps: []uint64{1010, 1009}}}}
			if member.Node == "n3" {
				consent.Step, consent.Holdings[0].Steps = step, []uint64{step}
			}
			w.hear(events.Consented, "/node/"+member.Node, member.Node, consent)
		}
		w.mute[events.NegotiationOpened] = false
		w.run()
		if last := w.plans()[len(w.plans())-1]; last.ResumeStep != 1010 {
			t.Fatalf("n3 says step %d, and everybody resumes at %d", step, last.ResumeStep)
		}
	}
}

// Fault 19.
func TestAPromiseThatNobodyNearCanKeepIsNotWaitedFor(t *testing.T) {
	w := newWorld(t, 3)
	w.step = 100
	w.mute[events.Prepared] = true
	w.hear(events.DisconnectRequested, "/user", "n1", &events.LinkRequest{From: "n1", To: "n2"})
	w.run()
	for _, member := range w.opened.Members {
		stop := uint64(102)
		if member.Node == "n3" {
			stop = 1<<53 - 1
		}
		w.hear(events.Promised, "/node/"+member.Node, member.Node,
			&events.Promise{Negotiation: w.opened.Negotiation, Node: member.Node, StopStep: stop})
	}
	w.mute[events.Prepared] = false
	w.run()
	if last := w.plans()[len(w.plans())-1]; last.ResumeStep > 103 || len(w.refusals("n3")) != 1 {
		t.Fatalf("the plan takes over at step %d, refused %v", last.ResumeStep, w.refusals("n3"))
	}
}

// Fault 15: CloudEvents makes source and id unique together, not the id.
func TestTwoSourcesMayNumberTheirEventsAlike(t *testing.T) {
	w := newWorld(t, 3)
	w.mute[events.NegotiationOpened] = true
	var negotiations []string
	for _, node := range []string{"n1", "n2"} {
		w.hear(events.LeaveRequested, events.NodeSource(node), node, &events.Leave{Node: node})
		w.queue[len(w.queue)-1].ID = "1"
		w.run()
		negotiations = append(negotiations, w.opened.Negotiation)
	}
	ids := map[string]bool{}
	for _, event := range w.said {
		if ids[event.ID] {
			t.Errorf("two facts have the id %s, the second is a %s", event.ID, event.Kind)
		}
		ids[event.ID] = true
	}
	if negotiations[0] == negotiations[1] {
		t.Errorf("two negotiations are called %s", negotiations[0])
	}
}

// Fault 21.
func TestAChangeThatCannotBeDoesNotTakeInnocentOnesWithIt(t *testing.T) {
	w := newWorld(t, 2)
	w.mute[events.PlanRequested] = true
	w.hear(events.LeaveRequested, "/node/n1", "n1", &events.Leave{Node: "n1"})
	for i := range 4 {
		w.join(fmt.Sprintf("n%d", 6+i))
	}
	w.run()
	for range 20 {
		if w.opened == nil {
			break
		}
		requests := w.requests()
		request := requests[len(requests)-1]
		if request.Nodes[0].Node == "n1" {
			w.propose(request)
		} else {
			w.hear(events.PlanRefused, "/planner", "p",
				&events.Failure{Negotiation: request.Negotiation, Reason: "without n1 layer 3 does not fit anybody's memory"})
		}
		w.run()
	}
	if refused := w.refusals("n1"); len(refused) != 1 || refused[0].Refused != events.ChangeLeave {
		t.Fatalf("refused n1 %+v", refused)
	}
	if w.nodes() != "n1 n2 n6 n7 n8 n9" || len(w.refusals("n6")) > 0 {
		t.Fatalf("nodes %q, refused n6 %+v", w.nodes(), w.refusals("n6"))
	}
}

// refusePlan has the planner have no answer to the last question.
func (w *world) refusePlan(reason string) {
	requests := w.requests()
	w.hear(events.PlanRefused, "/planner", "p", &events.Failure{Negotiation: requests[len(requests)-1].Negotiation, Reason: reason})
	w.run()
}

func TestWhoComesFirstAfterAFailureOfAllIsNotRefusedForWantOfOthers(t *testing.T) {
	w := newWorld(t, 3)
	for _, node := range []string{"n1", "n2", "n3"} {
		w.lose(node)
	}
	w.run()
	w.mute[events.PlanRequested] = true
	w.join("n1")
	w.run()
	w.refusePlan("1 node is too few for 2 stages")
	if refused := w.refusals("n1"); len(refused) > 1 || w.opened != nil { // the first says that it was lost
		t.Fatalf("refused n1 %+v, open %v", refused, w.opened)
	}
	w.join("n2")
	w.run()
	if requests := w.requests(); len(requests[len(requests)-1].Nodes) != 2 {
		t.Fatalf("asked for a plan of %+v", requests[len(requests)-1].Nodes)
	}
}

func TestAJoinThatCannotBeIsRefusedOnceTheOthersTrainAgain(t *testing.T) {
	w := newWorld(t, 3)
	w.mute[events.PlanRequested] = true
	w.lose("n3")
	w.join("n9")
	w.run()
	for range 20 {
		if w.opened == nil {
			break
		}
		requests := w.requests()
		request := requests[len(requests)-1]
		if isJoined := slices.ContainsFunc(request.Nodes, func(device events.Device) bool { return device.Node == "n9" }); isJoined {
			w.refusePlan("n9 has no memory")
		} else {
			w.propose(request)
			w.run()
		}
	}
	if refused := w.refusals("n9"); w.nodes() != "n1 n2" || len(refused) != 1 || refused[0].Refused != events.ChangeJoin {
		t.Fatalf("nodes %q, refused n9 %+v", w.nodes(), refused)
	}
}

func TestAHeldClusterIsTriedLessAndLessOften(t *testing.T) {
	w := newWorld(t, 2)
	w.lose("n1")
	w.lose("n2")
	w.run()
	before := len(w.said)
	w.tick(8 * time.Hour)
	if written := len(w.said) - before; written > 150 {
		t.Fatalf("a cluster that was held for eight hours wrote %d facts", written)
	}
}

func TestWhatIsMeasuredOfLinksOfNobodyIsNotKept(t *testing.T) {
	w := newWorld(t, 2)
	w.lose("n2")
	w.run()
	empty, _ := w.machine.Snapshot()
	for i := range 100 {
		w.hear(events.LinkMeasured, "/monitor", "x",
			&events.Measurement{From: fmt.Sprint("g", i), To: "n2", BandwidthBytesPerSecond: 1})
	}
	w.run()
	if snapshot, _ := w.machine.Snapshot(); len(snapshot) != len(empty) {
		t.Fatalf("%d bytes are remembered of links to nodes that are gone", len(snapshot)-len(empty))
	}
}
