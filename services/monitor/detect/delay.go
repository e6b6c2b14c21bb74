package detect

import (
	"cmp"
	"maps"
	"slices"
)

// Delay is a trainer for which others have waited in their step for longer than is usual. It may hang, or evaluate, or save:
// nobody can tell, so it is named, and nothing is done about it.
type Delay struct {
	Node, By      string // who waits longest
	Generation    uint64 // of the plan of those who wait
	Step          uint64 // completed steps of those who wait
	Phase         Phase  // of the node
	WaitedSeconds float64
	UsualSeconds  float64 // of a step, by who waits
}

const (
	mostDelays  = 8   // nodes that are named of one step: who is a hundredth of a thousand has no use for the rest
	heardLately = 2.0 // seconds: whose heartbeats are missed is the detector's
)

// Delays returns for whom others wait in each step, each node once a step, by name, in the earliest that shows it. Others wait for
// long where that would be long for a hang, whatever the node does: three steps and two seconds with the step that they are in. A node
// that has made no step yet may compile. O(n), and for each step in which somebody waits for long.
func (h *Hangs) Delays() (delays []Delay) {
	steps := h.steps()
	for _, at := range slices.SortedFunc(maps.Keys(steps), place.compare) {
		step := steps[at]
		if step.by == "" || step.waited <= step.limit {
			continue
		}
		named := h.awaited(at, step)
		for _, node := range named {
			h.nodes[node].delayed = true
			delays = append(delays, Delay{
				Node: node, By: step.by, Generation: at.generation, Step: at.step, Phase: h.nodes[node].told.Phase, WaitedSeconds: step.waited,
				UsualSeconds: h.nodes[step.by].told.StepSeconds,
			})
		}
	}
	slices.SortFunc(delays, func(a, b Delay) int { return cmp.Compare(a.Node, b.Node) })
	return delays
}

// awaited returns whom others wait for in a step, by name: those who were not named in it yet, of whom not too many were.
func (h *Hangs) awaited(at place, step *inStep) (nodes []string) {
	room := mostDelays
	for node, known := range h.nodes {
		isHere := known.at() == at || known.at() == place{at.generation, at.step - 1}
		switch {
		case !isHere || known.told.Phase == Waiting:
		case known.delayed:
			room--
		case known.told.Phase == Computing && known.spent() <= step.limit: // it is told as hanging by then, where that is certain
		case h.now-known.heard > heardLately, !known.hasTrained() && step.waited <= step.limit+firstSlack:
		default:
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes[:max(0, min(room, len(nodes)))]
}
