package machine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
)

// A node's word of a plan that the log has lost counts after the node is gone, too. Generations go on behind the newest plan of which
// anybody told: one that is used twice would fence no script, and mix what is trained under the two. A log without a plan waits a while for
// those who told and are gone, for they may live. Then training begins, behind what they told.

const (
	// mostAhead is by how many generations a plan of which one node alone tells may be ahead of what others tell, or the log knows: one
	// that lies has generations go on a little later.
	mostAhead = 16
	// manyAhead is that for a plan of which several tell, and for any where the log has none and no two tell of the same: a lone survivor's
	// word counts so. No cluster comes so far, and a word beyond it is not heard.
	manyAhead = 1 << 32
	// toldSeconds is for how long a log without a plan waits for nodes that told of one and are gone: as a machine takes to start again.
	toldSeconds = 120
	// mostToldSeconds is for how long it waits for all of them, however many come one after the other.
	mostToldSeconds = 600
)

// hearsPast hears what a node that asks for a place says that it trained. Its earlier words count on.
func (m *Machine) hearsPast(join events.Join) {
	known, past, newest := &m.state.Recall, join.Trained, m.state.generation()
	_, was := known.Told[join.Node]
	isLater := past != nil && past.Plan != "" && past.Generation > newest && past.Generation <= newest+manyAhead
	if !isLater || !was && len(known.Told) >= events.MostNodes {
		return
	}
	if known.Told == nil {
		known.Told = map[string]events.Trained{}
	}
	if past.Generation >= known.Told[join.Node].Generation { // another process of its name may know of an older plan only
		known.Told[join.Node] = *past
	}
	if m.state.Plan == nil {
		delete(m.state.Gone, join.Node)
	}
	if !was {
		known.Until = time.Time{} // each node is waited for, and none twice
	}
}

// newestTold returns the newest plan of which nodes told, whatever became of them, beyond a generation that is known; of two of one
// generation the one of which more told. O(n log n) for n nodes that told.
func (m *Machine) newestTold(known uint64) (newest events.Trained) {
	tellers, certain, ahead := m.tellersOf(), known, uint64(mostAhead)
	for _, told := range m.state.Recall.Told {
		if tellers[planOf(told)] > 1 {
			certain = max(certain, told.Generation)
		}
	}
	if certain == 0 {
		ahead = manyAhead
	}
	for _, node := range slices.Sorted(maps.Keys(m.state.Recall.Told)) {
		told := m.state.Recall.Told[node]
		isNewer := cmp.Or(cmp.Compare(told.Generation, newest.Generation), cmp.Compare(tellers[planOf(told)], tellers[planOf(newest)])) > 0
		if isNewer && told.Generation > known && told.Generation <= certain+ahead {
			newest = told
		}
	}
	return newest
}

// raiseFloor has generations go on behind the newest plan of which anybody told, where nodes are to tell one, or training begins in a log
// without a plan. Nodes learn from such an opening which plan is in no log; in any other they would wait for it. A generation that was
// opened is not taken back: to who heard of it, one before it is over.
func (m *Machine) raiseFloor() {
	if !m.isForgotten() && m.state.Plan != nil {
		return
	}
	known := &m.state.Recall
	if newest := m.newestTold(max(m.state.generation(), m.past().Generation)); newest.Generation > known.Floor.Generation {
		known.Floor = newest
	}
}

// parentOf returns the digest of the plan before one of a generation: of one that nobody can tell any more, as nodes told it.
func (m *Machine) parentOf(generation uint64) string {
	if floor := m.state.Recall.Floor; floor.Generation > m.state.generation() && floor.Generation+1 == generation {
		return floor.Plan
	}
	return m.state.PlanDigest
}

// toldAndGone returns the nodes that told a log without a plan of one, that may live, and that are not here, by name. Another process
// that has the name of one is no proof that the one before has ended.
func (m *Machine) toldAndGone() []string {
	if m.state.Plan != nil || m.isForgotten() {
		return nil
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(m.state.Recall.Told)), func(node string) bool {
		return m.state.Gone[node] != ""
	})
}

// awaitsTold reports whether a log without a plan still waits for nodes that told of one and are gone.
func (m *Machine) awaitsTold(now time.Time) bool {
	known := &m.state.Recall
	if m.state.Reset != nil || len(m.toldAndGone()) == 0 {
		return false
	}
	known.Last = sooner(known.Last, now.Add(mostToldSeconds*time.Second))
	known.Until = sooner(sooner(known.Until, now.Add(toldSeconds*time.Second)), known.Last)
	return now.Before(known.Until)
}

// sooner returns the earlier of a time that may not be set yet, or that a clock said before it was set back, and another.
func sooner(set, other time.Time) time.Time {
	if set.IsZero() || other.Before(set) {
		return other
	}
	return set
}

// lacksTold notes for whom a log without a plan waits, and until when. It is said again once these are others. If one of them comes back,
// the others have time to come, but no more than that.
func (m *Machine) lacksTold() {
	m.state.Recall.Gathers = false
	nodes, until := m.toldAndGone(), m.state.Recall.Until
	awaits := nodes[:min(len(nodes), events.MostSilent)]
	if hold := m.state.Hold; hold.Active && hold.Seconds > 0 && slices.Equal(hold.Awaits, awaits) {
		return
	}
	reason := fmt.Sprintf("the log has lost plan %d, and who told of it is gone: %s may live, and hold what was trained. Training begins "+
		"at %s unless they come. To begin now: reknit cluster reset", m.newestTold(0).Generation, named(nodes, itself),
		until.UTC().Format(time.RFC3339))
	m.stuckFor(until.Sub(m.cause.Logged).Seconds(), reason, awaits...)
}

// resetOfTold returns what a reset gives up of which nodes only told.
func (m *Machine) resetOfTold(request events.ResetRequest) events.JobReset {
	newest, nodes := m.newestTold(0), m.toldAndGone()
	return events.JobReset{
		Generation: newest.Generation, Step: newest.Step, Reason: inShort(request.Reason), Snapshots: request.Snapshots,
		Silent: nodes[:min(len(nodes), events.MostSilent)],
	}
}

// planOf returns the plan of which a node tells, by generation and digest: a step beside it is the node's own.
func planOf(told events.Trained) events.Trained {
	return events.Trained{Generation: told.Generation, Plan: told.Plan}
}

// tellersOf returns how many nodes told of each plan. O(n) for n nodes that told.
func (m *Machine) tellersOf() map[events.Trained]int {
	tellers := map[events.Trained]int{}
	for _, told := range m.state.Recall.Told {
		tellers[planOf(told)]++
	}
	return tellers
}

// isCertain reports whether more than one node told of a plan. One that lies would have snapshots count of a plan that was undone.
func (m *Machine) isCertain(told events.Trained) bool {
	return told.Plan != "" && m.tellersOf()[planOf(told)] > 1
}
