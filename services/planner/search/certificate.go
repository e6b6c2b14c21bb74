package search

import (
	"fmt"
	"maps"
	"slices"
)

// lowerBound is a step time that no plan of these degrees can beat, proven where that is the best one found. The search
// itself proves its answer; only where a split search gave up is it gone through again with what is certain, an
// undecided split counting as found.
func (s *searcher) lowerBound(best float64, degrees []degree) (bound float64, proven bool) {
	gaveUp := slices.ContainsFunc(degrees, func(d degree) bool {
		return slices.ContainsFunc(s.at(d.pipelines).fullestFirst(), func(at *searcher) bool { return at.gaveUp })
	})
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

const certificateSteps = 16 // to 1/65536 of the step time

// fullestFirst is the searcher and those with a limit to the gradients of a stage, in the order of their limits.
func (s *searcher) fullestFirst() []*searcher {
	all := []*searcher{s}
	for _, bytes := range slices.Backward(slices.Sorted(maps.Keys(s.capped))) {
		all = append(all, s.capped[bytes])
	}
	return all
}

// maybe reports whether a plan that takes at most limit seconds cannot be excluded.
func (s *searcher) maybe(limit float64, degrees []degree) bool {
	return slices.ContainsFunc(degrees, func(d degree) bool {
		all := s.at(d.pipelines).fullestFirst()
		for i, at := range all {
			sync := d.sync // a plan has as much to reduce, or more than the next limit
			if i+1 < len(all) {
				sync = max(sync, s.AllReduce.seconds(d.pipelines, all[i+1].mostGradient))
			}
			if d.floor+sync <= limit && at.counts(d.pipelines, at.notExcluded(limit-sync), !s.EveryNode) != nil {
				return true
			}
		}
		return false
	})
}

// notExcluded is how many micro-batches a pipeline of each length might take within the limit, for all that was proven.
func (s *searcher) notExcluded(limit float64) []int {
	capacity := make([]int, len(s.inMemory))
	for length := s.PipelineLength.Least; length < len(capacity); length++ {
		most := s.floorCapacity(length, limit)
		for of := s.oracle; of != nil; of = of.freer {
			for _, fact := range of.proven[length] {
				if fact.above >= limit {
					most = min(most, fact.microBatches-1)
				}
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
	if s.Below < never {
		return fmt.Errorf("search: below is %v s, which no plan takes: %w", s.Below, ErrInfeasible)
	}
	return fmt.Errorf("search: nodeMemoryBytes is %d, too little to keep %d microBatches in flight on %d nodes: %w",
		memory, s.MicroBatches, s.Nodes, ErrInfeasible)
}
