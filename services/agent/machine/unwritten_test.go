package machine

import (
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/retention"
)

// cannotWrite tells that a part of a step was not written, and returns what is said of that; nil for nothing.
func (n *node) cannotWrite(step uint64, tier, finding string) *events.SnapshotFailure {
	n.t.Helper()
	id := retention.ID{Step: step, Plan: events.Digest(nil)}
	event := n.machine.Unwritten(now, tier, id, []events.Range{{End: 2}}, finding, "no room")
	if event.Kind == "" {
		return nil
	}
	failure, err := events.Open[events.SnapshotFailure](event)
	if err != nil {
		n.t.Fatal(err)
	}
	return &failure
}

func TestWhatKeepsSnapshotsFromBeingWrittenIsToldOnceUntilTheyAreWrittenAgain(t *testing.T) {
	n := trainingNode(t, 11, func(settings *Settings) { settings.Tiers = []Tier{{MemoryTier, 2}, {DiskTier, 4}, {RemoteTier, 8}} })
	writes := func(step uint64) bool {
		return n.machine.Resumes(now, DiskTier, retention.ID{Step: step, Plan: events.Digest(nil)}, []events.Range{{End: 2}}).Kind != ""
	}
	if writes(4) || n.cannotWrite(4, MemoryTier, FullFinding) != nil {
		t.Error("it tells of a tier that never failed, or ends with its process")
	}
	failure := n.cannotWrite(8, DiskTier, FullFinding)
	if failure == nil || failure.Finding != FullFinding || failure.Reason != "no room" || len(failure.Tiers) != 2 {
		t.Fatalf("it tells %+v", failure)
	}
	if n.cannotWrite(12, DiskTier, FullFinding) != nil {
		t.Error("it tells the same of each snapshot")
	}
	if n.cannotWrite(12, RemoteTier, FullFinding) == nil || n.cannotWrite(16, DiskTier, ReadOnlyFinding) == nil {
		t.Error("it does not tell of another tier, or another finding")
	}
	if !writes(20) || writes(24) {
		t.Error("it does not tell once that it writes again")
	}
	if n.cannotWrite(28, DiskTier, ReadOnlyFinding) == nil {
		t.Error("it does not tell that it fails again")
	}
	n.machine.Join(now, "i2", true)
	if n.cannotWrite(32, DiskTier, ReadOnlyFinding) == nil {
		t.Error("it does not tell it after it joined again: who hears of that forgets what an earlier incarnation told")
	}
}

func TestOfTheSnapshotAtWhichAllStopItIsToldAlways(t *testing.T) {
	n := trainingNode(t, 11, keepsSnapshots)
	n.cannotWrite(8, DiskTier, FullFinding)
	n.hears(events.NegotiationOpened, stopOpening())
	n.hears(events.Prepared, &events.Preparation{Negotiation: "g4", Generation: 4})
	n.hears(events.SnapshotRequested, &events.SnapshotRequest{Negotiation: "g4", Step: 14})
	if n.cannotWrite(14, DiskTier, FullFinding) == nil {
		t.Error("all wait for a snapshot of which it does not tell that it cannot write it")
	}
}

func TestWhatIsInNoLogIsToldOfTheNextSnapshot(t *testing.T) {
	n := trainingNode(t, 11, keepsSnapshots)
	id, units := retention.ID{Step: 8, Plan: events.Digest(nil)}, []events.Range{{End: 2}}
	n.machine.Untold(n.machine.Unwritten(now, DiskTier, id, units, FullFinding, "no room"))
	if n.cannotWrite(12, DiskTier, FullFinding) == nil {
		t.Error("nobody hears that it cannot write")
	}
	n.machine.Untold(n.machine.Resumes(now, DiskTier, id, units))
	if n.machine.Resumes(now, DiskTier, id, units).Kind == "" {
		t.Error("nobody hears that it writes again")
	}
	if n.machine.Resumes(now, DiskTier, id, units).Kind != "" {
		t.Error("it tells twice that it writes again")
	}
}
