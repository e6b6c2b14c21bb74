package machine

import (
	"cmp"
	"slices"

	"github.com/reknit/reknit/events"
)

// keeping follows which snapshots of a plan are complete: their parts have all units, of the nodes that the plan has hold
// them. A node may say that it wrote what it did not, of the units that it holds and of no others.
type keeping struct {
	Plan  string                    `json:"plan"` // its digest; empty until it is committed
	Units int                       `json:"units"`
	Holds map[string][]events.Range `json:"holds"` // by node
	Tiers map[string]*kept          `json:"tiers,omitempty"`
	Ahead teller                    `json:"ahead,omitzero"`
	Known uint64                    `json:"known,omitempty"` // the last step that two nodes told of, or passed
}

// teller is the node that told of the last step of all, in whatever tier.
type teller struct {
	Node string `json:"node"`
	Step uint64 `json:"step"`
}

// named is which snapshot it is.
type named struct {
	Step uint64 `json:"step"`
	Plan string `json:"plan"` // digest of the plan under which the step was trained
}

// kept is what was said of a tier.
type kept struct {
	Open []openSnapshot    `json:"open,omitempty"` // in the order of their steps, at most mostOpen
	Done []uint64          `json:"done,omitempty"` // steps that were complete last, at most mostOpen
	Last map[string]uint64 `json:"last,omitempty"` // the last step of which each node told
}

// openSnapshot is one of which not all units are written.
type openSnapshot struct {
	Step    uint64         `json:"step"`
	Missing []events.Range `json:"missing"`
	Overdue bool           `json:"overdue,omitempty"` // that was said
}

const (
	// mostOpen bounds what is remembered of a tier. The one that lacks most is forgotten if more are open.
	mostOpen = 16
	// overdueAfter is how many later snapshots have parts before the units that are missing are told.
	overdueAfter = 2
	// mostKeeping is of how many plans, the newest: a part may be written when the next plan is in force already.
	mostKeeping = 2
)

func newKeeping(plan *events.Plan) *keeping {
	return &keeping{Units: plan.UnitCount(), Holds: plan.UnitsOfAll()}
}

// wrote notes that a node wrote its part of a snapshot. O(open snapshots x ranges of units).
func (m *Machine) wrote(cause events.Event, part events.SnapshotPart) []events.Event {
	at := slices.IndexFunc(m.state.Keeping, func(k *keeping) bool { return k.Plan == part.Plan })
	if at < 0 {
		return nil
	}
	k := m.state.Keeping[at]
	units := common(k.Holds[part.Node], part.Units)
	tier := k.tier(part.Tier)
	if len(units) == 0 {
		return nil
	}
	k.reach(part.Node, part.Step)
	tier.reach(part.Node, part.Step)
	if slices.Contains(tier.Done, part.Step) {
		return nil
	}
	complete := tier.note(part.Step, units, k.Units, k.Known)
	tier.bound(k.Holds, k.Known)
	if complete {
		if !m.isNewest(at, part) {
			return nil
		}
		return []events.Event{m.speaker.Say(cause, events.SnapshotCompleted, part.Tier,
			&events.CompleteSnapshot{Tier: part.Tier, Step: part.Step, Plan: part.Plan})}
	}
	var said []events.Event
	for i := range max(0, len(tier.Open)-overdueAfter) {
		if open := &tier.Open[i]; !open.Overdue {
			open.Overdue = true
			said = append(said, m.speaker.Say(cause, events.SnapshotOverdue, part.Tier,
				&events.OverdueSnapshot{Tier: part.Tier, Step: open.Step, Plan: part.Plan, Units: open.Missing}))
		}
	}
	return said
}

// isNewest keeps the newest complete snapshot of a tier, and reports whether it is this one: of the newest plan, whatever its step is, for
// training may have gone back, and of that plan the last. One of the plan before may be complete later. Nobody hears of that: who trains
// takes what is told last for the newest, and gives up the others first. A step of which one node alone told may never come. Nothing of
// its plan waits for that.
func (m *Machine) isNewest(at int, part events.SnapshotPart) bool {
	if m.state.Newest == nil {
		m.state.Newest = map[string]named{}
	}
	before := m.state.Newest[part.Tier]
	newest := slices.IndexFunc(m.state.Keeping, func(k *keeping) bool { return k.Plan == before.Plan })
	isLater := before.Step < part.Step || before.Step > m.state.Keeping[at].Known
	is := newest < 0 || at < newest || at == newest && isLater
	if is {
		m.state.Newest[part.Tier] = named{part.Step, part.Plan}
	}
	return is
}

// withdraws lets a node remove its part of a snapshot, unless that is the newest complete one of its tier, as the node hears by itself. The
// part of an incomplete snapshot counts no more: its units are missing until they are written again, even those that are another node's,
// too.
func (m *Machine) withdraws(cause events.Event, part events.SnapshotPart) []events.Event {
	if m.state.Newest[part.Tier] == (named{part.Step, part.Plan}) {
		return nil
	}
	if at := slices.IndexFunc(m.state.Keeping, func(k *keeping) bool { return k.Plan == part.Plan }); at >= 0 {
		k := m.state.Keeping[at]
		k.tier(part.Tier).withdraw(part.Step, common(k.Holds[part.Node], part.Units))
	}
	return []events.Event{m.speaker.Say(cause, events.SnapshotWithdrawn, part.Node, &part)}
}

// reach hears how far a node is. All train the same step, but one may lie.
func (k *keeping) reach(node string, step uint64) {
	switch {
	case node == k.Ahead.Node:
		k.Ahead.Step = max(k.Ahead.Step, step)
	case step > k.Ahead.Step:
		k.Known, k.Ahead = k.Ahead.Step, teller{node, step}
	default:
		k.Known = max(k.Known, step)
	}
}

func (k *keeping) tier(name string) *kept {
	if k.Tiers == nil {
		k.Tiers = map[string]*kept{}
	}
	if k.Tiers[name] == nil {
		k.Tiers[name] = &kept{}
	}
	return k.Tiers[name]
}

// note takes units of a snapshot, and reports whether it has all. Nobody waits for a snapshot that is older than a
// complete one of a step that is known.
func (t *kept) note(step uint64, units []events.Range, all int, known uint64) (complete bool) {
	at, found := slices.BinarySearchFunc(t.Open, step, func(open openSnapshot, step uint64) int {
		return cmp.Compare(open.Step, step)
	})
	if !found {
		t.Open = slices.Insert(t.Open, at, openSnapshot{Step: step, Missing: []events.Range{{First: 0, End: all}}})
	}
	t.Open[at].Missing = without(t.Open[at].Missing, units)
	if len(t.Open[at].Missing) > 0 {
		return false
	}
	first := 0
	if step > known {
		first = at
	}
	t.Open = slices.Delete(t.Open, first, at+1)
	t.Done = append(t.Done[max(0, len(t.Done)-mostOpen+1):], step)
	return true
}

// withdraw has units of a snapshot be missing again, in their order.
func (t *kept) withdraw(step uint64, units []events.Range) {
	for i := range t.Open {
		if open := &t.Open[i]; open.Step == step {
			open.Missing = append(without(open.Missing, units), units...)
			slices.SortFunc(open.Missing, func(a, b events.Range) int { return cmp.Compare(a.First, b.First) })
		}
	}
}

// reach hears how far a node is in a tier.
func (t *kept) reach(node string, step uint64) {
	if t.Last == nil {
		t.Last = map[string]uint64{}
	}
	t.Last[node] = max(t.Last[node], step)
}

// bound forgets a snapshot where there are too many: the oldest that cannot become complete, and else the one that lacks most, of several
// the newest.
func (t *kept) bound(holds map[string][]events.Range, known uint64) {
	if len(t.Open) <= mostOpen {
		return
	}
	most, at := -1, 0
	for i, open := range t.Open {
		if t.isLost(open, holds, known) {
			at = i
			break
		}
		if lacks := count(open.Missing); lacks >= most {
			most, at = lacks, i
		}
	}
	t.Open = slices.Delete(t.Open, at, at+1)
}

// isLost reports whether a snapshot lacks a unit of which every holder has told of a later step, and the cluster has come so far: each
// writes in the order of the steps. O(nodes x ranges of units).
func (t *kept) isLost(open openSnapshot, holds map[string][]events.Range, known uint64) bool {
	missing := open.Missing
	for node, units := range holds {
		if min(t.Last[node], known) <= open.Step {
			missing = without(missing, units)
		}
	}
	return len(missing) > 0
}

func count(ranges []events.Range) (units int) {
	for _, r := range ranges {
		units += r.End - r.First
	}
	return units
}

// common returns what both lists of ranges have.
func common(a, b []events.Range) (both []events.Range) {
	for _, x := range a {
		for _, y := range b {
			if first, end := max(x.First, y.First), min(x.End, y.End); first < end {
				both = append(both, events.Range{First: first, End: end})
			}
		}
	}
	return both
}

// without returns what is in ranges and not in others.
func without(ranges, others []events.Range) []events.Range {
	for _, other := range others {
		var rest []events.Range
		for _, r := range ranges {
			for _, part := range []events.Range{{First: r.First, End: min(r.End, other.First)}, {First: max(r.First, other.End), End: r.End}} {
				if part.First < part.End {
					rest = append(rest, part)
				}
			}
		}
		ranges = rest
	}
	return ranges
}
