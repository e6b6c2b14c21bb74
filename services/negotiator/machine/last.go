package machine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// The last snapshot of a job is of a step that all make, and is written by all. A stop ends at once if it is known that no tier can
// have that snapshot.

// isLast reports whether a node that trains speaks of the step at which all stop.
func (m *Machine) isLast(node string, step uint64, plan string) bool {
	under := m.state.Negotiation
	return under != nil && under.Phase == protocol.Stopping && step == under.StopStep && plan == m.state.PlanDigest && m.trains(node)
}

// madeLast notes that a node has made the step at which all stop.
func (m *Machine) madeLast(cause events.Event, node string, generation, step uint64) []events.Event {
	if generation != m.state.generation() || !m.isLast(node, step, m.state.PlanDigest) {
		return nil
	}
	under := m.state.Negotiation
	if under.Made == nil {
		under.Made = map[string]bool{}
	}
	under.Made[node] = true
	return m.stopOnceStored(cause)
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

// snapshotFailed calls the stop off once no tier can have the whole snapshot any more.
func (m *Machine) snapshotFailed(cause events.Event, failure events.SnapshotFailure) []events.Event {
	if !m.isLast(failure.Node, failure.Step, failure.Plan) {
		return nil
	}
	under := m.state.Negotiation
	under.Unwritten = append(slices.DeleteFunc(under.Unwritten, func(before events.SnapshotFailure) bool {
		return before.Node == failure.Node && before.Tier == failure.Tier
	}), failure)
	if !m.isStored() && !m.mayBeStored() {
		return m.lateSnapshot(cause, cannotBeWritten)
	}
	return m.madeLast(cause, failure.Node, m.state.generation(), failure.Step)
}

// remoteTier is one to which one holder of each unit writes it.
const remoteTier = "remote"

// mayBeStored reports whether some tier may still have the whole last snapshot, as far as nodes that cannot write to one tell of others.
func (m *Machine) mayBeStored() bool {
	tiers := map[string]bool{}
	for _, failure := range m.state.Negotiation.Unwritten {
		for _, tier := range failure.Tiers {
			tiers[tier] = true
		}
	}
	for tier := range tiers {
		if m.mayBeIn(tier) {
			return true
		}
	}
	return false
}

// mayBeIn reports whether each unit has a holder that may still write it to a tier. O(failures + nodes), and the units of those until
// all are found.
func (m *Machine) mayBeIn(tier string) bool {
	failed := map[string]bool{}
	for _, failure := range m.state.Negotiation.Unwritten {
		if failure.Tier == tier {
			failed[failure.Node] = true
		}
	}
	if tier == remoteTier {
		return len(failed) == 0
	}
	written := map[int]bool{}
	for node, held := range m.state.Plan.UnitsOfAll() {
		if failed[node] {
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

// lateSnapshot calls the stop off, and names who did not write, and why as far as they told.
func (m *Machine) lateSnapshot(cause events.Event, how string) []events.Event {
	under := m.state.Negotiation
	var silent []string
	for _, node := range slices.Sorted(maps.Keys(m.state.Members)) {
		told := slices.ContainsFunc(under.Unwritten, func(failure events.SnapshotFailure) bool { return failure.Node == node })
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
	return m.abort(cause, reason, func(cause events.Event) []events.Event { return m.callOff(cause, reason) })
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
		says = append(says, fmt.Sprintf("%s (%s of %s)", inShort(reasons[w]), w.tier, who))
	}
	if len(says) == 0 {
		return ""
	}
	return ": " + strings.Join(says, "; ")
}
