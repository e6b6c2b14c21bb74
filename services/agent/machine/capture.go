package machine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/retention"
)

// The tiers that snapshots go to.
const (
	MemoryTier = "memory" // this node's, and a neighbour's: read by either
	DiskTier   = "disk"   // read by this node only
	RemoteTier = "remote" // read by all nodes
)

// Tier is a place for snapshots.
type Tier struct {
	Name  string
	Every uint64 // steps between two snapshots
}

// Share is what a node writes of a snapshot to a tier.
type Share struct {
	Tier  string
	Units []events.Range
	To    string // a neighbour that keeps them, too; empty for none
}

// snapshots is what the cluster says of those that its nodes wrote.
type snapshots struct {
	complete map[string][]retention.ID // by tier, those told last first, at most mostTold
	// withdrawn are those of which this node's part counts no more, in the same way.
	withdrawn map[string][]retention.ID
	// silent are nodes that did not write their turn of units under a plan, which others write since.
	silent map[string]bool
	under  string // digest of that plan
	last   uint64 // step of which that was told last

	due     retention.ID      // that was captured last, where there was a tier for it
	failing map[string]string // by tier: what keeps this node from writing to it, as it told
}

// mostTold is more than any tier keeps.
const mostTold = events.MostSnapshots

// captureDue has the units captured that are due at the step which the trainer has just completed. A node whose step is
// to be abandoned has more pressing things to do. A trainer that gave up the next step stands at the same one again: who writes what may be
// another then, and a part is told once (seed 98219).
func (m *Machine) captureDue() {
	if m.plan == nil || m.awaited > 0 || m.done <= m.plan.plan.ResumeStep {
		return
	}
	due := retention.ID{Step: m.done, Plan: m.plan.digest}
	if m.snapshots.due == due {
		return
	}
	m.snapshots.due = due
	m.capture(false, func(tier Tier) bool { return m.done%tier.Every == 0 })
}

// capture has the units captured that this node writes to the tiers in which a snapshot is due. None is taken
// of a state whose loss is not finite: it would take the place of the last one that is worth to go back to, which stays the newest.
func (m *Machine) capture(last bool, isDue func(Tier) bool) {
	if m.diverged > 0 {
		return
	}
	var shares []Share
	for _, tier := range m.settings.Tiers {
		if !isDue(tier) {
			continue // who writes what is counted over all nodes, too long for every step
		}
		if units := m.shareOf(tier); len(units) > 0 {
			share := Share{Tier: tier.Name, Units: units}
			if tier.Name == MemoryTier {
				share.To = m.neighbour()
			}
			shares = append(shares, share)
		}
	}
	if len(shares) > 0 {
		m.do(Capture{m.done, m.plan.plan, m.plan.digest, m.plan.logged, shares, last, maps.Clone(m.snapshots.complete)})
	}
}

// shareOf returns what this node writes to a tier: all its units to one that only it reads, and of a unit with several
// holders the one whose turn it is writes it to a tier that all read.
func (m *Machine) shareOf(tier Tier) []events.Range {
	own := m.plan.plan.UnitsOf(m.settings.Node)
	if tier.Name != RemoteTier {
		return own
	}
	writers := m.writers()
	var dealt []events.Range
	for unit := range events.Each(own) {
		if writers[unit] == m.settings.Node {
			dealt = append(dealt, events.Range{First: unit, End: unit + 1})
		}
	}
	return dealt
}

// writers returns who writes each unit to the tier that all read: its holders in turn, without those that were silent when
// it was theirs, unless all were. O(units x holders).
func (m *Machine) writers() map[int]string {
	plan := m.plan.plan
	all, speak := map[int][]string{}, map[int][]string{}
	for _, member := range plan.Nodes {
		for unit := range events.Each(plan.UnitsOf(member.Node)) {
			all[unit] = append(all[unit], member.Node)
			if m.snapshots.under != m.plan.digest || !m.snapshots.silent[member.Node] {
				speak[unit] = append(speak[unit], member.Node)
			}
		}
	}
	writers := make(map[int]string, len(all))
	for unit, holders := range all {
		if len(speak[unit]) > 0 {
			holders = speak[unit]
		}
		writers[unit] = holders[unit%len(holders)]
	}
	return writers
}

// Written returns what tells that this node's part of a snapshot is written to a tier to its end.
func (m *Machine) Written(now time.Time, tier string, id retention.ID, units []events.Range) events.Event {
	reason := fmt.Sprintf("%s-%s-%d-%s", m.incarnation, tier, id.Step, id.Plan)
	return m.speaker.First(now, reason, events.SnapshotWritten, m.settings.Node,
		&events.SnapshotPart{Node: m.settings.Node, Tier: tier, Step: id.Step, Plan: id.Plan, Units: units})
}

// Withdraws returns what asks the cluster to count this node's part of a snapshot no more, so that it may be removed. Fate tells what comes
// of it.
func (m *Machine) Withdraws(now time.Time, tier string, id retention.ID, units []events.Range) events.Event {
	reason := fmt.Sprintf("%s-%s-%d-%s", m.incarnation, tier, id.Step, id.Plan)
	return m.speaker.First(now, reason, events.WithdrawalRequested, m.settings.Node,
		&events.SnapshotPart{Node: m.settings.Node, Tier: tier, Step: id.Step, Plan: id.Plan, Units: units})
}

// Fate is what the log said of this node's part of a snapshot.
type Fate int

const (
	Undecided Fate = iota // nothing: the snapshot may be complete at any time
	Complete              // the snapshot is complete
	Withdrawn             // the part counts no more: without it the snapshot is never complete
)

// Fate tells what the log said of this node's part of a snapshot in a tier.
func (m *Machine) Fate(tier string, id retention.ID) Fate {
	switch {
	case slices.Contains(m.snapshots.complete[tier], id):
		return Complete
	case slices.Contains(m.snapshots.withdrawn[tier], id):
		return Withdrawn
	}
	return Undecided
}

// snapshotCompleted keeps which snapshots are complete: no part of the newest one is removed.
func (m *Machine) snapshotCompleted(_ events.Event, snapshot events.CompleteSnapshot) {
	m.snapshots.complete = noting(m.snapshots.complete, snapshot.Tier, retention.ID{Step: snapshot.Step, Plan: snapshot.Plan})
}

// snapshotWithdrawn keeps which parts this node may remove.
func (m *Machine) snapshotWithdrawn(_ events.Event, part events.SnapshotPart) {
	if part.Node == m.settings.Node {
		m.snapshots.withdrawn = noting(m.snapshots.withdrawn, part.Tier, retention.ID{Step: part.Step, Plan: part.Plan})
	}
}

// noting returns what was told of each tier with one more, the first.
func noting(told map[string][]retention.ID, tier string, id retention.ID) map[string][]retention.ID {
	if told == nil {
		told = map[string][]retention.ID{}
	}
	if before := told[tier]; !slices.Contains(before, id) {
		next := append([]retention.ID{id}, before...)
		told[tier] = next[:min(len(next), mostTold)]
	}
	return told
}

// snapshotOverdue has the other holders write what nobody wrote in its turn, under the plan in force. All who hear it leave out the same
// nodes, for they hear the same. The same nodes had the turn in the two snapshots behind one that was told: a node that has it since is not
// to blame for those.
func (m *Machine) snapshotOverdue(_ events.Event, snapshot events.OverdueSnapshot) {
	at := slices.IndexFunc(m.settings.Tiers, func(tier Tier) bool { return tier.Name == RemoteTier })
	if at < 0 || m.plan == nil || snapshot.Tier != RemoteTier || snapshot.Plan != m.plan.digest {
		return
	}
	writers := m.writers()
	if m.snapshots.under != snapshot.Plan {
		m.snapshots.under, m.snapshots.silent = snapshot.Plan, map[string]bool{}
	} else if snapshot.Step <= m.snapshots.last+2*m.settings.Tiers[at].Every {
		return
	}
	m.snapshots.last = snapshot.Step
	for unit := range events.Each(snapshot.Units) {
		if writer, held := writers[unit]; held {
			m.snapshots.silent[writer] = true
		}
	}
}

// neighbour returns who keeps a copy of this node's units: of those who hold none of them, for all who do may die at
// once, each in turn. It is the next node if all hold some. A node alone has none.
func (m *Machine) neighbour() string {
	plan, node := m.plan.plan, m.settings.Node
	own := slices.Collect(events.Each(plan.UnitsOf(node)))
	var alike, others []string
	for _, member := range plan.Nodes {
		units := slices.Collect(events.Each(plan.UnitsOf(member.Node)))
		if slices.ContainsFunc(units, func(unit int) bool { return slices.Contains(own, unit) }) {
			alike = append(alike, member.Node)
		} else {
			others = append(others, member.Node)
		}
	}
	turn := slices.Index(alike, node)
	switch {
	case len(others) > 0:
		return others[turn%len(others)]
	case len(alike) > 1:
		return alike[(turn+1)%len(alike)]
	}
	return ""
}

// readsSnapshots reports whether an opening asks this node for the snapshots it can read, and it may have some.
func (m *Machine) readsSnapshots(opening events.Opening) bool {
	return opening.Snapshots && len(m.settings.Tiers) > 0
}
