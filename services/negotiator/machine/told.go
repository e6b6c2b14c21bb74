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
	// manyAhead is that for a plan of which several tell, and where nobody knows of any other. No cluster comes so far.
	manyAhead = 1 << 32
	// toldSeconds is for how long a log without a plan waits for nodes that told of one and are gone: as a machine takes to start again.
	toldSeconds = 120
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
		if tellers[told.Plan] > 1 && told.Generation <= known+manyAhead {
			certain = max(certain, told.Generation)
		}
	}
	if certain == 0 {
		ahead = manyAhead
	}
	for _, node := range slices.Sorted(maps.Keys(m.state.Recall.Told)) {
		told := m.state.Recall.Told[node]
		isNewer := cmp.Or(cmp.Compare(told.Generation, newest.Generation), cmp.Compare(tellers[told.Plan], tellers[newest.Plan])) > 0
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

// toldAndGone returns the nodes that told a log without a plan of one, that may live, and that are not here, by name.
func (m *Machine) toldAndGone() []string {
	if m.state.Plan != nil || m.isForgotten() {
		return nil
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(m.state.Recall.Told)), func(node string) bool {
		return m.state.Joiners[node] != nil || m.state.Gone[node] != ""
	})
}

// awaitsTold reports whether a log without a plan still waits for nodes that told of one and are gone.
func (m *Machine) awaitsTold(now time.Time) bool {
	known := &m.state.Recall
	if m.state.Reset != nil || len(m.toldAndGone()) == 0 {
		return false
	}
	if known.Until.IsZero() {
		known.Until = now.Add(toldSeconds * time.Second)
	}
	left := known.Until.Sub(now)
	return left > 0 && left <= toldSeconds*time.Second // a clock that was set back says more
}

// holdTold says for whom a log without a plan waits, and until when. It is said again once these are others.
func (m *Machine) holdTold(cause events.Event) []events.Event {
	nodes, until := m.toldAndGone(), m.state.Recall.Until
	if hold := m.state.Hold; hold.Active && hold.Seconds > 0 && slices.Equal(hold.Awaits, nodes) {
		return nil
	}
	reason := fmt.Sprintf("the log has lost plan %d, and who told of it is gone: %s may live, and hold what was trained. Training begins "+
		"at %s unless they come. To begin now: reknit cluster reset", m.newestTold(0).Generation, named(nodes, itself),
		until.UTC().Format(time.RFC3339))
	return m.holdFor(until.Sub(cause.Logged).Seconds(), reason, nodes...)(cause)
}

// resetOfTold returns what a reset gives up of which nodes only told.
func (m *Machine) resetOfTold(request events.ResetRequest) events.JobReset {
	newest, nodes := m.newestTold(0), m.toldAndGone()
	return events.JobReset{
		Generation: newest.Generation, Step: newest.Step, Reason: inShort(request.Reason), Snapshots: request.Snapshots,
		Silent: nodes[:min(len(nodes), events.MostSilent)],
	}
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
