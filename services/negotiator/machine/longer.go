package machine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
)

// A job that was stopped may be trained longer: its scripts say so when they are started again. One of them alone may be a stray, an old
// script or another user's, so that more than half of those have to say it who had a place when the job was stopped. They have as long
// to come as the hosts that have its snapshot; then the job is as long as it was.

// mayExtend reports whether a node may wait although its job has more steps than the cluster's: what else it is to train is the same.
func (m *Machine) mayExtend(job events.Job) bool {
	if m.state.Stop == nil || m.state.Negotiation != nil || m.state.Job.Steps == 0 || job.Steps <= m.state.Job.Steps {
		return false
	}
	job.Steps = m.state.Job.Steps
	return m.saysOther(job) == ""
}

// said are those who wait and say that the job has so many steps.
type said struct {
	placed int      // how many of them had a place when it was stopped
	nodes  []string // by name
}

// saidSteps returns who waits by the number of steps that its job has, and how many nodes had a place; a node that does not know its steps
// says nothing. It takes time linear in the nodes.
func (m *Machine) saidSteps() (told map[uint64]said, placed int) {
	told = map[uint64]said{}
	places := m.state.Plan.HoldsOfAll()
	for _, node := range slices.Sorted(maps.Keys(m.state.Joiners)) {
		steps := m.state.Joiners[node].Steps
		if steps == 0 {
			continue
		}
		say := told[steps]
		say.nodes = append(say.nodes, node)
		if _, had := places[node]; had {
			say.placed++
		}
		told[steps] = say
	}
	return told, len(places)
}

// lastStep returns how many steps a job has that was stopped, by the words of those who wait, and whether others are to come before that
// is decided. A stray alone makes no job longer, and keeps nobody waiting who trains it as it was.
func (m *Machine) lastStep() (steps uint64, undecided bool) {
	own := m.state.Job.Steps
	if m.state.Stop == nil || own == 0 || m.state.Plan == nil {
		return own, false
	}
	told, placed := m.saidSteps()
	others := 0
	for steps, say := range told {
		switch {
		case 2*say.placed > placed:
			return steps, false
		case steps != own:
			others += say.placed
		}
	}
	if len(told) == 0 || len(told[own].nodes) > 0 && others == 0 {
		return own, false
	}
	return own, m.lackingFor(startSeconds) > 0
}

// awaitOthers says for whom a job waits that some want to be trained longer.
func (m *Machine) awaitOthers() {
	told, placed := m.saidSteps()
	says, wait := "", m.lackingFor(startSeconds)
	for _, steps := range slices.Sorted(maps.Keys(told)) {
		says += fmt.Sprintf(", %d by %s", steps, named(told[steps].nodes, itself))
	}
	reason := fmt.Sprintf("the job was stopped, and had %d steps; it is told to have%s. It is longer if more than half of the %d nodes say so "+
		"that had a place: start the others. In %.0f s it has %[1]d again. If so many do not come any more: reknit cluster reset "+
		"--from-snapshot", m.state.Job.Steps, says[1:], placed, wait)
	away := slices.DeleteFunc(placedBy(m.state.Plan), func(node string) bool { return m.state.Joiners[node] != nil })
	m.stuckFor(wait, events.Brief(reason), away...)
}

// extend has a job that was stopped end as those say who wait, once that is decided, and refuses the others.
func (m *Machine) extend() {
	if m.state.Stop == nil || m.state.Negotiation != nil {
		return
	}
	steps, undecided := m.lastStep()
	if undecided || len(m.state.Joiners) == 0 {
		return
	}
	if steps != m.state.Job.Steps {
		longer := *m.state.Job
		longer.Steps = steps
		m.state.Job = &longer
	}
	for _, node := range slices.Sorted(maps.Keys(m.state.Joiners)) {
		if told := m.state.Joiners[node].Steps; told != 0 && told != steps {
			m.turnOut(node, m.saysSteps(steps, told))
		}
	}
}

// saysSteps says that a job has other steps than a node says, and what there is to do.
func (m *Machine) saysSteps(steps, told uint64) string {
	return fmt.Sprintf("%s expected %d as in the cluster's job, got %d: a job that was stopped may be trained longer if "+
		"more than half of its nodes say so. To have it end after as many steps as those say who join: reknit cluster reset --from-snapshot",
		events.OtherSteps, steps, told)
}
