package invariants

import (
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// goodStory tells of three nodes: n3 is lost, n4 joins and receives its layers, n1 and n4 cut their link, n2 leaves.
func goodStory(t *testing.T) *story {
	s := &story{t: t}
	all, front, back := events.Range{First: 0, End: 4}, events.Range{First: 0, End: 2}, events.Range{First: 2, End: 4}
	s.say("/negotiator", events.LeaseTaken, "negotiator", &events.Lease{Service: "negotiator", Instance: "a"}, "")
	for _, node := range []string{"n1", "n2"} {
		s.join(node)
	}
	cause := s.join("n3")
	cause = s.open("g1", 1, cause, events.Change{Kind: events.ChangeJoin, Node: "n3"}, "n1", "n2", "n3")
	for _, node := range []string{"n1", "n2", "n3"} {
		s.consent("g1", node, cause, all, 0)
	}
	s.commit("g1", s.plan(1, 0, []events.Stage{stage("n1", 0, 2), stage("n2", 2, 4)}, []events.Stage{stage("n3", 0, 4)}),
		cause)

	lost := s.say("/monitor", events.NodeLost, "n3", &events.NodeState{Node: "n3", Incarnation: "n3-1", Reason: "silent"},
		"")
	cause = s.open("g2", 2, lost, events.Change{Kind: events.ChangeFailure, Node: "n3"}, "n1", "n2")
	s.consent("g2", "n1", cause, front, 5, 4)
	cause = s.consent("g2", "n2", cause, back, 4, 3)
	s.commit("g2", s.plan(2, 4, []events.Stage{stage("n1", 0, 2), stage("n2", 2, 4)}), cause)

	join := s.join("n4")
	cause = s.open("g3", 3, join, events.Change{Kind: events.ChangeJoin, Node: "n4"}, "n1", "n2", "n4")
	s.say("/negotiator", events.Aborted, "g3", &events.Abort{Negotiation: "g3", Generation: 3, Reason: "n2 was slow"},
		cause)
	cause = s.open("g3b", 3, join, events.Change{Kind: events.ChangeJoin, Node: "n4"}, "n1", "n2", "n4")
	s.consent("g3b", "n4", cause, all)
	s.consent("g3b", "n1", cause, front, 9)
	cause = s.consent("g3b", "n2", cause, back, 9)
	cause = s.start("g3b", s.plan(3, 0, []events.Stage{stage("n1", 0, 2), stage("n2", 2, 4)}, []events.Stage{stage("n4", 0, 4)}), "n1", "n4", cause)
	cause = s.node("n4", events.PreCopyCaughtUp, "n4", &events.CaughtUp{Negotiation: "g3b", Node: "n4", Step: 8}, cause)
	s.node("n1", events.Promised, "n1", &events.Promise{Negotiation: "g3b", Node: "n1", StopStep: 9}, cause)
	for layer, from := range []string{"n1", "n1", "n2", "n2"} {
		cause = s.move("g3b", layer, 9, from, "n4")
	}
	s.commit("g3b", s.plan(3, 9, []events.Stage{stage("n1", 0, 2), stage("n2", 2, 4)}, []events.Stage{stage("n4", 0, 4)}),
		cause)

	request := s.say("/user", events.DisconnectRequested, "n1", &events.LinkRequest{From: "n1", To: "n4"}, "")
	leave := s.node("n2", events.LeaveRequested, "n2", &events.Leave{Node: "n2"}, "")
	s.open("g4", 4, request, events.Change{Kind: events.ChangeDisconnect, Node: "n1", Peer: "n4"}, "n1", "n2", "n4")
	s.say("/negotiator", events.Aborted, "g4", &events.Abort{Negotiation: "g4", Generation: 4, Superseded: true}, leave)
	cause = s.open("g4b", 4, leave, events.Change{Kind: events.ChangeLeave, Node: "n2"}, "n1", "n2", "n4")
	s.consent("g4b", "n1", cause, front, 12)
	s.consent("g4b", "n2", cause, back, 12)
	s.consent("g4b", "n4", cause, all, 12)
	s.move("g4b", 2, 12, "n2", "n1")
	cause = s.move("g4b", 3, 12, "n4", "n1")
	retell(s, lastOf(s, events.NegotiationOpened), func(opening *events.Opening) {
		opening.Changes = append(opening.Changes,
			events.Change{Kind: events.ChangeDisconnect, Node: "n1", Peer: "n4", Cause: request})
	})
	s.commit("g4b", s.plan(4, 12, []events.Stage{stage("n1", 0, 4)}, []events.Stage{stage("n4", 0, 4)}), cause)
	s.digested("n1", 20, 0, 4)
	s.digested("n4", 20, 0, 4)
	return s
}

func TestAGoodLogPasses(t *testing.T) {
	for _, violation := range goodStory(t).read().Check() {
		t.Error(violation)
	}
}

func TestTheEndOfTheLogMayCutAnAnswerOff(t *testing.T) {
	s := goodStory(t)
	s.join("n9")
	for _, violation := range s.read().Check() {
		t.Error("not heard yet:", violation)
	}
	s.open("g5", 5, idAt(s, len(s.lines)-1), events.Change{Kind: events.ChangeJoin, Node: "n9"}, "n1", "n4", "n9")
	for _, violation := range s.read().Check() {
		t.Error("under way:", violation)
	}
}

// A simulated run was judged between a commit and its plan, and the request that they answered was taken for forgotten.
func TestALogIsGoodWhereverItEnds(t *testing.T) {
	whole := goodStory(t)
	for end := range whole.lines {
		s := *whole
		s.lines = whole.lines[:end]
		for _, violation := range s.read().Check() {
			t.Errorf("the first %d lines: %v", end, violation)
		}
	}
}

func TestAUnitAboutWhichClaimsDifferMayBeLost(t *testing.T) {
	s := goodStory(t)
	retell(s, firstOf(s, events.Aborted), func(abort *events.Abort) { abort.Reason = nobodyHolds })
	s.insert(firstOf(s, events.Aborted), func(s *story) {
		s.claim("n2", "n2-2", contentOf(2, 9))
		s.claim("n4", "n4-2", contentOf(3, 9))
	})
	for _, violation := range lost.Check(s.read()) {
		t.Error(violation)
	}
}

func TestAUnitMayBeLostOfWhichSomebodyHasAStepThatTheOthersHavePassed(t *testing.T) {
	s := goodStory(t)
	retell(s, firstOf(s, events.Aborted), func(abort *events.Abort) { abort.Reason = nobodyHolds })
	s.insert(firstOf(s, events.Aborted), func(s *story) {
		s.consent("g3", "n2", "", events.Range{First: 2, End: 4}, 9)
		s.claim("n1", "n1-2", contentOf(0, 20))
		retell(s, len(s.lines)-1, func(consent *events.Consent) { consent.Claims[0].Unit, consent.Claims[0].Step = 0, 20 })
	})
	for _, violation := range lost.Check(s.read()) {
		t.Error(violation)
	}
}

// Ten seeds of 100,000 (3204 was the first) went on from the newest snapshot by what a third reader gave, where two had differed.
func TestWhatReadersThatDifferGaveOthersMayRead(t *testing.T) {
	s := goodStory(t)
	s.differ(1, "n1", "n2")
	for _, violation := range Stored.Check(s.read()) {
		t.Error(violation)
	}
}

// Training had come by its step again under a plan that nobody lived to tell of (seed 15682).
func TestASnapshotThatWasUndoneStaysUndone(t *testing.T) {
	s := goodStory(t)
	var first string
	s.replan(2, func(p *events.Plan) { first = p.Parent })
	s.store(first, 3, 5)
	s.replan(4, func(p *events.Plan) { p.Snapshot, p.ResumeStep = first, 3 })
	for _, violation := range Stored.Check(s.read()) {
		t.Error(violation)
	}
	s.replan(2, func(p *events.Plan) { p.ResumeStep = 5 })
	if len(Stored.Check(s.read())) == 0 {
		t.Error("training went on from step 5, and goes back to step 3 though all can read step 5")
	}
}

func TestADigestOfBeforeTrainingBeginsIsOfNoStepThatIsTrainedSince(t *testing.T) {
	for begins, of := range map[string]func(*story, events.Kind) int{"in the next log": firstOf, "anew": lastOf} {
		s := goodStory(t)
		opened := of(s, events.NegotiationOpened)
		retell(s, opened, func(opening *events.Opening) { opening.Begins = opening.Generation > 1 })
		s.insert(opened, func(s *story) {
			s.digested("n1", 20, 2, 3)
			retell(s, len(s.lines)-1, func(d *events.Digests) { d.Units[0].Digest = events.Digest(nil) })
		})
		for _, violation := range OneDigest.Check(s.read()) {
			t.Errorf("training begins %s: %v", begins, violation)
		}
	}
}

func TestADigestOfBeforeCountsWhereTrainingDoesNotBegin(t *testing.T) {
	s := goodStory(t)
	aborted := firstOf(s, events.Aborted)
	opened := slices.DeleteFunc(positions(s, events.NegotiationOpened), func(at int) bool { return at > aborted })
	at := opened[len(opened)-1]
	retell(s, at, func(opening *events.Opening) { opening.Begins = true })
	s.insert(at, func(s *story) {
		s.digested("n1", 20, 2, 3)
		retell(s, len(s.lines)-1, func(d *events.Digests) { d.Units[0].Digest = events.Digest(nil) })
	})
	if len(OneDigest.Check(s.read())) == 0 {
		t.Error("what was told before a beginning that was given up counts no more")
	}
}

func TestAWipedLogBeginsBehindThePlansThatNodesToldOf(t *testing.T) {
	for _, told := range []bool{true, false} {
		s := goodStory(t)
		for _, at := range positions(s, events.NegotiationOpened) {
			retell(s, at, func(opening *events.Opening) { opening.Begins = told && opening.Generation == 2 })
		}
		s.remove(planAt(s, 1))
		s.remove(firstOf(s, events.Committed))
		if found := chained.Check(s.read()); (len(found) == 0) != told {
			t.Errorf("nodes told of plan 1: %v; found %v", told, found)
		}
	}
}

func TestReplicasThatAreOnlyAlikeMayDiffer(t *testing.T) {
	s := goodStory(t)
	faults["replicas disagree"].plant(s)
	for _, at := range positions(s, events.JoinRequested) {
		retell(s, at, func(join *events.Join) { join.Job.Replicas = events.AlikeReplicas })
	}
	for _, violation := range OneDigest.Check(s.read()) {
		t.Error(violation)
	}
}

func TestWhatIsQuarantinedHasNoOtherEffect(t *testing.T) {
	s := goodStory(t)
	s.wish("n1")
	bad := s.lines[len(s.lines)-1].Sequence
	s.replace(len(s.lines)-1, "/node/n1", "/node/n9")
	s.say("/negotiator", events.EventRefused, "0", &events.Quarantine{Reason: "wrong-source"}, "")
	s.replace(len(s.lines)-1, `"subject":"0"`, `"subject":"`+itoa(bad)+`"`)
	s.lines[len(s.lines)-1].Subject = events.EventSubject(cluster, events.EventRefused, itoa(bad))
	for _, violation := range s.read().Check() {
		t.Error(violation)
	}
}

func TestALineThatIsNoMessageIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"{}\n": "line 1: stream: expected REKNIT_EVENTS", "\n": "line 1", "{\"stream\":\"REKNIT_EVENTS\"}\nx": "line 2",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, expected %q", text, err, want)
		}
	}
}
