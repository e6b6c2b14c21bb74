package agent

import (
	"slices"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/retention"
	"github.com/reknit/reknit/services/agent/snapshots"
)

// trained is a unit in memory that its trainer changes as soon as it may go on.
type trained struct {
	replica
	unit []byte
}

func (s *trained) Export(int, uint64) ([]byte, error) { return s.unit, nil }

func (s *trained) Still() (release func() error) {
	return func() error {
		copy(s.unit, "after")
		return nil
	}
}

func TestATrainerGoesOnOnlyOnceItsUnitsAreCopiedForASnapshot(t *testing.T) {
	settings := snapshots.Settings{Folder: t.TempDir(), DiskEvery: 1, Keep: 2, MaxBytes: 1 << 20}
	job := events.Job{Digest: events.Digest([]byte("job")), Layers: make([]events.LayerProfile, 1)}
	taken, err := snapshots.Open(t.Context(), settings, snapshots.Owner{Cluster: "c", Node: "n1", Job: job})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(taken.Close)
	s := &Session{snapshots: taken}
	plan := &events.Plan{Generation: 1, Nodes: []events.Member{{Node: "n1"}}}
	task := machine.Capture{Step: 4, Plan: plan, Digest: events.Digest(nil),
		Shares: []machine.Share{{Tier: machine.DiskTier, Units: []events.Range{{End: 1}}}}}
	s.capture(&trained{unit: []byte("before")}, task)
	s.untilCopied()
	for begun := time.Now(); len(taken.List(t.Context(), nil)) == 0; {
		if time.Since(begun) > patience {
			t.Fatal("no snapshot is written")
		}
	}
	if unit, err := taken.Read(t.Context(), 4, events.Digest(nil), 0); err != nil || string(unit) != "before" {
		t.Errorf("the snapshot has %q, %v: expected what was trained to step 4", unit, err)
	}
}

// A snapshot that nobody is told of is complete for nobody, and each node removes it as it likes.
func TestTheClusterIsToldOfEachPartOfASnapshotOnceItIsWritten(t *testing.T) {
	h := newHub(t)
	h.stepTime = time.Millisecond
	h.keeps = snapshots.Settings{Folder: t.TempDir(), DiskEvery: 2, Keep: 2, MaxBytes: 1 << 20}
	members := []events.Member{h.join("n1")}
	h.trainOn(h.sessions[0], &replica{shelfOf: shelfOf{layer: []byte("layer6")}})
	plan := replicas(1, "", members, "n1")
	h.say(events.PlanCommitted, "1", &plan)
	part := await[events.SnapshotPart](h, events.SnapshotWritten)
	whole := []events.Range{{End: 1}}
	if part.Node != "n1" || part.Tier != machine.DiskTier || part.Step == 0 || part.Step%2 != 0 || !slices.Equal(part.Units, whole) {
		t.Errorf("it tells %+v", part)
	}
}

// Its disk was full: not to know was to give up the newest complete snapshot for a newer one that never was.
func TestAnAgentThatIsStartedAgainKnowsWhichSnapshotWasCompleteLast(t *testing.T) {
	h := newHub(t)
	h.keeps = snapshots.Settings{Folder: t.TempDir(), DiskEvery: 2, Keep: 2, MaxBytes: 1 << 20}
	h.speaker.Source = "/restorer"
	last := retention.ID{Step: 16, Plan: events.Digest(nil)}
	h.say(events.SnapshotCompleted, machine.DiskTier, &events.CompleteSnapshot{Tier: machine.DiskTier, Step: last.Step, Plan: last.Plan})
	h.join("n1")
	if fate := h.sessions[0].fateOf(machine.DiskTier, last); fate != machine.Complete {
		t.Errorf("the fate of the last complete snapshot is %d to it", fate)
	}
}

func TestWhoWantsToRemoveAPartWaitsForTheLogToSayThatItCountsNoMore(t *testing.T) {
	h := newHub(t)
	h.keeps = snapshots.Settings{Folder: t.TempDir(), DiskEvery: 2, Keep: 2, MaxBytes: 1 << 20}
	h.join("n1")
	id, units := retention.ID{Step: 16, Plan: events.Digest(nil)}, []events.Range{{End: 1}}
	fate := make(chan machine.Fate)
	go func() { fate <- h.sessions[0].withdraw(t.Context(), machine.DiskTier, id, units) }()
	asked := await[events.SnapshotPart](h, events.WithdrawalRequested)
	if asked.Node != "n1" || asked.Step != id.Step || !slices.Equal(asked.Units, units) {
		t.Errorf("it asks for %+v", asked)
	}
	h.speaker.Source = "/restorer"
	h.say(events.SnapshotWithdrawn, "n1", &asked)
	if got := <-fate; got != machine.Withdrawn {
		t.Errorf("its fate is %d", got)
	}
}
