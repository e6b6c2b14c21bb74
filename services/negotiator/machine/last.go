package machine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// halting is how far the last snapshot is.
type halting struct {
	Wrote     map[int]bool    `json:"wrote,omitempty"`     // units of the last snapshot that are written to some tier
	Unwritten []unwritten     `json:"unwritten,omitempty"` // of the last snapshot, one of a node and tier
	Made      map[string]bool `json:"made,omitempty"`      // nodes that told that they made the step at which all stop
	waited    bool            // for those who are behind the step at which all stop
}

// The last snapshot of a job is of a step that all make, and is written by all. A stop ends at once if it is known that no tier can
// have that snapshot.

// isLast reports whether a node that trains speaks of the step at which all stop.
func (m *Machine) isLast(node string, step uint64, plan string) bool {
	under := m.state.Negotiation
	return under != nil && under.Phase == protocol.Stopping && step == under.StopStep && plan == m.state.PlanDigest && m.trains(node)
}

// madeLast notes that a node has made the step at which all stop.
func (m *Machine) madeLast(node string, generation, step uint64) {
	if generation != m.state.generation() || !m.isLast(node, step, m.state.PlanDigest) {
		return
	}
	under := m.state.Negotiation
	if under.Made == nil {
		under.Made = map[string]bool{}
	}
	under.Made[node] = true
}

// madeBefore has all count as having made the last step whose units are all written, where a build of before December 2026 remembers what
// is written, and not by whom.
func (s *state) madeBefore() {
	under := s.Negotiation
	if under == nil || s.Plan == nil || len(under.Wrote) == 0 || under.Made != nil {
		return
	}
	under.Made = map[string]bool{}
	for node, held := range s.Plan.UnitsOfAll() {
		isWritten := true
		for unit := range events.Each(held) {
			isWritten = isWritten && under.Wrote[unit]
		}
		under.Made[node] = isWritten
	}
}

// behind returns who trains and has not told that it made the step at which all stop.
func (m *Machine) behind() (nodes []string) {
	holds := m.state.Plan.HoldsOfAll()
	for node := range m.state.Members {
		if _, trains := holds[node]; trains && !m.state.Negotiation.Made[node] {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// stragglerSeconds is how long a node may take to make a step that others have made: its script may evaluate behind the one before.
func (m *Machine) stragglerSeconds() float64 {
	return protocol.Record{Stepped: true, Step: m.stepSeconds(), Pauses: slices.Collect(maps.Values(m.state.Pauses))}.Excuse(0)
}

// unwritten is what keeps a node from writing its part of the last snapshot to a tier.
type unwritten struct {
	Node    string   `json:"node"`
	Tier    string   `json:"tier"`
	Finding string   `json:"finding"`
	Reason  string   `json:"reason"`
	Tiers   []string `json:"tiers"` // all to which the node writes snapshots that outlive its process
}

// snapshotFailed calls the stop off once no tier can have the whole snapshot any more.
func (m *Machine) snapshotFailed(failure events.SnapshotFailure) {
	if !m.isLast(failure.Node, failure.Step, failure.Plan) {
		return
	}
	under := m.state.Negotiation
	under.Unwritten = append(slices.DeleteFunc(under.Unwritten, func(before unwritten) bool {
		return before.Node == failure.Node && before.Tier == failure.Tier
	}), unwritten{failure.Node, failure.Tier, failure.Finding, inShort(failure.Reason), failure.Tiers})
	if !m.isStored() && !m.mayBeStored() {
		m.lateSnapshot(cannotBeWritten)
		return
	}
	m.madeLast(failure.Node, m.state.generation(), failure.Step)
}

// mayBeStored reports whether some tier may still have the whole last snapshot.
func (m *Machine) mayBeStored() bool { return m.mayBeIn(diskTier) || m.mayBeIn(remoteTier) }

// mayBeIn reports whether each unit has a holder that may still write it to a tier. Agents tell the tiers that they write to as they
// consent to the stop. Those of before December 2026 do not, and may write to any tier of which a failure tells. O(failures + nodes), and
// the units of those until all are found.
func (m *Machine) mayBeIn(tier string) bool {
	under := m.state.Negotiation
	isNamed := slices.ContainsFunc(under.Unwritten, func(told unwritten) bool { return slices.Contains(told.Tiers, tier) })
	writes := func(node string) bool {
		tiers := under.Consents[node].Tiers
		return slices.Contains(tiers, tier) || len(tiers) == 0 && isNamed
	}
	cannot := map[string]bool{}
	for _, told := range under.Unwritten {
		if told.Tier == tier && tier == remoteTier && writes(told.Node) {
			return false // nobody else writes its units there
		}
		cannot[told.Node] = cannot[told.Node] || told.Tier == tier || !slices.Contains(told.Tiers, tier)
	}
	written := map[int]bool{}
	for node, held := range m.state.Plan.UnitsOfAll() {
		if cannot[node] || !writes(node) {
			continue
		}
		for unit := range events.Each(held) {
			written[unit] = true
		}
		if len(written) == m.state.Plan.UnitCount() {
			return true
		}
	}
	return false
}

// slowestWrite is what a snapshot is written at, at worst, in bytes per second: to a bucket far away.
const slowestWrite = 20e6

// snapshotSeconds is how long all may take to come to the step at which they stop, and to write it.
func (m *Machine) snapshotSeconds() float64 {
	var bytes int64
	for _, unit := range m.state.Job.UnitBytes() {
		bytes += unit
	}
	return max(m.settings.TransferTime.Seconds(), float64(bytes)/slowestWrite) + protocol.ComeSeconds(m.stepSeconds())
}

// lateStop waits no longer for nodes that are behind, or for the snapshot.
func (m *Machine) lateStop() {
	if m.isStored() {
		m.state.Negotiation.waited = true
		return
	}
	m.lateSnapshot("is not complete")
}

// lateSnapshot calls the stop off, and names who did not write, and why as far as they told.
func (m *Machine) lateSnapshot(how string) {
	under := m.state.Negotiation
	var silent []string
	for _, node := range slices.Sorted(maps.Keys(m.state.Members)) {
		told := slices.ContainsFunc(under.Unwritten, func(told unwritten) bool { return told.Node == node })
		units := slices.Collect(events.Each(m.state.Plan.UnitsOf(node)))
		if !told && slices.ContainsFunc(units, func(unit int) bool { return !under.Wrote[unit] }) {
			silent = append(silent, node)
		}
	}
	reason := fmt.Sprintf("the snapshot of step %d %s%s", under.StopStep, how, m.saysUnwritten())
	if len(silent) > 0 && how != cannotBeWritten {
		reason += ": units are missing that " + named(silent, func(node string) string { return node }) +
			" had to write, whose agents' logs say why"
	}
	reason += "; training goes on: mend that and ask again, or two signals within 10 s to each agent end the job without a snapshot"
	m.ends(reason)
	m.agenda.calledOff = reason
}

// cannotBeWritten is how a snapshot is for which nobody needs to wait.
const cannotBeWritten = "cannot be written"

// mostFindings is of how many a reason has room.
const mostFindings = 2

// saysUnwritten tells what keeps nodes from writing the last snapshot, each finding in a tier once, with the words of the first node.
func (m *Machine) saysUnwritten() string {
	type what struct{ tier, finding string }
	nodes, reasons := map[what][]string{}, map[what]string{}
	var whats []what
	for _, failure := range m.state.Negotiation.Unwritten {
		w := what{failure.Tier, failure.Finding}
		if nodes[w] == nil {
			whats, reasons[w] = append(whats, w), failure.Reason
		}
		nodes[w] = append(nodes[w], failure.Node)
	}
	var says []string
	for _, w := range whats[:min(len(whats), mostFindings)] {
		slices.Sort(nodes[w])
		who := named(nodes[w], func(node string) string { return node })
		says = append(says, fmt.Sprintf("%s (%s of %s)", reasons[w], w.tier, who))
	}
	if len(says) == 0 {
		return ""
	}
	return ": " + strings.Join(says, "; ")
}
