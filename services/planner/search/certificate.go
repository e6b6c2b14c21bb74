package search

import (
	"fmt"
	"slices"
)

// lowerBound is a step time that no plan of these degrees can beat, proven where that is the best one found. The search
// itself proves its answer; only where a split search gave up is it gone through again with what is certain, an
// undecided split counting as found.
func (s *searcher) lowerBound(best float64, degrees []degree) (bound float64, proven bool) {
	gaveUp := slices.ContainsFunc(degrees, func(d degree) bool { return s.at(d.pipelines).gaveUp })
	if !gaveUp || !s.maybe(before(best), degrees) {
		return best, true
	}
	low, high := 0.0, best
	for range certificateSteps {
		if middle := low + (high-low)/2; s.maybe(middle, degrees) {
			high = middle
		} else {
			low = middle
		}
	}
	return low, false
}

// synced is a bound on all of these degrees with the all-reduces of each.
func (s *searcher) synced(bound float64, degrees []degree) float64 {
	if s.Least == nil {
		return bound
	}
	least := never
	for _, d := range degrees {
		train, sync := s.Least(d.pipelines)
		least = min(least, max(bound, d.floor, train)+sync)
	}
	return least
}

const certificateSteps = 16 // to 1/65536 of the step time

// maybe reports whether a plan that takes at most limit seconds cannot be excluded.
func (s *searcher) maybe(limit float64, degrees []degree) bool {
	capacity := map[*searcher][]int{} // looked up, never ranged over
	for _, d := range degrees {
		if d.floor > limit {
			continue
		}
		at := s.at(d.pipelines)
		if capacity[at] == nil {
			capacity[at] = at.notExcluded(limit)
		}
		if at.counts(d.pipelines, capacity[at], !s.EveryNode) != nil {
			return true
		}
	}
	return false
}

// notExcluded is how many micro-batches a pipeline of each length might take within the limit, for all that was proven.
func (s *searcher) notExcluded(limit float64) []int {
	capacity := make([]int, len(s.inMemory))
	for length := s.PipelineLength.Least; length < len(capacity); length++ {
		most := s.floorCapacity(length, limit)
		for _, fact := range s.proven[length] {
			if fact.above >= limit {
				most = min(most, fact.microBatches-1)
			}
		}
		capacity[length] = most
	}
	return capacity
}

// explain says which limit excluded everything, after the plain counts were found in order. What it says of memory is
// of the widest plans.
func (s *searcher) explain() error {
	shortest := s.PipelineLength.Least
	for shortest <= s.PipelineLength.Most && s.inMemory[shortest] == 0 {
		shortest++
	}
	pipelines, memory := s.DataParallel.Least, s.NodeMemoryBytes
	switch {
	case shortest > s.PipelineLength.Most:
		return fmt.Errorf("search: nodeMemoryBytes is %d, too little for any pipeline of %d to %d stages: %w",
			memory, s.PipelineLength.Least, s.PipelineLength.Most, ErrInfeasible)
	case shortest*pipelines > s.Nodes:
		return fmt.Errorf("search: nodes is %d, but with nodeMemoryBytes %d a pipeline has at least %d stages and dataParallel.least is %d: %w",
			s.Nodes, memory, shortest, pipelines, ErrInfeasible)
	case s.EveryNode:
		return fmt.Errorf("search: everyNode is set, but no plan within dataParallel %v and pipelineLength %v uses exactly %d nodes: %w",
			s.DataParallel, s.PipelineLength, s.Nodes, ErrInfeasible)
	}
	return fmt.Errorf("search: nodeMemoryBytes is %d, too little to keep %d microBatches in flight on %d nodes: %w",
		memory, s.MicroBatches, s.Nodes, ErrInfeasible)
}
