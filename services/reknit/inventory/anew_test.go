package inventory

import (
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
)

func TestAJobThatIsToBeginAnewWaitsForNodesAndIsNoProblem(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.serve("monitor", "negotiator", "planner", "restorer")
	for _, node := range []string{"n1", "n2", "n3"} {
		s.say(events.NodeLost, "/monitor", node, &events.NodeState{Node: node, Incarnation: "i", Reason: "interrupted", Step: 40})
	}
	s.say(events.ClusterHeld, "/negotiator", "c", &events.Hold{Reason: "its state is gone"})
	s.say(events.TrainingReset, "/negotiator", "c", &events.JobReset{Generation: 1, Reason: "a wrong setting"})
	printed, err := s.run(Status())
	if err != nil || !strings.Contains(printed, "begins anew once nodes join, as somebody asked: a wrong setting") {
		t.Errorf("%v in\n%s", err, printed)
	}
}

func TestAJobThatFailedInItsFirstStepIsToldToBeginAsTheNegotiatorSays(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.serve("monitor", "negotiator", "planner", "restorer")
	for _, node := range []string{"n1", "n2", "n3"} {
		s.say(events.NodeLost, "/monitor", node, &events.NodeState{Node: node, Incarnation: "i", Reason: "its trainer is gone"})
	}
	s.say(events.ClusterHeld, "/negotiator", "c", &events.Hold{Reason: "no step was made: training begins once nodes join"})
	_, err := s.run(Status())
	if err == nil || !strings.Contains(err.Error(), "training begins once nodes join") || strings.Contains(err.Error(), "To begin anew") {
		t.Error(err)
	}
}

// A user with the same mistake in all scripts was told to leave their agents running.
func TestAMistakeThatEndsAllScriptsBeforeAStepIsMadeIsToldWithWhatToDo(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.serve("monitor", "negotiator", "planner", "restorer")
	for _, node := range []string{"n1", "n2", "n3"} {
		reason := "exit status 1: NameError: name 'x' is not defined"
		s.say(events.NodeExited, "/node/"+node, node, &events.Exit{Node: node, Incarnation: "i", Reason: reason, Step: new(uint64)})
		s.say(events.NodeLost, "/monitor", node,
			&events.NodeState{Node: node, Incarnation: "i", Reason: "its trainer is gone: " + reason, Proven: true})
	}
	s.say(events.ClusterHeld, "/negotiator", "c",
		&events.Hold{Reason: "no node is left, and no step was made: training begins once nodes join"})
	s.join("n4", "i")
	s.say(events.NodeLost, "/monitor", "n4", &events.NodeState{Node: "n4", Incarnation: "i", Reason: "its trainer is gone: exit status 1"})
	printed, err := s.run(Status())
	if !strings.Contains(printed, "nodes       3 lost, 1 gone\n") {
		t.Errorf("expected that all four are counted in\n%s", printed)
	}
	says := "not well: nobody trains any more: all scripts ended before a step was made, by exit status 1: NameError: name 'x' is not defined. " +
		"Mend the script: agents start it again by themselves while they run. Start it only where its agent has ended: nothing is lost, " +
		"and training begins"
	if err == nil || !strings.HasSuffix(err.Error(), says) {
		t.Errorf("expected %q, got %v", says, err)
	}
}

// The log keeps that the cluster was held for a node that came after a stop, and has gone since.
func TestAfterAStopNobodyIsWaitedForWhoIsGoneAgain(t *testing.T) {
	for how, goes := range map[string]func(*site){
		"its process ended": func(s *site) {
			s.say(events.NodeLost, "/monitor", "n4", &events.NodeState{Node: "n4", Incarnation: "j", Reason: "no heartbeat"})
			s.say(events.MembershipRefused, "/negotiator", "n4",
				&events.Refusal{Node: "n4", Refused: events.RefusedMembership, Incarnation: "j", Reason: "lost: no heartbeat"})
		},
		"it is told to stop": func(s *site) {
			s.say(events.MembershipRefused, "/negotiator", "n4",
				&events.Refusal{Node: "n4", Refused: events.ChangeJoin, Incarnation: "j", Reason: "training has stopped", Stopped: true})
		},
	} {
		t.Run(how, func(t *testing.T) {
			s := newSite(t)
			s.plan()
			s.serve("monitor", "negotiator", "planner", "restorer")
			stop := &events.JobStop{Generation: 1, Step: 478, Tier: "disk", Plan: events.Digest(nil)}
			s.say(events.TrainingStopped, "/negotiator", "c", stop)
			s.join("n4", "j")
			s.say(events.ClusterHeld, "/negotiator", "c", &events.Hold{Reason: "waiting for more nodes: 1 joined"})
			goes(s)
			printed, err := s.run(Status())
			if err != nil || !strings.Contains(printed, "stopped at step 478") || strings.Contains(printed, "waiting") {
				t.Errorf("%v in\n%s", err, printed)
			}
		})
	}
}

// Status showed the members, the plan and the snapshot of what was given up.
func TestAfterAResetNothingOfBeforeIsTold(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.serve("monitor", "negotiator", "planner", "restorer")
	s.say(events.SnapshotCompleted, "/restorer", "disk", &events.CompleteSnapshot{Tier: "disk", Step: 30, Plan: events.Digest(nil)})
	s.say(events.Committed, "/negotiator", "g", &events.Commitment{Negotiation: "g", Generation: 1, PlanDigest: events.Digest(nil)})
	s.join("n9", "i")
	s.say(events.MembershipRefused, "/negotiator", "n9",
		&events.Refusal{Node: "n9", Refused: events.ChangeJoin, Incarnation: "i", Reason: "another job"})
	s.say(events.TrainingCompleted, "/negotiator", "c", &events.JobEnd{Generation: 1, Step: 40, Nodes: []string{"n1", "n2"}})
	s.say(events.TrainingReset, "/negotiator", "c", &events.JobReset{Generation: 1, Reason: "the next job"})
	printed, err := s.run(Status())
	for _, says := range []string{"plan        none since the reset; generation 1 was the last\n", "nodes       none\n",
		"training    begins anew once nodes join, as somebody asked: the next job\n"} {
		if err != nil || !strings.Contains(printed, says) {
			t.Errorf("%v, expected %q in\n%s", err, says, printed)
		}
	}
	for _, stale := range []string{"snapshot", "silent", "change", "refused", "committed", "copies", "complete"} {
		if strings.Contains(printed, stale) {
			t.Errorf("%q stands in\n%s", stale, printed)
		}
	}
}

func TestAResetToASnapshotTellsThatAndTheSnapshot(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.serve("monitor", "negotiator", "planner", "restorer")
	s.say(events.SnapshotCompleted, "/restorer", "disk", &events.CompleteSnapshot{Tier: "disk", Step: 30, Plan: events.Digest(nil)})
	s.say(events.TrainingReset, "/negotiator", "c", &events.JobReset{Generation: 1, Reason: "longer", Snapshots: true})
	s.expectStatus("training    goes on from its newest snapshot once nodes join, as somebody asked: longer\n",
		"snapshot    disk: step 30 complete")
}

// It said for ever that the stop is pending.
func TestAStopThatIsDoneIsNoChangeUnderWay(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.serve("monitor", "negotiator", "planner", "restorer")
	s.say(events.Committed, "/negotiator", "g", &events.Commitment{Negotiation: "g", Generation: 1, PlanDigest: events.Digest(nil)})
	s.say(events.NegotiationOpened, "/negotiator", "g2", &events.Opening{Negotiation: "g2", Generation: 2, Stop: true,
		Changes: []events.Change{{Kind: events.ChangeLeave, Node: "n1"}}})
	s.say(events.SnapshotCompleted, "/restorer", "memory", &events.CompleteSnapshot{Tier: "memory", Step: 40, Plan: events.Digest(nil)})
	s.say(events.TrainingStopped, "/negotiator", "c", &events.JobStop{Generation: 1, Step: 40, Tier: "disk", Plan: events.Digest(nil)})
	s.say(events.Aborted, "/negotiator", "g2", &events.Abort{Negotiation: "g2", Generation: 2, Reason: "training has stopped"})
	printed, err := s.run(Status())
	if err != nil || strings.Contains(printed, "pending") || strings.Contains(printed, "leave of") || strings.Contains(printed, "memory") {
		t.Errorf("%v in\n%s", err, printed)
	}
}

func TestACompleteJobSaysHowItIsTrainedLonger(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.serve("monitor", "negotiator", "planner", "restorer")
	s.say(events.TrainingCompleted, "/negotiator", "c", &events.JobEnd{Generation: 1, Step: 40, Nodes: []string{"n1", "n2"}})
	s.expectStatus("to train it longer: reknit cluster reset, and start all scripts again with more steps, in each of which the model")
	s.say(events.SnapshotCompleted, "/restorer", "disk", &events.CompleteSnapshot{Tier: "disk", Step: 30, Plan: events.Digest(nil)})
	s.expectStatus("to train it longer: reknit cluster reset --from-snapshot, and start all scripts again with more steps: " +
		"they go on from step 30 (disk)")
}

// For half a minute after a retry that mended nothing, it advised to give up what the agents kept.
func TestNobodyIsToldToBeginAnewWhileAnAgentKeepsTheState(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.serve("monitor", "negotiator", "planner", "restorer")
	for _, node := range []string{"n1", "n2", "n3"} {
		s.say(events.NodeExited, "/node/"+node, node,
			&events.Exit{Node: node, Incarnation: "i", Reason: "exit status 1", Keeps: node != "n3"})
		s.say(events.NodeLost, "/monitor", node,
			&events.NodeState{Node: node, Incarnation: "i", Reason: "its trainer is gone: exit status 1", Step: 40, Proven: node == "n3"})
	}
	s.say(events.ClusterHeld, "/negotiator", "c", &events.Hold{Reason: "no node is left"})
	_, err := s.run(Status())
	if err == nil || !strings.Contains(err.Error(), "Leave the agents of n1, n2 running: they keep the state") ||
		strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
}

func TestNobodyIsToldToLeaveAnAgentRunningThatHasEnded(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.serve("monitor", "negotiator", "planner", "restorer")
	for _, node := range []string{"n1", "n2", "n3"} {
		exit := events.Exit{Node: node, Incarnation: "i", Reason: "exit status 1", Keeps: true}
		s.say(events.NodeExited, "/node/"+node, node, &exit)
		s.say(events.NodeLost, "/monitor", node, &events.NodeState{Node: node, Incarnation: "i", Reason: "its trainer is gone", Step: 40})
		if exit.Keeps, exit.Reason = false, "its agent ended"; node != "n2" {
			s.say(events.NodeExited, "/node/"+node, node, &exit)
		} else {
			s.say(events.LeaveRequested, "/user", node, &events.Leave{Node: node, Reason: "drained"})
		}
	}
	s.say(events.ClusterHeld, "/negotiator", "c", &events.Hold{Reason: "no node is left"})
	if _, err := s.run(Status()); err == nil || strings.Contains(err.Error(), "running") || !strings.Contains(err.Error(), "its agent ended") {
		t.Error(err)
	}
}

func TestAHeldStepTellsThatMendedScriptsAreStartedAgainBeforeTheRetry(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.serve("monitor", "negotiator", "planner", "restorer")
	s.beat("n1", "n2", "n3")
	s.say(events.ClusterHeld, "/negotiator", "c", &events.Hold{Reason: "step 30 is held",
		Step: &events.HeldStep{Hold: 1, Step: 30, Samples: events.Samples{First: 360, Count: 12}, Died: []string{"n1", "n2"}}})
	printed, err := s.run(Status())
	if err == nil || !strings.Contains(err.Error(), "the cluster holds. A script that you mended must be started again before reknit step retry") {
		t.Error(err)
	}
	if !strings.Contains(printed, "\nheld        step 30 is held\n") || strings.Count(printed+err.Error(), "step 30 is held") != 1 {
		t.Errorf("%v in\n%s", err, printed)
	}
}

// One was told to be lost and to join, because another process had its name: its agent had started its script again.
func TestWhoAsksForItsPlaceAgainIsOneNode(t *testing.T) {
	s := newSite(t)
	s.plan()
	s.serve("monitor", "negotiator", "planner", "restorer")
	s.say(events.NodeLost, "/monitor", "n2", &events.NodeState{Node: "n2", Incarnation: "i", Reason: "its trainer is gone", Step: 30})
	s.say(events.JoinRequested, "/node/n2", "n2", &events.Join{Node: "n2", Incarnation: "j", Address: "n2:1", MemoryBytes: 1 << 30,
		Trained: &events.Trained{Generation: 1, Step: 30}, Job: job})
	s.say(events.ClusterHeld, "/negotiator", "c", &events.Hold{Reason: "step 30 is held",
		Step: &events.HeldStep{Hold: 1, Step: 30, Samples: events.Samples{First: 360, Count: 12}, Died: []string{"n1", "n2"}}})
	s.beat("n1", "n3")
	s.beatWith(func(step uint64) events.Pulse { return events.Pulse{Incarnation: "j", Number: step} }, "n2")
	printed, err := s.run(Status())
	if err == nil || strings.Contains(printed+err.Error(), "lost") || !strings.Contains(printed, "\nnodes       1 joining, 1 spare, 1 waiting\n") {
		t.Errorf("%v in\n%s", err, printed)
	}
	printed, err = s.run(Nodes())
	if says := "n2 is joining: it asked for its place again, with what it has trained\n"; err != nil || !strings.Contains(printed, says) ||
		strings.Count(printed, "\nn2 ") != 2 || !strings.Contains(printed, "joining   pipeline 0, stage 1") {
		t.Errorf("%v, and\n%s", err, printed)
	}
}

// Whoever had trained the job before was said to ask for a place for as long as the log tells of it, and to stand at its last step.
func TestWhoTrainedTheJobBeforeIsInNoLaterOne(t *testing.T) {
	s := newSite(t)
	s.join("n9", "i")
	s.say(events.TrainingDigested, "/node/n1", "n1", &events.Digests{Node: "n1", Generation: 7, Step: 400, Final: true})
	s.say(events.TrainingStopped, "/negotiator", "c", &events.JobStop{Generation: 7, Step: 40, Tier: "disk", Plan: events.Digest(nil)})
	s.plan()
	s.serve("monitor", "negotiator", "planner", "restorer")
	s.beat("n1", "n2", "n3")
	if printed, err := s.run(Status()); err != nil || strings.Contains(printed, "joining") {
		t.Errorf("%v, and\n%s", err, printed)
	}
	s.say(events.TrainingStopped, "/negotiator", "c", &events.JobStop{Generation: 1, Step: 57, Tier: "disk", Plan: events.Digest(nil)})
	nodes, err := answered[[]overlay.Node](s, Nodes())
	if err != nil || len(nodes) != 3 || nodes[0].State != overlay.Ended {
		t.Errorf("%v, %+v", err, nodes)
	}
}
