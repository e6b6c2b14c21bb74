package search

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
)

// lowerBound is a step time that no plan of these degrees can beat, proven where that is the best one found. The search
// itself proves its answer; only where a split search gave up is it gone through again with what is certain, an
// undecided split counting as found.
func (s *searcher) lowerBound(best float64, degrees []degree) (bound float64, proven bool) {
	gaveUp := slices.ContainsFunc(degrees, func(d degree) bool {
		return slices.ContainsFunc(s.at(d.pipelines).fullestFirst(), func(at *searcher) bool { return at.gaveUp })
	})
	if !gaveUp {
		return best, true
	}
	open := s.openDegrees(degrees)
	if !open.reach(before(best)) {
		return best, true
	}
	low, high := degrees[0].step(), best
	for range certificateSteps {
		middle := low + (high-low)/2
		if open.reach(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return low, false
}

const certificateSteps = 6 // to a 64th of what lies between the floor and the step time

// fullestFirst is the searcher and those with a limit to the gradients of a stage, in the order of their limits.
func (s *searcher) fullestFirst() []*searcher {
	all := []*searcher{s}
	for _, bytes := range slices.Backward(slices.Sorted(maps.Keys(s.capped))) {
		all = append(all, s.capped[bytes])
	}
	return all
}

// openDegrees are degrees of which it is to be told how fast their plans may be.
type openDegrees struct {
	of      *searcher
	degrees []degree
	above   []float64 // of each degree: no plan takes so long or less
	likely  int       // which of them was the last that could not be excluded
}

func (s *searcher) openDegrees(degrees []degree) *openDegrees {
	return &openDegrees{of: s, degrees: degrees, above: make([]float64, len(degrees))}
}

// reach reports whether a plan of one of the degrees that takes at most limit seconds cannot be excluded. One is enough,
// and the one of the last answer is looked at first, so that most answers look at few of a thousand degrees.
func (o *openDegrees) reach(limit float64) bool {
	for i := range o.degrees {
		at := (o.likely + i) % len(o.degrees)
		switch {
		case o.above[at] >= limit:
		case o.of.maybe(limit, o.degrees[at]):
			o.likely = at
			return true
		default:
			o.above[at] = limit
		}
	}
	return false
}

func (s *searcher) maybe(limit float64, d degree) bool {
	widest := s.at(d.pipelines)
	if widest.counts(d.pipelines, widest.notExcluded(limit-d.sync), !s.EveryNode) == nil {
		return false // whatever the limit to the gradients
	}
	all := widest.fullestFirst()
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
}

// notExcluded is how many micro-batches a pipeline of each length might take within the limit, for all that was proven.
func (s *searcher) notExcluded(limit float64) []int {
	capacity := slices.Clone(s.floorCapacities(s.PipelineLength.Least, roundedUp(limit)))
	for length := s.PipelineLength.Least; length < len(capacity); length++ {
		for of := s.oracle; of != nil; of = of.freer {
			for _, fact := range of.proven[length] {
				if fact.above >= limit {
					capacity[length] = min(capacity[length], fact.microBatches-1)
				}
			}
		}
	}
	return capacity
}

// roundedUp is a limit a thousandth longer at most, so that degrees whose all-reduces differ by little share what is known.
func roundedUp(limit float64) float64 {
	fraction, exponent := math.Frexp(limit)
	return math.Ldexp(math.Ceil(fraction*2048)/2048, exponent)
}

// explain says which limit excluded everything, after the plain counts were found in order. Its words on memory are
// about the widest plans.
func (s *searcher) explain() error {
	shortest := s.PipelineLength.Least
	for shortest <= s.PipelineLength.Most && s.inMemory[shortest] == 0 {
		shortest++
	}
	pipelines, memory := s.DataParallel.Least, estimate.Bytes(s.NodeMemoryBytes)
	switch {
	case shortest > s.PipelineLength.Most:
		return fmt.Errorf("search: %v of memory a node are too little for any pipeline of %d to %d stages: the longest needs %v: %w",
			memory, s.PipelineLength.Least, s.PipelineLength.Most, estimate.Bytes(s.leastMemory()), ErrInfeasible)
	case shortest*pipelines > s.Nodes:
		return fmt.Errorf("search: %d nodes of %v of memory are too few for %d x %d stages (pipelines x stages of each): %w",
			s.Nodes, memory, max(1, pipelines), shortest, ErrInfeasible)
	case s.EveryNode:
		return fmt.Errorf("search: everyNode is set, but no plan within dataParallel %v and pipelineLength %v uses exactly %d nodes: %w",
			s.DataParallel, s.PipelineLength, s.Nodes, ErrInfeasible)
	}
	if s.Below < never {
		return fmt.Errorf("search: below is %v s, which no plan takes: %w", s.Below, ErrInfeasible)
	}
	return fmt.Errorf("search: %v of memory a node are too little to keep %d micro-batches in flight on %d nodes: %w",
		memory, s.MicroBatches, s.Nodes, ErrInfeasible)
}

// leastMemory is the bytes of a node with which the longest pipeline fits for one micro-batch: the more stages there are, the fewer layers
// each has. O(stages * layers * log bytes).
func (s *searcher) leastMemory() int64 {
	given, longest := s.memoryBytes, s.PipelineLength.Most
	defer func() { s.memoryBytes = given }()
	low, high := given, s.static[len(s.layers)]+s.activation[len(s.layers)]
	for low < high {
		s.memoryBytes = low + (high-low)/2
		if s.reach(s.shape(longest, 1), never) {
			high = s.memoryBytes
		} else {
			low = s.memoryBytes + 1
		}
	}
	return low
}
