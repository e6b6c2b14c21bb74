package machine

import (
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// stopOpening opens a negotiation after which nobody stays.
func stopOpening() *events.Opening {
	return &events.Opening{
		Negotiation: "g4", Generation: 4, Members: members("n1", "n2"), Stop: true,
		Changes: []events.Change{{Kind: events.ChangeLeave, Node: "n1"}, {Kind: events.ChangeLeave, Node: "n2"}},
	}
}

func TestAtAStopTheStepThatIsAskedForIsWrittenToWhatOutlivesTheProcess(t *testing.T) {
	n := trainingNode(t, 11, func(settings *Settings) { settings.Tiers = []Tier{{MemoryTier, 2}, {DiskTier, 100}} })
	n.hears(events.NegotiationOpened, stopOpening())
	n.hears(events.Prepared, &events.Preparation{Negotiation: "g4", Generation: 4})
	n.hears(events.SnapshotRequested, &events.SnapshotRequest{Negotiation: "g4", Step: 14})
	n.stands(13)
	n.told = nil
	n.stands(14)
	n.expect("capture at 14: memory [{0 2}]", "say training.digested", "capture at 14: disk [{0 2}]")
	n.hears(events.TrainingStopped, &events.JobStop{Generation: 3, Step: 14, Tier: DiskTier, Plan: events.Digest(nil)})
	if len(n.told) != 1 || !strings.Contains(n.told[0], "training has stopped after step 14") {
		t.Errorf("it does %q: expected its end, with the step", n.told)
	}
}

func TestWhoConsentsToAStopTellsToWhichTiersTheLastSnapshotIsWritten(t *testing.T) {
	for _, stops := range []bool{true, false} {
		n := trainingNode(t, 11, func(settings *Settings) { settings.Tiers = []Tier{{MemoryTier, 2}, {DiskTier, 9}, {RemoteTier, 9}} })
		opening := stopOpening()
		opening.Stop = stops
		n.hears(events.NegotiationOpened, opening)
		if told := strings.Join(n.told, "\n"); strings.Contains(told, ", writes [disk remote]") != stops {
			t.Errorf("stop %t: it does %q", stops, told)
		}
	}
}

func TestWhoseLossIsNotFiniteAnyMoreAtTheLastStepSaysThatItWritesNoSnapshotOfIt(t *testing.T) {
	n := trainingNode(t, 11, keepsSnapshots)
	n.hears(events.NegotiationOpened, stopOpening())
	n.hears(events.Prepared, &events.Preparation{Negotiation: "g4", Generation: 4})
	n.hears(events.SnapshotRequested, &events.SnapshotRequest{Negotiation: "g4", Step: 14})
	n.stands(13)
	n.machine.Loss(14, false)
	n.do(n.machine.Completed(now, 14, 1))
	n.told = nil
	n.stands(14)
	n.expect("say training.digested", "say snapshot.failed: "+n.machine.stopsDiverged())
}

func TestWhoIsBehindWhereTrainingStopsSaysOfWhichStepItsModelIs(t *testing.T) {
	n := trainingNode(t, 11, keepsSnapshots)
	n.hears(events.TrainingStopped, &events.JobStop{Generation: 3, Step: 14, Tier: DiskTier, Plan: events.Digest(nil)})
	if told := strings.Join(n.told, "\n"); !strings.Contains(told, "its model is that of step 11") {
		t.Errorf("it does %q", told)
	}
}

func TestWhoseScriptKeepsItsOwnStateSaysOfNoStepWhereTrainingStops(t *testing.T) {
	n := trainingNode(t, 11)
	n.hears(events.TrainingStopped, &events.JobStop{Generation: 3, Step: 14, Plan: events.Digest(nil)})
	if told := strings.Join(n.told, "\n"); !strings.Contains(told, "--unchanged") || strings.Contains(told, "step 11") {
		t.Errorf("it does %q", told)
	}
}

func TestWhoseSnapshotsEndWithItsProcessObjectsToAStop(t *testing.T) {
	n := trainingNode(t, 11, func(settings *Settings) { settings.Tiers = []Tier{{MemoryTier, 2}} })
	n.hears(events.NegotiationOpened, stopOpening())
	if told := strings.Join(n.told, "\n"); !strings.Contains(told, "negotiation.consented g4 false") {
		t.Errorf("it does %q: expected an objection", told)
	}
}

func TestWhoseScriptKeepsItsOwnStateStopsWithoutASnapshot(t *testing.T) {
	n := trainingNode(t, 11, func(settings *Settings) {
		settings.Job.Kind, settings.Job.Layers = events.DataParallel, []events.LayerProfile{{ParameterBytes: 1}}
	})
	n.hears(events.NegotiationOpened, stopOpening())
	if told := strings.Join(n.told, "\n"); !strings.Contains(told, "negotiation.consented g4 true") {
		t.Errorf("it does %q: expected that it consents", told)
	}
}

func TestAJobWhoseLossIsNotFiniteIsNotStoppedWithASnapshotToGoOnFrom(t *testing.T) {
	n := trainingNode(t, 11, keepsSnapshots)
	n.completes(12, false)
	n.told = nil
	n.hears(events.NegotiationOpened, stopOpening())
	if told := strings.Join(n.told, "\n"); !strings.Contains(told, "negotiation.consented g4 false") {
		t.Errorf("it does %q: expected an objection", told)
	}
	if says := n.machine.stopsDiverged(); !strings.Contains(says, "not finite since step 12") {
		t.Errorf("it says %q: expected since which step", says)
	}
}

func TestWhoJoinsWithTheStateOfTrainingThatWasStoppedEndsAsTheOthersDid(t *testing.T) {
	n := newNode(t)
	n.hears(events.MembershipRefused, &events.Refusal{
		Node: "n1", Incarnation: "i1", Refused: events.ChangeJoin, Reason: "training has stopped after step 14", Stopped: true,
	})
	n.expect("end left=true training has stopped after step 14")
}
