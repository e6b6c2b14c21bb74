package machine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
)

// A plan that begins training and waits for several nodes waits for as many that train one job. If those that joined do not, it is the job
// of most of them, and the others are refused; else whoever came first would define it, another user of the machine or a script with a
// slip.

// mostBids is how many different jobs may wait for a first plan.
const mostBids = 16

// isDecided reports whether it is decided which job the cluster trains. While nodes are asked for a plan that the log has lost it is not:
// one that tells no plan has no say.
func (m *Machine) isDecided() bool {
	under := m.state.Negotiation
	return !m.isFirst() || m.settings.StartNodes <= 1 || under != nil && len(under.Opening.Recalls) == 0
}

// elects reports whether the nodes that wait decide now which job the cluster trains.
func (m *Machine) elects() bool { return !m.isDecided() && m.state.Negotiation == nil }

// bid returns by which key a job is known among those that wait, or why it may not wait. Jobs that are alike have one key.
func (m *Machine) bid(join events.Join) (key, reason string) {
	if m.state.Bids == nil {
		m.state.Bids = map[string]*events.Job{}
		if m.state.Job != nil && len(m.state.Joiners) > 0 {
			m.state.Bids[""] = m.state.Job // of who asked to train on, and of who asked a build of before
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.state.Bids)) {
		if known := m.state.Bids[key]; m.differ(*known, join.Job) == nil {
			if known.Steps == 0 {
				known.Steps = join.Job.Steps
			}
			if known.FirstState == "" {
				known.FirstState = join.Job.FirstState
			}
			return key, ""
		}
	}
	m.forgetBids(join.Node)
	if len(m.state.Bids) >= mostBids {
		return "", fmt.Sprintf("nodes wait for the first plan with %d different jobs, and there may be no more", mostBids)
	}
	key = events.Digest([]byte(text(join.Job)))
	m.state.Bids[key] = &join.Job
	return key, ""
}

// forgetBids forgets the jobs with which nobody waits any more, or one node alone that comes again.
func (m *Machine) forgetBids(again string) {
	waits := map[string]bool{}
	for node, joiner := range m.state.Joiners {
		waits[joiner.Bid] = waits[joiner.Bid] || node != again
	}
	maps.DeleteFunc(m.state.Bids, func(key string, _ *events.Job) bool { return !waits[key] })
}

// vote is how many nodes wait with one job, and which of them has the least name.
type vote struct {
	nodes int
	first string
}

// votes counts who waits with each job, of those who trained under a plan; of all where no plan is given. O(n) for n nodes that wait.
func (m *Machine) votes(plan string) map[string]vote {
	votes := map[string]vote{}
	for node, joiner := range m.state.Joiners {
		if plan != "" && (joiner.Trained == nil || joiner.Trained.Plan != plan) {
			continue
		}
		counted, known := votes[joiner.Bid]
		if !known || node < counted.first {
			counted.first = node
		}
		counted.nodes++
		votes[joiner.Bid] = counted
	}
	return votes
}

// leading returns the job with which the most nodes wait, and how many these are; of two that as many have, the one whose first node has
// the lesser name. Those that trained before, under a plan that the log has lost, know which job that is.
func (m *Machine) leading() (key string, nodes int) {
	if len(m.state.Bids) == 1 { // as nearly always: a thousand nodes that come one after the other look for nobody
		for key := range m.state.Bids {
			return key, len(m.state.Joiners)
		}
	}
	plan := ""
	if m.isForgotten() {
		plan = m.past().Plan
	}
	votes := m.votes(plan)
	for other, vote := range votes {
		lead := votes[key]
		if vote.nodes > lead.nodes || vote.nodes == lead.nodes && vote.first < lead.first {
			key = other
		}
	}
	return key, votes[key].nodes
}

// bidders returns who waits with each job, by name.
func (m *Machine) bidders() map[string][]string {
	bidders := map[string][]string{}
	for _, node := range slices.Sorted(maps.Keys(m.state.Joiners)) {
		key := m.state.Joiners[node].Bid
		bidders[key] = append(bidders[key], node)
	}
	return bidders
}

// elect makes the job of most who wait the cluster's, once as many wait as the first plan is to have, and refuses the others. The job of
// those who say that they trained before refuses nobody until they have told their plan: see recalled.
func (m *Machine) elect() {
	if !m.elects() {
		return
	}
	key, nodes := m.leading()
	job, known := m.state.Bids[key]
	if !known {
		return // nobody waits
	}
	m.state.Job = job
	m.forgetCosts()
	all := len(m.state.Joiners)
	if len(m.state.Bids) == 1 || 2*nodes <= all || all < m.settings.StartNodes || m.isForgotten() {
		return
	}
	m.refuseOthers(fmt.Sprintf("it is the job of %s, %d of the %d nodes that wait for the first plan",
		named(m.bidders()[key], itself), nodes, all))
}

// refuseOthers refuses those who wait with another job than the cluster's, and says whose that is.
func (m *Machine) refuseOthers(whose string) {
	for _, node := range slices.Sorted(maps.Keys(m.state.Joiners)) {
		joiner := m.state.Joiners[node]
		job, known := m.state.Bids[joiner.Bid]
		if !known || m.differ(*m.state.Job, *job) == nil {
			continue
		}
		m.turnOut(node, m.saysOther(*job)+"; "+whose)
	}
}

// turnOut refuses a node that waits, for its job is not the cluster's.
func (m *Machine) turnOut(node, reason string) {
	refusal := refusalOf(events.ChangeJoin, node, reason)
	refusal.Incarnation, refusal.OtherJob = m.state.Joiners[node].Incarnation, true
	m.state.Pending = slices.DeleteFunc(m.state.Pending, func(change events.Change) bool { return change.Node == node })
	m.dropJoiner(node)
	m.refuse(refusal)
}

// agreeing returns how many of those who wait train the cluster's job, and how many at least must come before it is decided which that is.
func (m *Machine) agreeing() (nodes, undecided int) {
	if !m.elects() || len(m.state.Bids) < 2 {
		return len(m.state.Joiners), 0
	}
	if _, nodes = m.leading(); 2*nodes <= len(m.state.Joiners) {
		undecided = 1
	}
	return nodes, undecided
}

// quarrel says in which setting the jobs of those who wait differ, and between whom; empty where they do not.
func (m *Machine) quarrel() string {
	key, _ := m.leading()
	leading, known := m.state.Bids[key]
	if !m.elects() || !known || len(m.state.Bids) < 2 {
		return ""
	}
	bidders := m.bidders()
	if len(bidders) < 2 {
		return ""
	}
	says := "; their jobs differ"
	for _, other := range slices.SortedFunc(maps.Keys(bidders), func(a, b string) int { return slices.Compare(bidders[a], bidders[b]) }) {
		job, known := m.state.Bids[other]
		if other == key || !known {
			continue
		}
		if at := m.differ(*leading, *job); at != nil {
			says += fmt.Sprintf(", field %q: %s at %s, %s at %s", at.name, at.want, named(bidders[key], itself),
				at.got, named(bidders[other], itself))
		}
	}
	return events.Brief(says + ". The one that most have is the cluster's: end the others, or start more")
}

func itself(node string) string { return node }

// bidOf returns by which key the job of a node that joins is known, in what it is not the cluster's, and why it may not wait; each is empty
// where there is nothing to say.
func (m *Machine) bidOf(join events.Join) (key, other, full string) {
	if m.isDecided() {
		m.takeJob(join)
		if other = m.saysOther(join.Job); other != "" && !m.mayExtend(join.Job) {
			return "", other, ""
		}
	}
	if !m.isFirst() || m.settings.StartNodes <= 1 {
		return "", "", ""
	}
	if key, full = m.bid(join); m.state.Job == nil {
		m.state.Job = &join.Job
	}
	return key, "", full
}
