package machine

import (
	"slices"

	"github.com/reknit/reknit/events"
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

// captureDue has the units captured that are due at the step which the trainer has just completed. A node whose step is
// to be abandoned has more pressing things to do.
func (m *Machine) captureDue() {
	if m.plan == nil || m.awaited > 0 || m.done <= m.plan.plan.ResumeStep {
		return
	}
	var shares []Share
	for _, tier := range m.settings.Tiers {
		if m.done%tier.Every != 0 {
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
		m.do(Capture{m.done, m.plan.plan, m.plan.digest, shares})
	}
}

// shareOf returns what this node writes to a tier: all its units to one that only it reads, and of a unit with several
// holders the one whose turn it is writes it to a tier that all read.
func (m *Machine) shareOf(tier Tier) []events.Range {
	plan, node := m.plan.plan, m.settings.Node
	own := plan.UnitsOf(node)
	if tier.Name != RemoteTier {
		return own
	}
	holders := map[int][]string{}
	for _, member := range plan.Nodes {
		for unit := range events.Each(plan.UnitsOf(member.Node)) {
			holders[unit] = append(holders[unit], member.Node)
		}
	}
	var dealt []events.Range
	for unit := range events.Each(own) {
		if turn := holders[unit][unit%len(holders[unit])]; turn == node {
			dealt = append(dealt, events.Range{First: unit, End: unit + 1})
		}
	}
	return dealt
}

// neighbour returns who keeps a copy of this node's units: of those who hold none of them, for all who do may die at
// once, each in turn. Where all hold some it is the next node; a node alone has none.
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
