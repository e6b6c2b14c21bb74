package dtfm

import "slices"

// mixture is a group of a grid on a network of classes: which devices of a class does not matter.
type mixture struct {
	counts []int // by class
	load   float64
	self   float64 // hop to another group of the same mixture
}

const (
	mostClasses  = 10
	mostMixtures = 20_000
)

// count is the number of mixtures of so many devices, taken from the classes from one on. It stops counting beyond
// mostMixtures.
func (r *runs) count(class, left int) int {
	if class == len(r.classes)-1 {
		if left > len(r.classes[class]) {
			return 0
		}
		return 1
	}
	total := 0
	for count := 0; count <= min(left, len(r.classes[class])) && total <= mostMixtures; count++ {
		total += r.count(class+1, left-count)
	}
	return total
}

// mix lists all mixtures.
func (r *runs) mix(load [][]float64, counts []int, class, left int) {
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
		r.mixtures = append(r.mixtures, m)
		return
	}
	for count := range min(left, len(r.classes[class])) + 1 {
		counts[class] = count
		r.mix(load, counts, class+1, left-count)
	}
	counts[class] = 0
}

// crossing is the slowest hop of the best pairing of two mixtures: the least value at which every set of devices of the
// one has enough partners in the other (Hall).
func (r *runs) crossing(left, right []int) float64 {
	low, high := 0, len(r.values)-1
	for low < high {
		if middle := (low + high) / 2; r.hall(left, right, r.values[middle]) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return r.values[low]
}

func (r *runs) hall(left, right []int, value float64) bool {
	var has [mostClasses]int
	var partners [mostClasses]int // a set of classes
	n := 0
	for a, count := range left {
		if count == 0 {
			continue
		}
		for b := range right {
			if r.hop[a][b] <= value {
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
