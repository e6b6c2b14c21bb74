package machine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

// breaks has a node tell that its step cannot end, under the plan in force and at the world's step.
func (w *world) breaks(node string) { w.breaksUnder(w.plan.Generation, w.step, node) }

func (w *world) breaksUnder(generation, step uint64, node string) {
	w.hear(events.StepBroken, "/node/"+node, node, &events.BrokenStep{
		Node: node, Incarnation: w.process[node], Generation: generation, Step: step, Reason: "all-reduce timed out",
	})
}

func (w *world) openings() int { return w.count(events.NegotiationOpened) }

func (w *world) count(kind events.Kind) int {
	count := 0
	for _, event := range w.said {
		if event.Kind == kind {
			count++
		}
	}
	return count
}

func TestABrokenStepIsGivenUpByAllAndTheSameNodesGoOn(t *testing.T) {
	w := newWorld(t, 3)
	w.step = 7
	for _, node := range []string{"n2", "n1", "n3"} {
		w.breaks(node)
	}
	w.run()
	plans := w.plans()
	if len(plans) != 2 || w.nodes() != "n1 n2 n3" || plans[1].ResumeStep != 7 || w.openings() != 2 {
		t.Fatalf("%d openings, nodes %q, plans %+v", w.openings(), w.nodes(), plans)
	}
	if opening := w.lastOpening(); !opening.Abandon || opening.Changes[0].Kind != events.ChangeBroken {
		t.Errorf("opened %+v", opening)
	}
}

func (w *world) lastOpening() (opening events.Opening) {
	for _, event := range w.said {
		if event.Kind == events.NegotiationOpened {
			opening = must[events.Opening](w.t, event)
		}
	}
	return opening
}

// A collective that breaks is seen by all who are in it.
func TestAThousandNodesThatTellOfOneBrokenStepOpenOneNegotiation(t *testing.T) {
	const nodes = 1000
	w := newWorld(t, nodes)
	w.step = 7
	w.mute[events.PlanRequested] = true
	w.deaf["n1"] = true // whose consent is missing: the negotiation stays open while the others tell
	for i := range nodes {
		w.breaks(fmt.Sprintf("n%d", i+1))
	}
	w.run()
	if pending := len(w.machine.state.Pending); w.openings() != 2 || pending != 1 {
		t.Errorf("%d openings, %d changes are pending", w.openings(), pending)
	}
}

func TestWhoTellsOfABrokenStepTooLateOrWithoutAPlaceInItHasNoEffect(t *testing.T) {
	w := newWorld(t, 3)
	w.step = 7
	w.breaks("n2")
	w.run() // generation 2 goes on from step 7
	for _, late := range []struct {
		name, node, incarnation string
		generation, step        uint64
	}{
		{"the step of an older plan", "n1", w.process["n1"], 1, 7},
		{"a step that is behind", "n1", w.process["n1"], 2, 6},
		{"a plan that nobody knows", "n1", w.process["n1"], 9, 7},
		{"a process that is no more", "n1", "older", 2, 7},
		{"a node that is no member", "n8", "n8-1", 2, 7},
	} {
		w.hear(events.StepBroken, "/node/"+late.node, late.node, &events.BrokenStep{
			Node: late.node, Incarnation: late.incarnation, Generation: late.generation, Step: late.step, Reason: "late",
		})
		if w.run(); w.openings() != 2 {
			t.Fatalf("%s opens a negotiation", late.name)
		}
	}
}

// A plan that moves nothing is committed before its members have come to its step. They come there under the plan
// before, and that step may break.
func TestAStepUnderAPlanThatIsToBeReplacedIsBrokenToo(t *testing.T) {
	w := newWorld(t, 3)
	w.step = 7
	w.hear(events.DisconnectRequested, "/user", "n1", &events.LinkRequest{From: "n1", To: "n2"})
	w.run() // generation 2 takes over at step 9
	w.step = 8
	w.breaksUnder(1, 8, "n3")
	w.run()
	plans := w.plans()
	if len(plans) != 3 || plans[1].ResumeStep != 9 || plans[2].ResumeStep != 8 {
		t.Fatalf("plans %+v", plans)
	}
	w.breaksUnder(1, 8, "n1")
	w.breaksUnder(2, 8, "n2")
	w.run()
	if len(w.plans()) != 3 {
		t.Errorf("those who told too late opened another negotiation")
	}
}

func TestANodeThatIsLostMeanwhileIsPartOfTheSameChange(t *testing.T) {
	w := newWorld(t, 3)
	w.step, w.deaf["n3"] = 7, true
	w.breaks("n1")
	w.run()
	w.lose("n3")
	w.breaks("n2")
	w.run()
	if plans := w.plans(); len(plans) != 2 || w.nodes() != "n1 n2" || len(w.lastOpening().Changes) != 2 {
		t.Fatalf("nodes %q after %d plans, opened %+v", w.nodes(), len(plans), w.lastOpening())
	}
}

// The broken step is not forgotten with the node that told of it: the others wait in it.
func TestAStepStaysBrokenThoughTheNodeThatToldIsGone(t *testing.T) {
	w := newWorld(t, 3)
	w.hear(events.LeaveRequested, "/node/n3", "n3", &events.Leave{Node: "n3"})
	w.run() // n3 leaves at step 2, and trains until then
	w.breaksUnder(1, 1, "n3")
	w.mute[events.PlanRequested] = true
	w.run()
	w.join("n3")
	w.run()
	w.lose("n3")
	w.run()
	w.mute[events.PlanRequested] = false
	w.answerAgain(events.PlanRequested)
	w.run()
	if plans := w.plans(); len(plans) != 3 || w.nodes() != "n1 n2" {
		t.Fatalf("nodes %q after %d plans", w.nodes(), len(plans))
	}
}

// answerAgain answers the last fact of a kind, which was not answered.
func (w *world) answerAgain(kind events.Kind) {
	for i := len(w.said) - 1; i >= 0; i-- {
		if w.said[i].Kind == kind {
			w.answer(w.said[i])
			return
		}
	}
}

func TestANodeWhoseStepsBreakAgainAndAgainIsGivenUpByName(t *testing.T) {
	w := newWorld(t, 3)
	w.step = 7
	for range mostBreaks {
		w.breaks("n2")
		w.run()
	}
	refused := w.refusals("n2")
	if len(refused) != 1 || !strings.Contains(refused[0].Reason, "all-reduce timed out") || w.nodes() != "n1 n3" {
		t.Fatalf("nodes %q, refused %+v", w.nodes(), refused)
	}
	w.join("n2")
	w.run()
	if w.tick(3 * time.Second); w.nodes() != "n1 n3" {
		t.Error("it is back at once, and breaks the next step")
	}
	if w.tick(2 * time.Second); w.nodes() != "n1 n2 n3" {
		t.Error("it is kept out for ever")
	}
}

// Every step breaks once, and the next attempt goes well. n2 tells each time, and others too, sometimes before it.
func TestANodeForWhichTrainingCrawlsIsGivenUpByName(t *testing.T) {
	w := newWorld(t, 4)
	for i := 0; len(w.refusals("n2")) == 0; i++ {
		if i == 3*mostTold {
			t.Fatalf("%d steps broke, and n2 told each time", i)
		}
		w.step += 1 + uint64(i)%(goodSteps-1)
		first, second := "n2", []string{"n1", "n3", "n4"}[i%3]
		if i%4 == 0 {
			first, second = second, first
		}
		w.breaks(first)
		w.breaks(second)
		w.run()
	}
	if refused := w.refusals("n2"); !strings.Contains(refused[0].Reason, "all-reduce timed out") || w.nodes() != "n1 n3 n4" {
		t.Fatalf("nodes %q, refused %+v", w.nodes(), refused)
	}
	w.join("n2")
	if w.tick(5 * time.Second); w.nodes() != "n1 n2 n3 n4" {
		t.Error("it is kept out for ever")
	}
}

func TestOfNodesThatTellAlikeOftenNobodyIsGivenUpForACrawl(t *testing.T) {
	w := newWorld(t, 3)
	for i := range 9 * mostTold {
		w.step++
		for next := range 3 {
			w.breaks(fmt.Sprintf("n%d", 1+(i+next)%3))
		}
		w.run()
	}
	if w.nodes() != "n1 n2 n3" {
		t.Fatalf("nodes %q", w.nodes())
	}
}

// Nearest to the hub, or first to run into a timeout: that is no evidence against it.
func TestWhoIsOnlyTheFirstToTellIsNotGivenUpForACrawl(t *testing.T) {
	for name, others := range map[string]func(broken int) []string{
		"all tell":              func(int) []string { return []string{"n2", "n3"} },
		"nobody else tells":     func(int) []string { return nil },
		"the others take turns": func(broken int) []string { return [][]string{{"n2"}, {"n3"}, nil}[broken%3] },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3)
			for i := range 9 * mostTold {
				w.step++
				w.breaks("n1")
				for _, node := range others(i) {
					w.breaks(node)
				}
				w.run()
			}
			if w.nodes() != "n1 n2 n3" {
				t.Fatalf("nodes %q", w.nodes())
			}
		})
	}
}

func TestStepsThatBreakWhileTrainingGetsOnOrGoesBackBlameNobody(t *testing.T) {
	w := newWorld(t, 3)
	for i := range 9 * mostBreaks {
		w.step += goodSteps
		w.breaks([]string{"n1", "n2", "n3"}[i%3])
		w.breaks("n2")
		w.run()
	}
	for range mostBreaks { // whoever had the last step was lost
		w.step--
		w.breaksUnder(w.plan.Generation, w.plan.ResumeStep, "n2")
		w.run()
	}
	if plans := w.plans(); len(plans) != 10*mostBreaks+1 || w.nodes() != "n1 n2 n3" || w.held() != nil {
		t.Fatalf("%d plans, nodes %q, held %+v", len(plans), w.nodes(), w.held())
	}
}

// Whoever is killed breaks everybody's step. That is not the fault of who tells first.
func TestABreakThatALossExplainsBlamesNobody(t *testing.T) {
	w := newWorld(t, 6)
	w.step = 7
	for _, lost := range []string{"n3", "n4", "n5"} {
		w.deaf[lost] = true
		w.breaks("n1")
		w.run()
		w.lose(lost)
		w.run()
	}
	w.breaks("n1")
	w.run()
	if w.nodes() != "n1 n2 n6" || len(w.refusals("n1")) > 0 {
		t.Fatalf("nodes %q, refused %+v", w.nodes(), w.refusals("n1"))
	}
}

// newTiredWorld returns one of three nodes in which so many steps broke in a row that it rests, each told first by another node.
func newTiredWorld(t *testing.T) *world {
	w := newWorld(t, 3)
	w.step = 7
	for i := range mostRetries {
		w.breaks(fmt.Sprintf("n%d", 1+i%3))
		w.run()
	}
	return w
}

func TestAClusterWhoseStepsAllBreakRestsLongerEachTime(t *testing.T) {
	w := newTiredWorld(t)
	if w.held() == nil || len(w.plans()) != mostRetries {
		t.Fatalf("held %+v after %d plans", w.held(), len(w.plans()))
	}
	w.tick(29 * time.Second)
	if w.held() == nil {
		t.Error("it rests for less than 30 s")
	}
	w.tick(2 * time.Second)
	if w.held() != nil || w.nodes() != "n1 n2 n3" {
		t.Fatalf("held %+v, nodes %q", w.held(), w.nodes())
	}
	before := w.openings()
	for range 200 { // whatever breaks at once
		for _, node := range []string{"n1", "n2", "n3"} {
			if w.process[node] != "" && w.plan != nil {
				w.breaks(node)
			}
		}
		w.run()
		w.tick(18 * time.Second)
	}
	if opened := w.openings() - before; opened > 20 {
		t.Errorf("in an hour in which every step broke %d negotiations were opened", opened)
	}
}

// Nodes that came and went while one broke all steps for seconds had the others wait for eight minutes.
func TestAClusterWhoseStepsAllBreakIsTriedAgainAsSoonThoughOthersJoinMeanwhile(t *testing.T) {
	w := newTiredWorld(t)
	for i := range 4 {
		newcomer := fmt.Sprintf("n%d", 4+i)
		w.join(newcomer)
		w.run()
		w.breaks(newcomer)
		w.run()
	}
	if w.held() == nil {
		t.Fatal("it is not held")
	}
	w.tick(31 * time.Second)
	if w.held() != nil {
		t.Errorf("it is held %+v half a minute later", w.held())
	}
}

func TestTheLastHolderIsNotGivenUpForItsBrokenSteps(t *testing.T) {
	w := newWorld(t, 1)
	for range 2 * mostBreaks {
		w.breaks("n1")
		w.run()
	}
	if len(w.refusals("n1")) > 0 || w.held() == nil {
		t.Fatalf("refused %+v, held %+v", w.refusals("n1"), w.held())
	}
}

// n3 is the first to tell of a step that breaks three times, and alone holds a partition. n2 tells of every broken step.
func TestWhereTheFirstToTellCannotBeSparedTheNodeForWhichTrainingCrawlsIsGivenUp(t *testing.T) {
	w := newEmptyWorld(t, 3, 2)
	w.alone = "n3"
	w.begin(3)
	for i := range mostTold {
		w.step++
		w.breaks([]string{"n1", "n2"}[min(i/leastAfter, 1)])
		w.breaks("n2")
		w.run()
	}
	w.step++
	for range mostBreaks {
		w.breaks("n3")
		w.breaks("n2")
		w.run()
	}
	if len(w.refusals("n2")) != 1 || len(w.refusals("n3")) > 0 {
		t.Fatalf("refused n2 %+v, n3 %+v", w.refusals("n2"), w.refusals("n3"))
	}
}
