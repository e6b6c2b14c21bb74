package inventory

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
	"github.com/reknit/reknit/services/reknit/tell"
)

func TestAClusterIsWellWhereAllServicesAnswerAndEachNodeIsHeard(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.beat("n1", "n2", "n3")
	s.serve("monitor", "negotiator", "planner", "restorer")
	printed, err := s.run(Status())
	for _, says := range []string{"generation 1, 2 by repipeline", "loss 2.5, 250 ms a step, 500 ms predicted", "1 spare, 2 training",
		"copies      2 parts of the model are in one node alone", "planner     works, since"} {
		if err != nil || !strings.Contains(printed, says) {
			t.Errorf("%v, expected %q in\n%s", err, says, printed)
		}
	}
}

func TestByHowMuchAStepWasPredictedWrongAndWhyIsTold(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.beat("n1", "n2", "n3")
	s.serve("monitor", "negotiator", "planner", "restorer")
	s.say(events.PlanMeasured, "/node/n1", "n1", &events.Pace{Node: "n1", Generation: 1, Step: 12, StepSeconds: 0.625, Steps: 10})
	printed, _ := s.run(Status())
	says := "250 ms a step; the prediction was 20 % too low, before steps became faster"
	if !strings.Contains(printed, says) {
		t.Errorf("expected %q in\n%s", says, printed)
	}
}

func TestACompleteJobIsNoDisasterWhoeverIsGone(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.serve("monitor", "negotiator", "planner", "restorer")
	s.say(events.NegotiationOpened, "/negotiator", "g2", &events.Opening{Negotiation: "g2", Generation: 2, Abandon: true,
		Changes: []events.Change{{Kind: events.ChangeFailure, Node: "n3"}}})
	s.say(events.ClusterHeld, "/negotiator", "c", &events.Hold{Reason: "nobody has layer 1"})
	s.say(events.Aborted, "/negotiator", "g2", &events.Abort{Negotiation: "g2", Generation: 2, Reason: "the job is complete"})
	s.say(events.TrainingCompleted, "/negotiator", "c", &events.JobEnd{Generation: 1, Step: 40, Nodes: []string{"n1", "n2"}})
	printed, err := s.run(Status())
	for _, says := range []string{"complete since ", "step 40 made by 2 nodes", "3 ended", "it is over"} {
		if err != nil || !strings.Contains(printed, says) {
			t.Errorf("%v, expected %q in\n%s", err, says, printed)
		}
	}
	for _, fault := range []string{"lost", "silent", "holds"} {
		if strings.Contains(printed, fault) {
			t.Errorf("%q stands in\n%s", fault, printed)
		}
	}
}

func TestATrainingThatWasStoppedTellsItsSnapshotAndMissesNobody(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.serve("monitor", "negotiator", "planner", "restorer")
	s.say(events.LeaveRequested, "/node/n1", "n1", &events.Leave{Node: "n1", Reason: "asked to go"})
	s.say(events.TrainingStopped, "/negotiator", "c", &events.JobStop{Generation: 1, Step: 40, Tier: "disk", Plan: events.Digest(nil)})
	printed, err := s.run(Status())
	if err != nil || !strings.Contains(printed, "stopped at step 40, snapshot complete at 40 (disk); the same scripts") ||
		!strings.Contains(printed, "train longer if all are given more steps") {
		t.Errorf("%v, and\n%s", err, printed)
	}
	for _, fault := range []string{"lost", "silent", "leaving"} {
		if strings.Contains(printed, fault) {
			t.Errorf("%q stands in\n%s", fault, printed)
		}
	}
}

func TestAJobThatEndsWithTwoModelsIsNotWell(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.serve("monitor", "negotiator", "planner", "restorer")
	s.say(events.TrainingCompleted, "/negotiator", "c", &events.JobEnd{
		Generation: 1, Step: 40, Nodes: []string{"n1", "n2"}, Differ: []events.Range{{First: 0, End: 1}, {First: 2, End: 4}},
	})
	printed, err := s.run(Status())
	if says := "they differ in units 0, 2-3"; !errors.As(err, &tell.NotWell{}) || !strings.Contains(printed, says) {
		t.Errorf("ends with %v, expected %q in\n%s", err, says, printed)
	}
}

func TestWhatIsNotWellIsNamedAndEndsTheCommandWithAStatusOfItsOwn(t *testing.T) {
	s := newSite(t)
	s.serve("monitor", "negotiator", "restorer")
	s.plan()
	s.beat("n1", "n3")
	s.say(events.ClusterHeld, "/negotiator", "c", &events.Hold{Reason: "no node has layer 1"})
	overview, err := answered[Overview](s, Status())
	if !errors.As(err, &tell.NotWell{}) {
		t.Errorf("ends with %v", err)
	}
	want := "n2 is silent: no heartbeat came in 1.2s|no planner answers: start one, or see its log|the cluster holds: no node has layer 1"
	if got := strings.Join(overview.Problems, "|"); got != want {
		t.Errorf("problems %s, expected %s", got, want)
	}
}

// Two trained on, it said, and had waited for a minute.
func TestOfAClusterThatCannotGoOnNobodyIsSaidToTrain(t *testing.T) {
	s := newSite(t)
	s.holdUp(events.Change{Kind: events.ChangeFailure, Node: "n4"}, true)
	s.expectStatus("training    stopped at step ", "1 spare, 2 waiting", "\nheld        no node has layer 1\n")
}

// They had all stopped, it said, and trained on.
func TestWhereAJoinCannotBeMadeTheOthersAreSaidToTrain(t *testing.T) {
	s := newSite(t)
	s.holdUp(events.Change{Kind: events.ChangeJoin, Node: "n4"}, false)
	s.expectStatus("training    step ", "1 spare, 2 training", "\nheld        no node has layer 1\n")
}

// holdUp has a change of a plan come to nothing, for which the step under way was abandoned or was not.
func (s *site) holdUp(change events.Change, abandon bool) {
	s.t.Helper()
	s.serve("monitor", "negotiator", "planner", "restorer")
	s.plan()
	s.beat("n1", "n2", "n3")
	s.say(events.Committed, "/negotiator", "g", &events.Commitment{Negotiation: "g", Generation: 1, PlanDigest: events.Digest(nil)})
	s.say(events.NegotiationOpened, "/negotiator", "g2", &events.Opening{Negotiation: "g2", Generation: 2, Abandon: abandon,
		Changes: []events.Change{change}})
	s.say(events.Aborted, "/negotiator", "g2", &events.Abort{Negotiation: "g2", Generation: 2, Reason: "no node has layer 1"})
	s.say(events.ClusterHeld, "/negotiator", "c", &events.Hold{Reason: "no node has layer 1"})
}

func (s *site) expectStatus(expected ...string) {
	s.t.Helper()
	printed, err := s.run(Status())
	for _, says := range expected {
		if told := fmt.Sprint(printed, err); !strings.Contains(told, says) {
			s.t.Errorf("expected %q in\n%s", says, told)
		}
	}
}

// It showed the pace of before while nobody made a step.
func TestWhereANodeIsSuspectedTheOthersAreSaidToWaitForIt(t *testing.T) {
	s := newSite(t)
	s.serve("monitor", "negotiator", "planner", "restorer")
	s.plan()
	s.beat("n1", "n3")
	s.say(events.NodeSuspected, "/monitor", "n2", &events.NodeState{Node: "n2", Incarnation: "i", Reason: "no heartbeat"})
	s.expectStatus(", waits for n2; loss 2.5, 250 ms a step")
}

func TestWhoLeavesHoldsItsPartUntilItHasLeft(t *testing.T) {
	s := newSite(t)
	s.serve("monitor", "negotiator", "planner", "restorer")
	s.plan()
	s.beat("n1", "n2", "n3")
	s.say(events.LeaveRequested, "/user", "n1", &events.Leave{Node: "n1", Reason: "drained"})
	s.expectStatus("copies      2 parts of the model are in one node alone")
}

func TestWhoIsSilentOrSuspectedHoldsNoCopyThatAnotherCouldBeGiven(t *testing.T) {
	for how, missed := range map[string]func(*site){
		"silent": func(*site) {},
		"suspected": func(s *site) {
			s.say(events.NodeSuspected, "/monitor", "n2", &events.NodeState{Node: "n2", Incarnation: "i", Reason: "no heartbeat"})
		},
	} {
		t.Run(how, func(t *testing.T) {
			s := newSite(t)
			s.serve("monitor", "negotiator", "planner", "restorer")
			s.replicas("n1", "n2")
			s.beat("n1")
			missed(s)
			s.expectStatus("2 parts of the model are in one node alone", "1 "+how+", 1 training")
		})
	}
}

// replicas commits a plan under which each of some nodes holds the whole model.
func (s *site) replicas(nodes ...string) {
	s.t.Helper()
	plan := events.Plan{Cluster: "c", Generation: 1, Policy: "repipeline",
		Data: events.Data{GlobalBatch: len(nodes), MicroBatch: 1}}
	for _, node := range nodes {
		s.join(node, "i")
		plan.Nodes = append(plan.Nodes, events.Member{Node: node, Incarnation: "i", Address: node + ":1", Site: "left"})
		plan.Pipelines = append(plan.Pipelines,
			events.Pipeline{MicroBatches: 1, Stages: []events.Stage{{Node: node, Layers: events.Range{End: 2}}}})
	}
	s.say(events.PlanCommitted, "/negotiator", "1", &plan)
}

func TestALossThatIsNotFiniteIsNotWell(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.beatWith(func(step uint64) events.Pulse {
		return events.Pulse{Number: step, Generation: 1, Step: 40 + step, StepSeconds: 0.25, LossNotFinite: true, LossNotFiniteSince: 38}
	}, "n1", "n2", "n3")
	s.serve("monitor", "negotiator", "planner", "restorer")
	s.say(events.SnapshotCompleted, "/restorer", "disk", &events.CompleteSnapshot{Tier: "disk", Step: 30, Plan: events.Digest(nil)})
	printed, err := s.run(Status())
	if !errors.As(err, &tell.NotWell{}) || !strings.Contains(err.Error(), "not finite since step 38: training has diverged") ||
		!strings.Contains(err.Error(), "that of step 30 (disk) stays") ||
		!strings.Contains(printed, "loss not finite since step 38, 250 ms a step") {
		t.Errorf("ends with %v\n%s", err, printed)
	}
}

// Nobody waits for one that trains alone: status said for ever that it trains.
func TestAScriptThatHangsAloneIsNotWell(t *testing.T) {
	s := newSite(t)
	s.replicas("n1")
	s.beatWith(func(number uint64) events.Pulse {
		return events.Pulse{Number: number, Generation: 1, Step: 40, StepSeconds: 0.25, Loss: 1, Between: true, StillSeconds: 90}
	}, "n1")
	s.serve("monitor", "negotiator", "planner", "restorer")
	printed, err := s.run(Status())
	if !errors.As(err, &tell.NotWell{}) || !strings.Contains(err.Error(), "no step for 1m30s, 250ms is usual") {
		t.Errorf("ends with %v\n%s", err, printed)
	}
}

// Nobody said a word of a script that hung under --unchanged, or that waited for another's.
func TestAScriptUnchangedThatRestsIsNotWellAndOneThatWaitsForAnothersSaysFor(t *testing.T) {
	s := newSite(t)
	s.plan()
	beats := func(node string, script *events.Script) {
		s.beatWith(func(number uint64) events.Pulse {
			return events.Pulse{Number: number, Generation: 1, Step: 2, Script: script}
		}, node)
	}
	beats("n1", &events.Script{RestsSeconds: 75, UsualSeconds: 3})
	beats("n2", &events.Script{Awaits: []string{"n9"}, UntilSeconds: 48.2})
	beats("n3", nil)
	s.serve("monitor", "negotiator", "planner", "restorer")
	printed, err := s.run(Status())
	if !errors.As(err, &tell.NotWell{}) ||
		!strings.Contains(err.Error(), "the script of n1 does nothing: it has neither used a processor nor written for 75 s. It hangs, or") ||
		!strings.Contains(printed, "waits       n2: its script starts once those of n9 have ended, whose agents answer: within 48 s\n") {
		t.Errorf("ends with %v\n%s", err, printed)
	}
}

func TestWhoeverOthersWaitForInTheirStepIsNamedWithWhatItDoes(t *testing.T) {
	s := newSite(t)
	s.plan()
	stands := func(pulse events.Pulse, nodes ...string) {
		s.beatWith(func(number uint64) events.Pulse {
			pulse.Number, pulse.Generation, pulse.Step, pulse.StepSeconds = number, 1, 40, 0.25
			return pulse
		}, nodes...)
	}
	stands(events.Pulse{Between: true}, "n2")
	stands(events.Pulse{Phase: events.PhaseWaiting}, "n1", "n3")
	s.serve("monitor", "negotiator", "planner", "restorer")
	s.say(events.StepDelayed, "/monitor", "n2", &events.StepDelay{Node: "n2", Incarnation: "i", Generation: 1, Step: 40, By: "n1",
		Phase: events.PhaseBetween, WaitedSeconds: 45, UsualSeconds: 0.25, Reason: "n1 has waited for it"})
	printed, err := s.run(Status())
	says := regexp.MustCompile(`no step for 4[5-9]s, 250ms is usual: n1 waits for n2 \(between steps\)\.`)
	if !errors.As(err, &tell.NotWell{}) || !says.MatchString(err.Error()) {
		t.Errorf("ends with %v\n%s", err, printed)
	}
}

func TestWhatWasRefusedIsToldBelowWhatHappensUntilSomethingNewerIsKnownOfItsNode(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.beat("n1", "n2", "n3")
	s.serve("monitor", "negotiator", "planner", "restorer")
	expect := func(when string, says bool) {
		t.Helper()
		printed, err := s.run(Status())
		if err != nil || strings.Contains(printed, "\nrefused     join of n9, ") != says || strings.Contains(printed, "it is refused") {
			t.Errorf("%s: %v, expected that a refusal is told: %v, in\n%s", when, err, says, printed)
		}
	}
	s.join("n9", "i")
	s.say(events.MembershipRefused, "/negotiator", "n9",
		&events.Refusal{Node: "n9", Refused: events.ChangeJoin, Incarnation: "i", Reason: "another job"})
	s.join("n3", "i")
	expect("after the refusal", true)
	s.say(events.NodeExited, "/node/n9", "n9", &events.Exit{Node: "n9", Incarnation: "i", Reason: "exit status 1"})
	expect("once the refused one has ended", false)
}

func TestAJobWhoseNodesWereStoppedSaysHowEachEndedAndWhatToDo(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.serve("monitor", "negotiator", "planner", "restorer")
	leave := func(node string) {
		s.say(events.LeaveRequested, "/node/"+node, node, &events.Leave{Node: node, Reason: "asked to go"})
		s.say(events.MembershipRefused, "/negotiator", node,
			&events.Refusal{Node: node, Refused: events.ChangeLeave, Reason: "it is needed"})
	}
	leave("n1")
	s.say(events.NodeExited, "/node/n1", "n1", &events.Exit{Node: "n1", Incarnation: "i", Reason: "signal: terminated"})
	s.say(events.NodeLost, "/monitor", "n1",
		&events.NodeState{Node: "n1", Incarnation: "i", Reason: "its trainer is gone: signal: terminated", Step: 40})
	s.say(events.MembershipRefused, "/negotiator", "n1",
		&events.Refusal{Node: "n1", Refused: events.RefusedMembership, Incarnation: "i", Reason: "lost: its trainer is gone: signal: terminated"})
	leave("n2")
	s.say(events.NodeLost, "/monitor", "n3", &events.NodeState{Node: "n3", Incarnation: "i", Reason: "nobody answers at the hub"})
	s.say(events.ClusterHeld, "/negotiator", "c", &events.Hold{Reason: "no node is left", Awaits: []string{"n1"}})
	printed, err := s.run(Status())
	if !errors.As(err, &tell.NotWell{}) {
		t.Fatalf("it ends with %v\n%s", err, printed)
	}
	for _, says := range []string{`training +stopped at step 40: no node is heard`, `change +to generation \d: no node is left; it is pending\n`,
		`n1 is lost: its trainer is gone: signal: terminated, 0\.\d s after it asked to leave; `,
		"n2 is silent: it asked to leave, and was refused: it is needed; ", "n3 is lost: nobody answers at the hub; ",
		"nobody trains any more. Nothing proves that n2 ended: .* if none of them runs any more, .* reknit cluster reset"} {
		if told := printed + err.Error(); !regexp.MustCompile(says).MatchString(told) {
			t.Errorf("expected %q in\n%s", says, told)
		}
	}
}

func TestNodesThatAllEndedAsTheyShouldAreNoProblem(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.serve("monitor", "negotiator", "planner", "restorer")
	for _, node := range []string{"n1", "n2", "n3"} {
		s.say(events.NodeExited, "/node/"+node, node, &events.Exit{Node: node, Incarnation: "i", Reason: "exit status 0", Expected: true})
	}
	if printed, err := s.run(Status()); err != nil || !strings.Contains(printed, "3 ended") || strings.Contains(printed, "stopped") {
		t.Errorf("%v\n%s", err, printed)
	}
}

func TestAChangeIsSaidToBeDoneOnceAllWorkUnderIt(t *testing.T) {
	for state, says := range map[string]string{
		changes.Working: "done in 700 ms", changes.Negotiating: "negotiated for 700 ms", changes.Pending: "it is pending, 700 ms",
		changes.Committed: "committed, and some have not trained under it yet, after 700 ms",
	} {
		change := changes.Change{State: state, TotalSeconds: 0.7, Attempts: make([]changes.Attempt, 1)}
		if got := stands(change, false); got != says {
			t.Errorf("%s: %s, expected %s", state, got, says)
		}
	}
}

func TestOfScriptsThatKnowNothingOfTheirAgentsNoStepsAreTold(t *testing.T) {
	s := newSite(t)
	plan := s.planned(events.Job{
		Digest: events.Digest(nil), Kind: events.DataParallel, Layers: []events.LayerProfile{{ParameterBytes: 1}}, GlobalBatch: 1, MicroBatch: 1,
	}, events.Predicted{StepSeconds: 1, PeakBytes: map[string]int64{"n1": 1}})
	s.say(events.NegotiationOpened, "/negotiator", "g1", &events.Opening{Negotiation: "g1", Generation: 1, Members: plan.Nodes,
		Changes: []events.Change{{Kind: events.ChangeJoin, Node: "n1"}}})
	s.say(events.PlanProposed, "/planner", "g1", &events.Proposal{Negotiation: "g1", Plan: plan})
	s.say(events.Committed, "/negotiator", "g1", &events.Commitment{Negotiation: "g1", Generation: 1, PlanDigest: events.Digest(nil)})
	s.beat("n1", "n2", "n3")
	printed, _ := s.run(Status())
	if !strings.Contains(printed, "; steps are not known: --unchanged\n") || strings.Contains(printed, "a step") {
		t.Errorf("expected that steps are not known in\n%s", printed)
	}
	printed, err := s.run(Nodes())
	if err != nil || !strings.Contains(printed, "are not known: --unchanged") || regexp.MustCompile(`MiB| s |ms`).MatchString(printed) {
		t.Errorf("%v, expected no figures in\n%s", err, printed)
	}
}
