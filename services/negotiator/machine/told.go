package machine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
)

// A node's word of a plan that the log has lost counts after the node is gone, too: the plan itself, and that generations go on behind
// the newest plan of which anybody told. A generation that is used twice would fence no script, and mix what is trained under the two.

const (
	// mostAhead is by how many generations a plan of which one node alone tells may be ahead of what the others tell: one that lies has
	// generations go on a little later.
	mostAhead = 16
	// manyAhead is that for a plan of which several tell.
	manyAhead = 1 << 32
)

// hearsPast hears what a node that asks for a place says that it trained. Its earlier words count on.
func (m *Machine) hearsPast(join events.Join) {
	known, past := &m.state.Recall, join.Trained
	_, was := known.Told[join.Node]
	if past == nil || past.Plan == "" || past.Generation <= m.state.generation() || !was && len(known.Told) >= events.MostNodes {
		return
	}
	if known.Told == nil {
		known.Told = map[string]events.Trained{}
	}
	known.Told[join.Node] = *past
}

// newestTold returns the newest plan of which nodes told, whatever became of them, beyond a generation that is known. O(n) for n nodes
// that told.
func (m *Machine) newestTold(known uint64) (newest events.Trained) {
	tellers := m.tellersOf()
	for _, node := range slices.Sorted(maps.Keys(m.state.Recall.Told)) {
		told, ahead := m.state.Recall.Told[node], uint64(mostAhead)
		if tellers[told.Plan] > 1 {
			ahead = manyAhead
		}
		if told.Generation > max(known, newest.Generation) && told.Generation <= known+ahead {
			newest = told
		}
	}
	return newest
}

// raiseFloor has generations go on behind the newest plan of which anybody told, where nodes are to tell one. They learn from that
// opening which plan is in no log; in any other they would wait for it.
func (m *Machine) raiseFloor() {
	if m.isForgotten() {
		m.state.Recall.Floor = m.newestTold(max(m.state.generation(), m.past().Generation))
	}
}

// parentOf returns the digest of the plan before one of a generation: of one that nobody can tell any more, as nodes told it.
func (m *Machine) parentOf(generation uint64) string {
	if floor := m.state.Recall.Floor; floor.Generation > m.state.generation() && floor.Generation+1 == generation {
		return floor.Plan
	}
	return m.state.PlanDigest
}

// remembersPlan reports whether the plan that the log has lost was told, and nobody is there any more who tells it.
func (m *Machine) remembersPlan() bool {
	plan := m.state.Recall.Few.Told
	return m.state.Plan == nil && plan != nil && !m.isForgotten() && plan.UnitCount() == m.state.Job.Units()
}

// takeRemembered takes the plan that was told for the one in force. A node that told it may live, and is waited for as the members of any
// plan are.
func (m *Machine) takeRemembered(cause events.Event) []events.Event {
	few := m.state.Recall.Few
	m.takeBack(cause, few.Told, few.Plan)
	reason := fmt.Sprintf("it is the job of those who trained before: the log had lost plan %d, and was told it", few.Told.Generation)
	return append(m.refuseOthers(cause, reason), m.openNext(cause)...)
}

// tellersOf returns how many nodes told of each plan, by its digest. O(n) for n nodes that told.
func (m *Machine) tellersOf() map[string]int {
	tellers := map[string]int{}
	for _, told := range m.state.Recall.Told {
		tellers[told.Plan]++
	}
	return tellers
}

// isCertain reports whether more than one node told of a plan. One that lies would have snapshots count of a plan that was undone.
func (m *Machine) isCertain(digest string) bool { return digest != "" && m.tellersOf()[digest] > 1 }
