package runs

import "slices"

// level is what hops of at most some seconds connect: devices of a component can only be paired among themselves, and
// isolated ones with nobody.
type level struct {
	more      float64 // seconds to the next level
	component []int   // of each class
	isolated  []bool  // by component
	// every class is a component of its own, so that only equal mixtures meet; and runs end before others
	separate bool
}

// split lists the levels at which the components change.
func (s *Search) split() {
	for v, value := range s.values {
		next := level{component: make([]int, len(s.devices)), isolated: make([]bool, len(s.devices))}
		for class := range next.component {
			next.component[class] = class
		}
		for a := range s.devices {
			for b := range a {
				if s.hop[a][b] <= value {
					from, to := next.component[a], next.component[b]
					for class, c := range next.component {
						if c == from {
							next.component[class] = to
						}
					}
				}
			}
		}
		for class, c := range next.component {
			alone := true
			for other, oc := range next.component {
				alone = alone && (other == class || oc != c)
			}
			next.isolated[c] = next.isolated[c] || alone && s.hop[class][class] > value
		}
		next.separate = len(slices.Compact(slices.Sorted(slices.Values(next.component)))) == len(s.devices)
		if last := len(s.levels) - 1; v == 0 || !slices.Equal(s.levels[last].component, next.component) ||
			!slices.Equal(s.levels[last].isolated, next.isolated) {
			s.levels = append(s.levels, next)
		}
		if v+1 < len(s.values) {
			s.levels[len(s.levels)-1].more += s.values[v+1] - value
		}
	}
}

// rest is a lower bound on the hops that follow a mixture (nil: at the start) through so many groups of what is left;
// it is worked out no further than to enough.
func (s *Search) rest(last, left []int, groups int, enough float64) float64 {
	hops := groups
	if last == nil {
		hops--
	}
	least := float64(hops) * s.values[0]
	for i := range s.levels {
		l := &s.levels[i]
		if l.more == 0 {
			continue
		}
		breaks := min(hops, l.breaks(last, left, groups, s.size))
		least += l.more * float64(breaks)
		if breaks == 0 || least >= enough {
			break
		}
	}
	return least
}

// breaks is a lower bound on the hops beyond the level. Between them, the numbers of devices of each component stay.
func (l *level) breaks(last, left []int, groups, size int) int {
	var supply, now [MostClasses]int
	alone := 0
	for class, count := range left {
		c := l.component[class]
		supply[c] += count
		if l.isolated[c] {
			alone += count
		}
	}
	least := (alone + size - 1) / size // groups with isolated devices are entered by such a hop
	if last == nil {
		for _, amount := range supply {
			if amount%groups != 0 {
				return max(least, 1)
			}
		}
		return least
	}
	if least >= 2 || groups == 0 {
		return least
	}
	for class, count := range last {
		now[l.component[class]] += count
	}
	same := true
	for c := range left {
		same = same && supply[c] == groups*now[c]
	}
	if same && !l.separate {
		return least
	}
	for kept := range groups {
		if kept > 0 && l.separate {
			break
		}
		if constant(supply[:len(left)], now[:len(left)], kept, groups-kept) {
			return max(least, 1)
		}
	}
	return 2
}

// constant reports whether what is left after some groups like now makes up so many equal ones.
func constant(supply, now []int, kept, groups int) bool {
	for c, amount := range supply {
		left := amount - kept*now[c]
		if left < 0 || left%groups != 0 {
			return false
		}
	}
	return true
}
