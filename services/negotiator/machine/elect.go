package machine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
)

// A first plan that waits for several nodes waits for as many that train one job. Where those that joined do not, it is the job of most of
// them, and the others are refused; else whoever came first would define it, another user of the machine or a script with a slip.

// mostBids is how many different jobs may wait for a first plan.
const mostBids = 16

// elects reports whether the nodes that wait decide which job the cluster trains.
func (m *Machine) elects() bool {
	return m.state.Plan == nil && m.settings.StartNodes > 1 && m.state.Negotiation == nil
}

// bid returns by which key a job is known among those that wait, or why it may not wait. Jobs that are alike have one key.
func (m *Machine) bid(join events.Join) (key, reason string) {
	if m.state.Bids == nil {
		m.state.Bids = map[string]*events.Job{}
		if m.state.Job != nil && len(m.state.Joiners) > 0 {
			m.state.Bids[""] = m.state.Job // builds of before remember the job of none of these
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.state.Bids)) {
		if known := m.state.Bids[key]; m.differ(*known, join.Job) == nil {
			if known.Steps == 0 {
				known.Steps = join.Job.Steps
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

// bidders returns who waits with each job.
func (m *Machine) bidders() map[string][]string {
	bidders := map[string][]string{}
	for _, node := range slices.Sorted(maps.Keys(m.state.Joiners)) {
		key := m.state.Joiners[node].Bid
		bidders[key] = append(bidders[key], node)
	}
	return bidders
}

// leading returns the job with which the most nodes wait, and whether these are more than half; of two that as many have, the one whose
// first node has the lesser name.
func (m *Machine) leading() (key string, most bool) {
	if len(m.state.Bids) == 1 { // as nearly always: a thousand nodes that come one after the other look for nobody
		for key := range m.state.Bids {
			return key, true
		}
	}
	if m.isForgotten() { // whoever trained before knows which job that is
		return m.state.Joiners[m.tellers(m.past())[0]].Bid, true
	}
	bidders := m.bidders()
	for other, nodes := range bidders {
		lead := bidders[key]
		if len(nodes) > len(lead) || len(nodes) == len(lead) && nodes[0] < lead[0] {
			key = other
		}
	}
	return key, 2*len(bidders[key]) > len(m.state.Joiners)
}

// elect makes the job of most who wait the cluster's, once as many wait as the first plan is to have, and refuses the others.
func (m *Machine) elect(cause events.Event) (said []events.Event) {
	if !m.elects() {
		return nil
	}
	key, most := m.leading()
	job, known := m.state.Bids[key]
	if !known {
		return nil // nobody waits
	}
	m.state.Job = job
	if !most || len(m.state.Bids) == 1 || len(m.state.Joiners) < m.settings.StartNodes && !m.isForgotten() {
		return nil
	}
	bidders, all := m.bidders(), len(m.state.Joiners)
	for _, node := range slices.Sorted(maps.Keys(m.state.Joiners)) {
		joiner := m.state.Joiners[node]
		if joiner.Bid == key {
			continue
		}
		refusal := refusalOf(events.ChangeJoin, node, fmt.Sprintf("%s; it is the job of %s, %d of the %d nodes that wait for the first plan",
			m.saysOther(*m.state.Bids[joiner.Bid]), named(bidders[key], itself), len(bidders[key]), all))
		refusal.Incarnation, refusal.OtherJob = joiner.Incarnation, true
		said = append(said, m.refuse(cause, refusal)...)
		m.state.Pending = slices.DeleteFunc(m.state.Pending, func(change events.Change) bool { return change.Node == node })
		m.dropJoiner(node)
	}
	return said
}

// agreeing returns how many of those who wait train the cluster's job, and how many at least must come before it is decided which that is.
func (m *Machine) agreeing() (nodes, undecided int) {
	if !m.elects() || len(m.state.Bids) < 2 {
		return len(m.state.Joiners), 0
	}
	key, most := m.leading()
	if !most {
		undecided = 1
	}
	return len(m.bidders()[key]), undecided
}

// quarrel says in which setting the jobs of those who wait differ, and between whom; empty where they do not.
func (m *Machine) quarrel() string {
	key, _ := m.leading()
	bidders := m.bidders()
	leading, known := m.state.Bids[key]
	if !m.elects() || !known || len(bidders) < 2 {
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

// bidOf returns by which key the job of a node that joins is known, and why that may not be; both are empty where it is the cluster's.
func (m *Machine) bidOf(join events.Join) (key, reason string) {
	if !m.elects() {
		m.takeJob(join)
		if reason = m.saysOther(join.Job); reason != "" {
			return "", reason
		}
	}
	if m.state.Plan != nil || m.settings.StartNodes <= 1 {
		return "", ""
	}
	if key, reason = m.bid(join); m.state.Job == nil {
		m.state.Job = &join.Job
	}
	return key, reason
}
