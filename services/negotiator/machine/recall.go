package machine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
)

// A log whose store was wiped knows nothing, and living nodes know it all: which plan they train under, and how far they are. They
// ask for a place again, and say that they trained. The cluster waits until those who lost the same log are back, has some of
// them tell the plan, and takes it for the one in force. From there it is as after the loss of all members at once: nodes claim what
// they hold, and go on under a plan whose parent is the one that was recalled.

const (
	// youngSeconds is within which whoever lost the log's store is back: agents look for their server each 0.25 to 0.5 s, and ask for
	// a place as soon as they see that the log is another one. A log is not begun anew before.
	youngSeconds = 2
	// fewSeconds is for how long the others are waited for if fewer than half of those who trained under a plan tell of it. One that was
	// cut off may know of a later plan, which would be lost, and one alone may lie.
	fewSeconds = 30
	// mostRecalls is how many nodes are asked for the plan: it is long, and all have the same.
	mostRecalls = 3
)

// recall is how far the machine is with a plan that the log has lost.
type recall struct {
	Told     map[string]events.Trained `json:"told,omitempty"`     // by node: under plans that the log does not have
	Floor    events.Trained            `json:"floor,omitzero"`     // the plan behind which generations go on; zero: that in force
	Gathers  bool                      `json:"gathers,omitempty"`  // those who trained are given the time to come
	Gathered bool                      `json:"gathered,omitempty"` // they have had it
	Few      few                       `json:"few,omitzero"`
	Until    time.Time                 `json:"until,omitzero"`     // a log without a plan waits for those who told; zero: it does not yet
	Last     time.Time                 `json:"last,omitzero"`      // after which Until is never, whoever tells; zero: it waited for nobody
	Taken    uint64                    `json:"taken,omitempty"`    // generation of the plan that was recalled and that no other has followed
	Accepted bool                      `json:"accepted,omitempty"` // an operator accepts that the log is older than what nodes trained
}

// few is a plan that fewer than half of those who trained under it tell of.
type few struct {
	Plan    string `json:"plan"`
	Placed  int    `json:"placed"`  // nodes that the plan gives something to train
	Patient bool   `json:"patient"` // all others have had the time to come, whichever plan they tell
}

// Began tells when the log was made, by its own clock.
func (m *Machine) Began(at time.Time) { m.began = at }

// regroupSeconds returns for how long the first plan of a young log, and that which follows a lost one, waits for those who may have
// trained; zero: they had their time.
func (m *Machine) regroupSeconds() float64 {
	young, known := youngSeconds-m.cause.Logged.Sub(m.began).Seconds(), &m.state.Recall
	switch {
	case m.isForgotten() && !known.Gathered:
		if !known.Gathers {
			known.Gathers, m.state.Hold.Seconds = true, 0 // what a young log waits for is no time for who trained
		}
		return gatherSeconds
	case m.isForgotten() && m.lacksTellers():
		return fewSeconds
	case m.state.Plan == nil && !m.isForgotten() && young > 0 && young <= youngSeconds: // a clock that was set back says more
		return young
	}
	return 0
}

// lacksTellers reports whether a plan that was told is told by too few, and the others have time to come.
func (m *Machine) lacksTellers() bool {
	few, past := m.state.Recall.Few, m.past()
	return few.Plan == past.Plan && !few.Patient && 2*len(m.tellers(past)) < few.Placed
}

// several is how many nodes have to tell of a plan, or of what followed it, to be believed though more know of an earlier one.
const several = 2

// past returns the newest plan that joiners say they trained, of those that several tell, or one and somebody else of a later one, and of
// those of which no other is told by more. A majority is no proof that its plan is the last: it may have been cut off while the others
// trained on. One alone that tells of a later plan may lie. O(n log n) for n plans that are told.
func (m *Machine) past() events.Trained {
	told, most := map[events.Trained]int{}, 0
	for _, joiner := range m.state.Joiners {
		if plan, tells := m.trainedUnder(joiner); tells {
			told[plan]++
			most = max(most, told[plan])
		}
	}
	newest := slices.SortedFunc(maps.Keys(told), func(a, b events.Trained) int {
		return -cmp.Or(cmp.Compare(a.Generation, b.Generation), cmp.Compare(told[a], told[b]), cmp.Compare(a.Plan, b.Plan))
	})
	later, all := 0, 0 // nodes that tell of a later generation, and of any that was looked at
	for i, plan := range newest {
		if i > 0 && plan.Generation < newest[i-1].Generation {
			later = all
		}
		all += told[plan]
		if told[plan] == most || told[plan]+later >= several {
			return plan
		}
	}
	return events.Trained{}
}

// trainedUnder returns the plan that a joiner says it trained, if any, and if a cluster can have come so far.
func (m *Machine) trainedUnder(joiner *member) (plan events.Trained, tells bool) {
	past := joiner.Trained
	if past == nil || past.Plan == "" || past.Generation > m.state.generation()+manyAhead {
		return events.Trained{}, false
	}
	return planOf(*past), true
}

// isForgotten reports whether nodes trained under a later plan than the log has, and nothing was committed in this log. A user may have
// given that up.
func (m *Machine) isForgotten() bool {
	known := m.state.Recall
	isLost := m.state.Plan == nil && m.state.Reset == nil || known.Taken > 0 || known.Accepted
	return isLost && m.past().Generation > m.state.generation()
}

// isOutdone reports whether the log is older than what nodes trained: it has committed plans, and more nodes tell of later ones than are
// members under the one in force, and most of those who ask for a place. Fewer may lie.
func (m *Machine) isOutdone() bool {
	if m.state.Plan == nil || m.past().Generation <= m.state.generation() || m.isForgotten() {
		return false
	}
	tellers := 0
	for _, joiner := range m.state.Joiners {
		if plan, tells := m.trainedUnder(joiner); tells && plan.Generation > m.state.generation() {
			tellers++
		}
	}
	return tellers > len(m.state.Members) && 2*tellers > len(m.state.Joiners)
}

// tellers returns the joiners that trained under a plan, by name.
func (m *Machine) tellers(past events.Trained) (nodes []string) {
	for _, node := range slices.Sorted(maps.Keys(m.state.Joiners)) {
		if told := m.state.Joiners[node].Trained; told != nil && told.Plan == past.Plan {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// lacksNewerLog notes that nothing can be done until an operator decides: what the log lacks happened, and to go on would undo or repeat
// it. It is said once, and at each retry.
func (m *Machine) lacksNewerLog() {
	if m.state.Hold.Active && m.state.Hold.Older && m.cause.Kind != events.NegotiationOverdue {
		return
	}
	m.agenda.lack = &lack{reason: m.older(), older: true}
}

// older says in what the log is older than what nodes trained.
func (m *Machine) older() string {
	past := m.past()
	nodes := m.tellers(past)
	step := m.state.Joiners[nodes[0]].Trained.Step
	return fmt.Sprintf(events.OlderLog+": it ends at generation %d, and %s trained under generation %d, to step %d. Nothing is "+
		"decided until an operator has put the newer log back, or runs: reknit log accept", m.state.generation(),
		named(nodes, func(node string) string { return node }), past.Generation, step)
}

// Halted says why nothing is decided until an operator decides; empty where something is.
func (m *Machine) Halted() string {
	if m.state.Hold.Active && m.state.Hold.Older && m.isOutdone() {
		return m.older()
	}
	return ""
}

// accepted goes on from what living nodes hold, where the log is older than that.
func (m *Machine) accepted(_ events.Acceptance) {
	if !m.isOutdone() {
		return
	}
	m.state.Recall.Accepted = true
	m.renew()
}

// known returns the generation of the newest plan that anybody speaks of.
func (m *Machine) known() uint64 {
	newest := max(m.state.generation(), m.state.Recall.Floor.Generation)
	if m.isForgotten() {
		return max(newest, m.past().Generation)
	}
	return newest
}

// recalls returns the members that are to tell the plan that the log has lost; none where it has not.
func (m *Machine) recalls(members []events.Member) (asked []string) {
	if !m.isForgotten() {
		return nil
	}
	past := m.past()
	for _, member := range members {
		joiner := m.state.Joiners[member.Node]
		if joiner != nil && joiner.Trained != nil && joiner.Trained.Plan == past.Plan && len(asked) < mostRecalls {
			asked = append(asked, member.Node)
		}
	}
	return asked
}

// recalled takes the plan that a member tells for the one in force, and negotiates anew. If all who are asked have told nothing, or
// another plan, they are refused: they ask again, and nobody begins anew with them or waits for them.
func (m *Machine) recalled(consent events.Consent) {
	under, past := m.state.Negotiation, m.past()
	if plan := consent.Plan; plan != nil && m.isThat(plan, past) {
		few := &m.state.Recall.Few
		few.Plan, few.Placed = past.Plan, len(placedBy(plan)) // who tells another each time gains no time
		if m.lacksTellers() {
			m.awaitTellers(plan, past)
			return
		}
		m.takeBack(plan, past.Plan)
		reason := fmt.Sprintf("the log had lost plan %d, and %s told it", plan.Generation, consent.Node)
		if later := m.newestTold(plan.Generation); later.Generation > 0 {
			reason += fmt.Sprintf("; too few tell of plan %d to be followed", later.Generation)
		}
		m.ends(reason)
		m.agenda.whose = "it is the job of those who trained before: " + reason
		return
	}
	under.Consents[consent.Node] = events.Consent{Node: consent.Node}
	m.answered(consent.Node)
	if !m.allAnswered() {
		return
	}
	for _, node := range under.Opening.Recalls {
		if joiner := m.state.Joiners[node]; joiner != nil {
			m.state.Gone[node] = joiner.Incarnation // nobody waits for what it does not have
		}
	}
	reason := fmt.Sprintf("it says that it trained under plan %d, which the log does not have, and does not tell that plan", past.Generation)
	m.ends(reason)
	m.refusing(reason, func(change events.Change) bool { return slices.Contains(under.Opening.Recalls, change.Node) })
}

// awaitTellers has the others come who trained under a plan that few tell of.
func (m *Machine) awaitTellers(plan *events.Plan, past events.Trained) {
	tellers := m.tellers(past)
	missing := slices.DeleteFunc(placedBy(plan), func(node string) bool { return slices.Contains(tellers, node) })
	reason := fmt.Sprintf("the log had lost plan %d, and of %d nodes that trained under it %d tell it: the others have %d s to come",
		plan.Generation, len(placedBy(plan)), len(tellers), fewSeconds)
	m.ends(reason)
	m.stuckFor(fewSeconds, reason, missing...)
}

// placedBy returns the nodes that a plan gives something to train, in the plan's order.
func placedBy(plan *events.Plan) (nodes []string) {
	holds := plan.HoldsOfAll()
	for _, member := range plan.Nodes {
		if _, placed := holds[member.Node]; placed {
			nodes = append(nodes, member.Node)
		}
	}
	return nodes
}

// isThat reports whether a plan is the one that nodes said they trained under, and fits the job.
func (m *Machine) isThat(plan *events.Plan, past events.Trained) bool {
	data, err := json.Marshal(plan)
	return err == nil && events.Digest(data) == past.Plan && plan.Generation == past.Generation &&
		plan.Cluster == m.settings.Cluster && plan.UnitCount() == m.state.Job.Units()
}

// takeBack makes a plan the one in force, of whose members none is here yet.
func (m *Machine) takeBack(plan *events.Plan, digest string) {
	known := m.state.Recall
	m.state.Plan, m.state.PlanDigest, m.state.WentBack = plan, digest, plan.Snapshot != ""
	m.state.Recall = recall{Taken: plan.Generation, Told: known.Told, Floor: known.Floor}
	m.state.History = protocol.History{}.From("", plan.ResumeStep)
	m.state.Data = protocol.Data{}.From(plan.ResumeStep, plan.Data.ConsumedSamples, plan.Data.GlobalBatch)
	m.state.Paused, m.state.Deferred, m.state.Abandoned = true, true, plan.Generation
	m.state.Committed, m.state.Stopped = m.cause.Logged, m.cause.Logged
	for _, node := range placedBy(plan) {
		m.state.Pending = append(m.state.Pending, events.Change{Kind: events.ChangeFailure, Node: node, Cause: m.cause.ID})
	}
}
