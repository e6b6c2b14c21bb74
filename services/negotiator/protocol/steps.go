package protocol

import (
	"maps"
	"slices"
)

const (
	// apart is how many steps two nodes of one plan can be apart when both are asked: in synchronous training one, and one
	// more for the step that either may have completed since.
	apart = 2
	// promisesApart is how many steps two promises can be apart: each lies up to two steps ahead of its node.
	promisesApart = apart + 1
)

// Window is the steps at which a unit can be. One node's word must not take everybody to a step that nobody reached.
type Window struct{ First, Last uint64 }

// Possible returns the window around what the nodes that train say. Steps are theirs, in completed steps; resume is the
// step of the plan in force, which no node lies further behind than a promise reaches ahead. The lower median of the
// steps decides: fewer than half of the nodes cannot move it out of what the others say. Without a word everything is
// possible.
func Possible(steps []uint64, resume uint64) Window {
	if len(steps) == 0 {
		return Window{0, ^uint64(0)}
	}
	middle := lowerMedian(steps)
	return Window{First: max(less(resume, promisesApart), less(middle, apart)), Last: middle + apart}
}

// Within returns the steps that lie in the window.
func (w Window) Within(steps []uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(steps), func(step uint64) bool { return step < w.First || step > w.Last })
}

// StopStep returns the step at which all stop: the latest that any member promised. A member may have begun the step
// before its promise when asked, so no earlier step is safe; and none waits longer, because in synchronous training a
// step ends only when all take part in it. Promises that no node of the same plan can have made are returned by their
// nodes, sorted, instead.
func StopStep(promises map[string]uint64) (stop uint64, impossible []string) {
	if len(promises) == 0 {
		return 0, nil
	}
	latest := lowerMedian(slices.Collect(maps.Values(promises))) + promisesApart
	for node, step := range promises {
		stop = max(stop, step)
		if step > latest {
			impossible = append(impossible, node)
		}
	}
	slices.Sort(impossible)
	return stop, impossible
}

func lowerMedian(steps []uint64) uint64 {
	sorted := slices.Sorted(slices.Values(steps))
	return sorted[(len(sorted)-1)/2]
}

func less(step, by uint64) uint64 { return step - min(step, by) }
