package dev

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/trainer/model"
)

// teller feeds a story with the log of a cluster.
type teller struct {
	t     *testing.T
	story *story
	now   time.Time
	count int
}

func newTeller(t *testing.T) *teller {
	story := newStory()
	return &teller{t: t, story: story, now: story.began}
}

func (l *teller) say(kind events.Kind, source, subject string, payload events.Payload) events.Event {
	l.count++
	l.now = l.now.Add(10 * time.Millisecond)
	event := events.Speaker{Source: source, Cluster: "c"}.First(l.now, fmt.Sprint(l.count), kind, subject, payload)
	event.Logged = l.now
	l.story.hear(event)
	if l.story.held != "" {
		l.t.Fatal(l.story.held)
	}
	return event
}

func twoByTwo(generation uint64) events.Plan {
	span := func(first, end int) events.Range { return events.Range{First: first, End: end} }
	plan := events.Plan{Cluster: "c", Generation: generation, Parent: "p",
		Data: events.Data{GlobalBatch: 2, MicroBatch: 1}}
	for _, name := range []string{"n1", "n2", "n3", "n4"} {
		plan.Nodes = append(plan.Nodes, events.Member{Node: name, Incarnation: "i", Address: "a"})
	}
	for p := range 2 {
		plan.Pipelines = append(plan.Pipelines, events.Pipeline{MicroBatches: 1, Stages: []events.Stage{
			{Node: plan.Nodes[2*p].Node, Layers: span(0, 1)}, {Node: plan.Nodes[2*p+1].Node, Layers: span(1, 2)},
		}})
	}
	return plan
}

// act is what the director does, at the story's time.
func (l *teller) act(verb string, names ...string) *Change {
	change := l.story.begin(Action{Verb: verb}, names)
	change.done = l.now
	return change
}

func (l *teller) commit(generation uint64, change events.Change) {
	plan := twoByTwo(generation)
	negotiation := fmt.Sprint("g", generation)
	l.say(events.NegotiationOpened, "/negotiator", negotiation, &events.Opening{Negotiation: negotiation,
		Generation: generation, Changes: []events.Change{change}, Members: plan.Nodes})
	l.say(events.RestorationPlanned, "/restorer", negotiation,
		&events.Restoration{Negotiation: negotiation, Plan: plan, BytesMoved: 5, NaiveBytes: 50})
	l.say(events.Committed, "/negotiator", negotiation,
		&events.Commitment{Negotiation: negotiation, Generation: generation, PlanDigest: events.Digest(nil)})
	l.say(events.PlanCommitted, "/negotiator", fmt.Sprint(generation), &plan)
}

func (l *teller) activate(generation uint64, stall float64, nodes ...string) {
	for _, node := range nodes {
		l.say(events.PlanActivated, "/node/"+node, node,
			&events.Activation{Node: node, Generation: generation, Step: 9, StallSeconds: stall, StallSteps: 10 * stall})
	}
}

func TestAChangeIsHealedWhenEveryTrainerOfItsPlanCompletedAStep(t *testing.T) {
	log := newTeller(t)
	change := log.act("kill", "n5")
	lost := log.say(events.NodeLost, "/monitor", "n5", &events.NodeState{Node: "n5", Incarnation: "i"})
	log.commit(2, events.Change{Kind: events.ChangeFailure, Node: "n5", Cause: lost.ID})
	log.activate(2, 0.3, "n1", "n2", "n3")
	if change.Healed {
		t.Fatal("n4 has not completed a step")
	}
	log.activate(2, 0.2, "n4")
	if !change.Healed || change.StallSeconds != 0.3 || change.BytesMoved != 5 || change.Shape != "2+2" {
		t.Fatalf("%+v", change)
	}
	if change.DetectedSeconds != 0.01 || change.PlannedSeconds != 0.03 || change.CommittedSeconds != 0.04 ||
		change.NextStepSeconds != 0.09 {
		t.Fatalf("phases: %+v", change)
	}
}

func TestAChangeIsHealedByALaterPlanToo(t *testing.T) {
	log := newTeller(t)
	change := log.act("disconnect", "n4", "n1")
	asked := log.say(events.DisconnectRequested, "/user", "n4", &events.LinkRequest{From: "n4", To: "n1"})
	log.commit(2, events.Change{Kind: events.ChangeDisconnect, Node: "n1", Peer: "n4", Cause: asked.ID})
	log.commit(3, events.Change{Kind: events.ChangeJoin, Node: "n9"})
	log.activate(3, 0, "n1", "n2", "n3", "n4")
	if !change.Healed || change.Generation != 2 {
		t.Fatalf("%+v", change)
	}
}

func TestARefusedRequestIsNotWaitedForAndFailsTheRun(t *testing.T) {
	log := newTeller(t)
	log.act("disconnect", "n1", "n9")
	log.say(events.MembershipRefused, "/negotiator", "n1",
		&events.Refusal{Node: "n1", Refused: events.ChangeDisconnect, Reason: "expected two active nodes"})
	if open := log.story.open(); len(open) > 0 {
		t.Fatalf("waits for %v", open)
	}
	report := Report{Changes: log.story.snapshot()}
	if err := report.verdict(); err == nil || !strings.Contains(err.Error(), "two active nodes") {
		t.Fatalf("got %v", err)
	}
}

func TestAKilledServiceIsHealedWhenItsNextInstanceActs(t *testing.T) {
	log := newTeller(t)
	log.say(events.LeaseTaken, "/planner", "planner", &events.Lease{Service: "planner", Instance: "first"})
	change := log.act("kill", "planner")
	if change.Healed {
		t.Fatal("healed before it was restarted")
	}
	log.say(events.LeaseTaken, "/planner", "planner", &events.Lease{Service: "planner", Instance: "second"})
	if !change.Healed || change.DetectedSeconds != 0.01 {
		t.Fatalf("%+v", change)
	}
}

func TestOnlyTrainersWhoseLayersLiveElsewhereAreKilledByChance(t *testing.T) {
	log := newTeller(t)
	plan := twoByTwo(1)
	log.say(events.PlanCommitted, "/negotiator", "1", &plan)
	if victims := log.story.safeVictims([]string{"n1", "n2", "n3"}); !slices.Equal(victims, []string{"n1", "n3"}) {
		t.Fatalf("n4 is dead and n2 holds its layers alone, yet got %v", victims)
	}
}

func TestAKillByChanceCountsOnNobodyWhoWasJustKilled(t *testing.T) {
	log := newTeller(t)
	plan := twoByTwo(1)
	log.say(events.PlanCommitted, "/negotiator", "1", &plan)
	log.act("kill", "n4")
	second := log.act("leave", "n3")
	running := []string{"n1", "n2", "n3", "n4"} // the killed process may not have ended yet
	if victims := log.story.safeVictims(running); !slices.Equal(victims, []string{"n1"}) {
		t.Fatalf("n2 holds the layers of n4 alone and n3 is leaving, yet got %v", victims)
	}
	if !slices.Equal(second.UnderWay, []string{events.ChangeFailure}) {
		t.Fatalf("under way when n3 was asked to leave: %v", second.UnderWay)
	}
}

func TestOnlyTrainersWhosePartitionsLiveElsewhereAreKilledByChance(t *testing.T) {
	log := newTeller(t)
	plan := twoByTwo(1)
	plan.Pipelines[0].Partitions, plan.Pipelines[1].Partitions = []int{0, 1}, []int{1}
	log.say(events.PlanCommitted, "/negotiator", "1", &plan)
	if victims := log.story.safeVictims([]string{"n1", "n2", "n3", "n4"}); !slices.Equal(victims, []string{"n3", "n4"}) {
		t.Fatalf("the first pipeline keeps partition 0 alone, yet got %v", victims)
	}
}

func TestTheModelsDigestIsOfAllRowsAndADisagreementNamesThePartition(t *testing.T) {
	log := newTeller(t)
	plan := twoByTwo(1)
	plan.Pipelines[0].Partitions, plan.Pipelines[1].Partitions = []int{0}, []int{0}
	log.say(events.PlanCommitted, "/negotiator", "1", &plan)
	var all []string
	for row := range 4 {
		all = append(all, events.Digest([]byte{byte(row)}))
	}
	tell := func(node string, rows ...int) {
		digests := &events.Digests{Node: node, Generation: 1, Step: 10, Final: true}
		for _, row := range rows {
			digests.Units = append(digests.Units, events.UnitDigest{Unit: row, Digest: all[row]})
		}
		log.say(events.TrainingDigested, "/node/"+node, node, digests)
	}
	tell("n1", 0, 2)
	tell("n2", 1, 3)
	if report := log.story.report(Options{}); report.disagreement != "" || report.Digest != model.ModelDigest(all) {
		t.Fatalf("%+v, expected the digest of four rows", report)
	}
	all[3] = events.Digest(nil)
	tell("n4", 1, 3)
	if report := log.story.report(Options{}); report.disagreement != "holders of partition 0 of layer 1 told 2 different digests" {
		t.Fatalf("%+v", report)
	}
}

func TestWhatIsUnderWayWhenTheJobIsCompleteNeedsNoHealing(t *testing.T) {
	log := newTeller(t)
	plan := twoByTwo(1)
	log.say(events.PlanCommitted, "/negotiator", "1", &plan)
	kill := log.act("kill", "n1")
	for i, node := range []string{"n2", "n3", "n4"} {
		digests := []events.UnitDigest{{Unit: i % 2, Digest: events.Digest([]byte{byte(i % 2)})}}
		log.say(events.TrainingDigested, "/node/"+node, node,
			&events.Digests{Node: node, Generation: 1, Step: 10, Final: true, Units: digests})
	}
	if log.story.complete() || kill.Healed {
		t.Fatal("complete before the negotiator says so")
	}
	log.say(events.TrainingCompleted, "/negotiator", "opticks",
		&events.JobEnd{Generation: 1, Step: 10, Nodes: []string{"n2", "n3", "n4"}})
	if !ended(log.story) || !kill.Overtaken {
		t.Fatalf("complete %v, the kill %+v", log.story.complete(), kill)
	}
	if report := log.story.report(Options{}); report.disagreement != "" || report.Digest == "" {
		t.Fatalf("%+v", report)
	}
}

func TestHoldersThatDisagreeAreAFaultWhateverTheOracleSays(t *testing.T) {
	log := newTeller(t)
	for i, node := range []string{"n1", "n3"} {
		digests := []events.UnitDigest{{Unit: 0, Digest: events.Digest([]byte{byte(i)})}}
		log.say(events.TrainingDigested, "/node/"+node, node,
			&events.Digests{Node: node, Generation: 1, Step: 10, Final: true, Units: digests})
	}
	report := log.story.report(Options{})
	if err := report.verdict(); err == nil || report.Equal {
		t.Fatalf("%+v", report)
	}
}

func TestAKillOvertakesWhatTheNodeWasAboutToDo(t *testing.T) {
	log := newTeller(t)
	plan := twoByTwo(1)
	log.say(events.PlanCommitted, "/negotiator", "1", &plan)
	join, kill := log.act("join", "n9"), log.act("kill", "n9")
	if !join.Overtaken || kill.Healed {
		t.Fatalf("join %+v, kill %+v", join, kill)
	}
	log.say(events.NodeLost, "/monitor", "n9", &events.NodeState{Node: "n9", Incarnation: "i"})
	if !kill.Healed {
		t.Fatal("no plan names n9, so that none has to change")
	}
}

func TestNodesThatAreBusyAreNotChosen(t *testing.T) {
	log := newTeller(t)
	plan := twoByTwo(1)
	log.say(events.PlanCommitted, "/negotiator", "1", &plan)
	log.act("leave", "n1")
	if victims := log.story.safeVictims([]string{"n1", "n2", "n3", "n4"}); !slices.Equal(victims, []string{"n2", "n3", "n4"}) {
		t.Fatalf("got %v", victims)
	}
}
