package machine

import (
	"fmt"

	"github.com/reknit/reknit/events"
)

// gatherSeconds is the time from a join until the cluster says that its first plan waits for more nodes. Nodes that are
// started together come within it, and each would otherwise be told of all others' arrivals. It does not begin anew with
// each: a trainer that is restarted for ever would have nothing said.
const gatherSeconds = 3

// lacks returns how many nodes are to come before the first plan, or the first after a stop: the operator or the job may want
// several.
func (m *Machine) lacks() int {
	if !m.isFirst() && m.state.Stop == nil || len(m.state.Joiners) == 0 || m.isForgotten() {
		return 0
	}
	agree, undecided := m.agreeing()
	if _, lacks := m.lastStep(); lacks {
		undecided = max(undecided, 1)
	}
	return max(undecided, max(m.settings.StartNodes, m.state.Job.LeastNodes())-agree)
}

// tryAgain negotiates what the cluster was held for, or says for how many nodes its first plan waits.
func (m *Machine) tryAgain() {
	m.state.Hold.Seconds = 0 // who joins next, after all who joined are gone, has the time begin anew
	m.state.Recall.Gathered = m.isForgotten() && m.state.Recall.Gathers
	m.state.Recall.Few.Patient = m.state.Recall.Few.Plan != ""
	if m.lacks() <= 0 {
		m.agenda.opens = true
		return
	}
	if _, lacks := m.lastStep(); lacks {
		m.awaitOthers()
		return
	}
	wanted := fmt.Sprintf("the job needs at least %d", m.state.Job.LeastNodes())
	if m.settings.StartNodes > m.state.Job.LeastNodes() {
		wanted = fmt.Sprintf("the first plan is to have %d (REKNIT_START_NODES)", m.settings.StartNodes)
	}
	m.stuck(fmt.Sprintf("waiting for more nodes: %d joined, %s%s", len(m.state.Joiners), wanted, m.quarrel()))
}

// takeJob makes the job of a node that joins the cluster's, where there is no plan, or training begins anew, and nobody else waits for one:
// who corrects its job and comes again is not held to the mistake.
func (m *Machine) takeJob(join events.Join) {
	others := len(m.state.Joiners)
	if m.state.Joiners[join.Node] != nil {
		others--
	}
	if m.isFirst() && others == 0 {
		m.state.Job = &join.Job
		m.forgetCosts()
	}
}

// takeSteps learns after how many steps the job ends from the first who knows it: who came before may not.
func (m *Machine) takeSteps(job events.Job) {
	if m.state.Job.Steps == 0 {
		m.state.Job.Steps = job.Steps
	}
}
