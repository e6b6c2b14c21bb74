package machine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// restoring is the step to go on from, and the plan with nodes, transfers and rounds.
type restoring struct {
	Plan     *events.Plan      `json:"plan,omitempty"`    // with nodes, transfers and rounds
	Snapshot protocol.Snapshot `json:"snapshot,omitzero"` // to go back to; zero: none
	Back     *back             `json:"back,omitempty"`
	Spared   []string          `json:"spared,omitempty"` // leavers that give only what nobody who stays holds
}

// restore asks the restorer, unless there is no step to go on from, or none that can be made.
func (m *Machine) restore() {
	under := m.state.Negotiation
	request := &events.RestorationRequest{
		Negotiation: under.ID, Proposal: *under.Proposal, Current: m.inForce(),
		Unreachable: m.state.relays(under.Opening.Members),
		Units:       m.state.Job.UnitBytes(), Gradients: m.state.Job.GradientBytes(), Doubts: slices.Clone(m.state.Doubts),
	}
	request.Links, request.Usual, _ = m.state.told(m.state.participants(under.Opening.Changes), restorerLinks) // who leaves gives units, too
	for i := range request.Links {
		request.Links[i].Uncertainty = 0 // the restorer takes the figures as they are
	}
	if under.Opening.Abandon {
		point, lacks := m.resumePoint()
		switch {
		case lacks != nil && m.mayAsk():
			m.state.Ask = true
			m.ends(lacks.reason)
			return
		case lacks != nil:
			m.ends(lacks.reason)
			m.agenda.lack = lacks
			return
		}
		if m.rest(point.Step) || m.poisoned(point.Step) {
			return
		}
		under.StopStep = point.Step
		request.Holders, request.Snapshot = holders(protocol.Sparing(under.Spared, point.Holders)), under.Snapshot.Plan != ""
	} else {
		request.Holders = holders(protocol.Sparing(under.Spared, m.current()))
	}
	under.enter(protocol.Restoring)
	m.say(events.RestorationAsked, under.ID, request)
}

// held returns what counts of what the members say that they hold at the steps of a window, and the units whose claims
// contradict each other.
func (m *Machine) held(window protocol.Window) (held []protocol.Held, disputed []int) {
	under := m.state.Negotiation
	for _, node := range slices.Sorted(maps.Keys(under.Consents)) {
		consent := under.Consents[node]
		if !m.trusts(node, consent.Incarnation) {
			continue
		}
		for _, holding := range consent.Holdings {
			if steps := window.Within(holding.Steps); len(steps) > 0 {
				held = append(held, protocol.Held{Node: node, First: holding.Units.First, End: holding.Units.End, Steps: steps})
			}
		}
	}
	counted, disputed := protocol.Uncontradicted(under.Claims.within(window), held)
	return append(held, counted...), disputed
}

// window returns the steps at which a unit can be, by the words of those who have a place in the plan in force. Steps at
// which no node can be count for nothing: before the first plan nobody has made any, and where training begins anew what somebody holds of
// a later one was given up.
func (m *Machine) window() protocol.Window {
	if m.isFirst() {
		return protocol.Window{}
	}
	return protocol.Possible(m.steps(), m.state.Plan.ResumeStep)
}

// steps returns how far those say they are who have a place in the plan in force, in no order.
func (m *Machine) steps() []uint64 {
	var steps []uint64
	holds := m.state.Plan.HoldsOfAll()
	for node, consent := range m.state.Negotiation.Consents {
		_, placed := holds[node]
		claims := consent.Trained == m.state.Plan.Generation && consent.Step > 0
		if placed && (claims || m.state.trusted(node, consent.Incarnation)) {
			steps = append(steps, consent.Step)
		}
	}
	return steps
}

// mostNames is how many units or nodes a reason names.
const mostNames = 8

// lost says why there is no step to go on from: units that nobody holds, or about which claims differ, the first few by
// name.
func (m *Machine) lost(missing, disputed []int, older bool) string {
	name := func(unit int) string { return events.UnitName(unit, len(m.state.Job.Layers)) }
	switch {
	case len(disputed) > 0:
		return fmt.Sprintf("nodes that came back hold different bytes of %s, and nobody can tell which are right: %s. %s",
			named(disputed, name), named(m.claimants(disputed), itself), endWrong)
	case len(missing) == 0:
		return "no step has a live holder of every layer, and " + m.instead(older)
	}
	if m.isFirst() {
		return fmt.Sprintf("training begins at its first step, and who is here has no %s of it: what was trained before was given up, or "+
			"is of another cluster. End the scripts that are left of that, and start them again", named(missing, name))
	}
	waits := m.waitingFor(missing)
	if m.state.Job.Unchanged() {
		return "nobody who had a place in the last plan is here: " + ownState
	}
	if stop := m.state.Stop; stop != nil && m.state.Differ != "" {
		return fmt.Sprintf("training was stopped after step %d, and its snapshot cannot be used: %s. %s", stop.Step, m.state.Differ, endWrong)
	} else if stop != nil {
		return fmt.Sprintf("training was stopped after step %d, and who is here cannot read %s of its snapshot: %s%s",
			stop.Step, named(missing, name), theirPlace[stop.Tier], waits) + m.elseAnew(older)
	}
	if m.state.Plan != nil && !older && !m.mayAsk() {
		switch {
		case m.state.Differ != "": // it is there
			waits += ". " + endWrong
		case m.isGone(missing):
			waits = ", and the processes that held it have ended: its state is gone. " + beginAnew
		case waits == "":
			waits = ", and who held it came back without it: unless the process before lives and goes on, or a node joins that has an " +
				"older state, in memory or a snapshot, its state is gone. " + beginAnew
		}
	}
	return fmt.Sprintf("no live node holds %s, and %s", named(missing, name), m.instead(older)) + waits
}

// claimants returns the nodes that claim some version of units, sorted by name.
func (m *Machine) claimants(units []int) []string {
	var nodes []string
	for _, claim := range m.state.Negotiation.Claims.within(m.window()) {
		if slices.Contains(units, claim.Unit) {
			nodes = append(nodes, claim.Node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// theirPlace says, by tier, how scripts are started where the last snapshot of a job lies.
var theirPlace = map[string]string{
	"disk": "start each script on the machine, and with the REKNIT_SNAPSHOT_FOLDER, that its node had when training " +
		"stopped",
	"remote": "start the scripts with the REKNIT_SNAPSHOT_BUCKET that they had when training stopped",
}

// elseAnew says what there is to do where what is missing is gone, and no older step takes its place.
func (m *Machine) elseAnew(older bool) string {
	if older || m.mayAsk() {
		return ""
	}
	return ". If it is gone, begin anew at the first step: reknit cluster reset"
}

// ownState is how scripts go on that know nothing of their agents.
const ownState = "the scripts keep their own state (--unchanged). They go on from their own checkpoints once they are started by the " +
	"names that their nodes had (REKNIT_AGENT_NODE), or, by other names, after: reknit cluster reset"

// beginAnew is what there is to do where the state of a job is gone.
const beginAnew = "To begin anew at the first step: reknit cluster reset"

// endWrong is what there is to do about copies that differ.
const endWrong = "End the script and the agent of whoever has it wrong: training goes on from what the others have. " + beginAnew

// instead says what there is where the living do not have all units of a step.
func (m *Machine) instead(older bool) string {
	switch {
	case m.mayAsk():
		return "members are asked for snapshots"
	case older:
		return "only an older step can be had as a whole"
	case m.state.Differ != "":
		return "the snapshot that there is cannot be used: " + m.state.Differ
	}
	return "there is no snapshot to go back to"
}

// waitingFor names who can bring units back; it is empty where nobody can.
func (m *Machine) waitingFor(units []int) string {
	nodes := m.holdersOf(units)
	if len(nodes) == 0 {
		return ""
	}
	return "; waiting for " + named(nodes, func(node string) string { return node })
}

func named[T any](all []T, name func(T) string) string {
	var names []string
	for _, one := range all[:min(len(all), mostNames)] {
		names = append(names, name(one))
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// holdersOf returns the nodes that the plan in force gave some of these units, or any unit where none is named, and
// that do not take part: only they can bring the units back.
func (m *Machine) holdersOf(units []int) []string {
	if m.state.Plan == nil {
		return nil
	}
	var nodes []string
	for _, member := range m.state.Plan.Nodes {
		if under := m.state.Negotiation; under != nil && under.takesPart(member.Node, "") {
			continue
		}
		for unit := range events.Each(m.state.Plan.UnitsOf(member.Node)) {
			if units == nil || slices.Contains(units, unit) {
				nodes = append(nodes, member.Node)
				break
			}
		}
	}
	return nodes
}

// current returns the units that each node trains now: it will hold them at whatever step all stop.
func (m *Machine) current() map[string][]int {
	holders := map[string][]int{}
	for node, consent := range m.state.Negotiation.Consents {
		isTrusted := m.trusts(node, consent.Incarnation)
		for _, holding := range consent.Holdings {
			for unit := holding.Units.First; holding.Current && isTrusted && unit < holding.Units.End; unit++ {
				holders[node] = append(holders[node], unit)
			}
		}
	}
	return holders
}

func holders(units map[string][]int) []events.Holder {
	var list []events.Holder
	for _, node := range slices.Sorted(maps.Keys(units)) {
		holder := events.Holder{Node: node}
		for _, span := range protocol.Ranges(units[node]) {
			holder.Units = append(holder.Units, events.Range{First: span[0], End: span[1]})
		}
		list = append(list, holder)
	}
	return list
}

func (m *Machine) restorationPlanned(restoration events.Restoration) {
	if under := m.under(restoration.Negotiation, protocol.Restoring); under != nil {
		under.Plan = &restoration.Plan
	}
}

// isPlanned reports whether the restorer has said who gives what to whom.
func (m *Machine) isPlanned() bool { return m.state.Negotiation.Plan != nil }
