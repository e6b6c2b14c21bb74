package search

import (
	"fmt"
	"math"
	"sort"

	"github.com/reknit/reknit/services/planner/estimate"
)

// AllReduce is what follows once the slowest pipeline has ended: the holders of each layer sum its gradients around a
// ring of like links. The stage with most gradients takes longest, and the restorer's rounds take no longer than it.
type AllReduce struct {
	GradientBytes  []int64 // per layer; nil: none
	BytesPerSecond float64 // of a link; 0: summing takes no time
	LatencySeconds float64
}

func (r AllReduce) check(layers int) error {
	if r.GradientBytes != nil && len(r.GradientBytes) != layers {
		return fmt.Errorf("allReduce.gradientBytes is %d numbers, expected one for each of the %d layers",
			len(r.GradientBytes), layers)
	}
	for layer, bytes := range r.GradientBytes {
		if bytes < 0 {
			return fmt.Errorf("allReduce.gradientBytes[%d] is %d, expected at least 0", layer, bytes)
		}
	}
	if !usable(r.BytesPerSecond) || !usable(r.LatencySeconds) {
		return fmt.Errorf("allReduce is %v bytes a second after %v s, expected finite numbers of at least 0",
			r.BytesPerSecond, r.LatencySeconds)
	}
	return nil
}

// seconds that a step takes longer where the fullest stage of so many pipelines has so many bytes of gradients.
func (r AllReduce) seconds(pipelines int, fullest int64) float64 {
	if r.GradientBytes == nil || r.BytesPerSecond == 0 {
		return 0
	}
	return estimate.RingSeconds(fullest, pipelines, r.BytesPerSecond, r.LatencySeconds)
}

// within is about how many bytes the fullest stage may have so that it takes so many seconds; -1 where even none takes
// longer.
func (r AllReduce) within(pipelines int, seconds float64) int64 {
	fixed := r.seconds(pipelines, 0)
	perByte := (r.seconds(pipelines, 1<<40) - fixed) / (1 << 40)
	switch bytes := (seconds - fixed) / perByte; {
	case seconds < fixed:
		return -1
	case perByte == 0 || bytes >= noLimit:
		return noLimit
	default:
		return int64(bytes)
	}
}

const noLimit = math.MaxInt64

// fullest is the most bytes of gradients that a stage of the mix has.
func (m lengthMix) fullest(gradient []int64) int64 {
	fullest := int64(0)
	for length, count := range m.counts {
		if count == 0 {
			continue
		}
		for s := range length {
			fullest = max(fullest, gradient[m.starts[length][s+1]]-gradient[m.starts[length][s]])
		}
	}
	return fullest
}

// leastFullest is the bytes of the fullest stage where the gradients alone decide on the split into so many stages.
func (m *model) leastFullest(stages int) int64 {
	if known, ok := m.leastBytes[stages]; ok {
		return known
	}
	low, high := int64(0), m.gradient[len(m.layers)]
	for layer := range m.layers {
		low = max(low, m.gradient[layer+1]-m.gradient[layer])
	}
	for low < high {
		if middle := low + (high-low)/2; m.stagesOf(middle) <= stages {
			high = middle
		} else {
			low = middle + 1
		}
	}
	m.leastBytes[stages] = low
	return low
}

// stagesOf is how few stages there can be of at most so many bytes of gradients each, none of whose layers has more.
func (m *model) stagesOf(bytes int64) int {
	stages := 0
	for first := 0; first < len(m.layers); stages++ {
		first += sort.Search(len(m.layers)-first, func(i int) bool {
			return m.gradient[first+i+1]-m.gradient[first] > bytes
		})
	}
	return stages
}

// under is the searcher for plans no stage of which has more than so many bytes of gradients.
func (s *searcher) under(bytes int64) *searcher {
	if bytes >= s.mostGradient {
		return s
	}
	capped := s.capped[bytes]
	if capped == nil {
		capped = newCapped(s.Problem, bytes, s.paths, s.inVain)
		capped.freer, capped.floors = s.oracle, s.floors
		s.capped[bytes] = capped
	}
	capped.search(s.roughly)
	return capped
}
