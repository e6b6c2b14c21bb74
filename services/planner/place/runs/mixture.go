package runs

import "slices"

// mixture is a group of a grid on a network of classes: which devices of a class does not matter.
type mixture struct {
	counts []int // by class
	load   float64
	self   float64 // hop to another group of the same mixture
}

// MostClasses is how many classes a network has at most, and mostMixtures how many mixtures.
const (
	MostClasses  = 10
	mostMixtures = 20_000
)

// count is the number of mixtures of so many devices, taken from the classes from one on. It stops counting beyond
// mostMixtures.
func (s *Search) count(class, left int) int {
	if class == len(s.devices)-1 {
		if left > s.devices[class] {
			return 0
		}
		return 1
	}
	total := 0
	for count := 0; count <= min(left, s.devices[class]) && total <= mostMixtures; count++ {
		total += s.count(class+1, left-count)
	}
	return total
}

// mix lists all mixtures.
func (s *Search) mix(load [][]float64, counts []int, class, left int) {
	if class == len(counts) {
		if left > 0 {
			return
		}
		m := mixture{counts: slices.Clone(counts)}
		for a, count := range counts {
			if count == 0 {
				continue
			}
			seconds := -load[a][a]
			for b, others := range counts {
				seconds += float64(others) * load[a][b]
			}
			m.load = max(m.load, seconds)
		}
		s.mixtures = append(s.mixtures, m)
		return
	}
	for count := range min(left, s.devices[class]) + 1 {
		counts[class] = count
		s.mix(load, counts, class+1, left-count)
	}
	counts[class] = 0
}

// crossing is the slowest hop of the best pairing of two mixtures: the least value at which every set of devices of the
// one has enough partners in the other (Hall).
func (s *Search) crossing(left, right []int) float64 {
	low, high := 0, len(s.values)-1
	for low < high {
		if middle := (low + high) / 2; s.hall(left, right, s.values[middle]) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return s.values[low]
}

func (s *Search) hall(left, right []int, value float64) bool {
	var has [MostClasses]int
	var partners [MostClasses]int // a set of classes
	n := 0
	for a, count := range left {
		if count == 0 {
			continue
		}
		for b := range right {
			if s.hop[a][b] <= value {
				partners[n] |= 1 << b
			}
		}
		has[n] = count
		n++
	}
	for set := 1; set < 1<<n; set++ {
		need, all := 0, 0
		for i := range n {
			if set&(1<<i) != 0 {
				need += has[i]
				all |= partners[i]
			}
		}
		for b, count := range right {
			if all&(1<<b) != 0 {
				need -= count
			}
		}
		if need > 0 {
			return false
		}
	}
	return true
}
