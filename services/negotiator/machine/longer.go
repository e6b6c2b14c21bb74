package machine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
)

// A job that was stopped may be trained longer: its scripts say so when they are started again. One of them alone may be a stray, an old
// script or another user's, so that more than half of those have to say it who had a place when the job was stopped. They have as long
// to come as the hosts that have its snapshot.

// mayExtend reports whether a node may wait although its job has more steps than the cluster's: what else it is to train is the same.
func (m *Machine) mayExtend(job events.Job) bool {
	if m.state.Stop == nil || m.state.Negotiation != nil || m.state.Job.Steps == 0 || job.Steps <= m.state.Job.Steps {
		return false
	}
	job.Steps = m.state.Job.Steps
	return m.saysOther(job) == ""
}

// said is how many of those who wait say that the job has so many steps.
type said struct {
	placed int // of those who had a place when it was stopped
	all    int
}

// saidSteps counts who waits by the number of steps that its job has; a node that does not know it says nothing.
func (m *Machine) saidSteps() map[uint64]said {
	counts := map[uint64]said{}
	for node, joiner := range m.state.Joiners {
		if joiner.Steps == 0 {
			continue
		}
		counted := counts[joiner.Steps]
		counted.all++
		if m.placed(node) {
			counted.placed++
		}
		counts[joiner.Steps] = counted
	}
	return counts
}

// lastStep returns how many steps a job has that was stopped, by the words of those who wait. As long as that is not decided it returns
// what the most say, and that others are to come: a stray alone makes no job longer, and keeps nobody who trains it as it was waiting.
func (m *Machine) lastStep() (steps uint64, undecided bool) {
	own := m.state.Job.Steps
	counts := m.saidSteps()
	if m.state.Stop == nil || own == 0 || len(counts) == 0 || len(counts) == 1 && counts[own].all > 0 {
		return own, false
	}
	most, placed := own, 0
	for _, told := range slices.Sorted(maps.Keys(counts)) { // of two that as many say the lesser, and its own before all
		switch count := counts[told]; {
		case 2*count.placed > len(placedBy(m.state.Plan)):
			return told, false
		case count.all > counts[most].all:
			most = told
		}
		if told != own {
			placed += counts[told].placed
		}
	}
	if counts[own].all > 0 && placed == 0 {
		return own, false
	}
	return most, m.lackingFor(startSeconds) > 0
}

// awaitOthers says for whom a job waits that some want to be trained longer.
func (m *Machine) awaitOthers(cause events.Event, steps uint64) []events.Event {
	counts, says := m.saidSteps(), ""
	for _, told := range slices.Sorted(maps.Keys(counts)) {
		says += fmt.Sprintf(", %d by %s", told, named(m.saying(told), itself))
	}
	wait := m.lackingFor(startSeconds)
	reason := fmt.Sprintf("the job was stopped, and had %d steps; it is told to have%s. It is as more than half of the %d nodes say that had "+
		"a place: start the others. In %.0f s it is as most say who wait: %d steps", m.state.Job.Steps, says[1:],
		len(placedBy(m.state.Plan)), wait, steps)
	away := slices.DeleteFunc(placedBy(m.state.Plan), func(node string) bool { return m.state.Joiners[node] != nil })
	return m.holdFor(wait, events.Brief(reason), away...)(cause)
}

// saying returns the nodes that wait and say that the job has so many steps, by name.
func (m *Machine) saying(steps uint64) (nodes []string) {
	for _, node := range slices.Sorted(maps.Keys(m.state.Joiners)) {
		if m.state.Joiners[node].Steps == steps {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// extend has a job that was stopped end as those say who wait, once that is decided, and refuses the others.
func (m *Machine) extend(cause events.Event) (refused []events.Event) {
	if m.state.Stop == nil || m.state.Negotiation != nil {
		return nil
	}
	steps, undecided := m.lastStep()
	if undecided || len(m.state.Joiners) == 0 {
		return nil
	}
	if steps != m.state.Job.Steps {
		longer := *m.state.Job
		longer.Steps = steps
		m.state.Job = &longer
	}
	for _, node := range slices.Sorted(maps.Keys(m.state.Joiners)) {
		if told := m.state.Joiners[node].Steps; told != 0 && told != steps {
			refused = append(refused, m.turnOut(cause, node, m.saysSteps(steps, told))...)
		}
	}
	return refused
}

// saysSteps says that a job that was stopped has other steps than a node says, and what there is to do.
func (m *Machine) saysSteps(steps, told uint64) string {
	return fmt.Sprintf("field \"job.steps\": expected %d as in the cluster's job, got %d: a job that was stopped may be trained longer if "+
		"more than half of its nodes say so. To have it end after as many steps as those say who join: reknit cluster reset --from-snapshot",
		steps, told)
}
