package machine

import (
	"fmt"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/retention"
)

// Findings: causes that keep a part of a snapshot from being written.
const (
	FullFinding     = "full" // its store
	ReadOnlyFinding = "read-only"
	RefusedFinding  = "refused" // keys or permissions do not allow it
	SlowFinding     = "slow"
	OtherFinding    = "other"
)

const unknownFinding = "unknown" // of a tier of which nobody knows what the cluster heard last

// Unwritten returns what tells that this node could not write its part of a snapshot to a tier that outlives its process, and why. The
// event has no kind where the cluster knows: a finding is told once until the node writes there again, and of the snapshot at which all
// stop always, for all wait for it.
func (m *Machine) Unwritten(
	now time.Time, tier string, id retention.ID, units []events.Range, finding, reason string,
) (failed events.Event) {
	isLast := m.negotiation != nil && m.negotiation.last.isOf(id.Step)
	if tier == MemoryTier || m.snapshots.failing[tier] == finding && !isLast {
		return events.Event{}
	}
	if m.snapshots.failing == nil {
		m.snapshots.failing = map[string]string{}
	}
	m.snapshots.failing[tier] = finding
	said := fmt.Sprintf("%s-%s-%d-%s-%s-%t", m.incarnation, tier, id.Step, id.Plan, finding, isLast)
	return m.speaker.First(now, said, events.SnapshotFailed, m.settings.Node, &events.SnapshotFailure{
		Node: m.settings.Node, Tier: tier, Step: id.Step, Plan: id.Plan, Units: units, Finding: finding,
		Reason: events.Brief(reason), Tiers: m.lasting(),
	})
}

// Resumes returns what tells that this node writes snapshots to a tier again; the event has no kind where it never said that it could not.
func (m *Machine) Resumes(now time.Time, tier string, id retention.ID, units []events.Range) (resumed events.Event) {
	if m.snapshots.failing[tier] == "" {
		return events.Event{}
	}
	delete(m.snapshots.failing, tier)
	said := fmt.Sprintf("%s-%s-%d-%s", m.incarnation, tier, id.Step, id.Plan)
	return m.speaker.First(now, said, events.SnapshotResumed, m.settings.Node,
		&events.SnapshotPart{Node: m.settings.Node, Tier: tier, Step: id.Step, Plan: id.Plan, Units: units})
}

// Untold takes that what Unwritten or Resumes returned is in no log. The next snapshot in that tier is told of, whatever becomes of it:
// the log may have something else of the tier that was told before.
func (m *Machine) Untold(event events.Event) {
	var tier string
	if failed, err := events.Open[events.SnapshotFailure](event); err == nil {
		tier = failed.Tier
	} else if resumed, err := events.Open[events.SnapshotPart](event); err == nil {
		tier = resumed.Tier
	}
	if m.snapshots.failing == nil {
		m.snapshots.failing = map[string]string{}
	}
	m.snapshots.failing[tier] = unknownFinding
}
