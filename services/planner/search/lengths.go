package search

// mix finds slots for so many pipelines whose sizes sum to size and which can take at least need micro-batches. A slot
// of size i takes capacity[i] (0: there can be no such pipeline). It returns how many slots there are of each size, nil
// where there are none.
//
// Equal sizes are preferred, then a mix of two. A fractional mix of two bounds what any mix can take, and only where
// that is enough but no such whole mix is, the integer problem is solved.
func mix(capacity []int, pipelines, size, need int) []int {
	if size < 0 || size > pipelines*(len(capacity)-1) {
		return nil
	}
	if counts := even(capacity, pipelines, size, need); counts != nil {
		return counts
	}
	counts, best := pairs(capacity, pipelines, size, need)
	if counts != nil || best == nil {
		return counts
	}
	return best.whole(capacity, pipelines, size, need)
}

// even tries sizes that differ by one at most.
func even(capacity []int, pipelines, size, need int) []int {
	counts := make([]int, len(capacity)+1)
	counts[size/pipelines] = pipelines - size%pipelines
	counts[size/pipelines+1] = size % pipelines
	if counts = counts[:len(capacity)]; !enough(capacity, counts, need) {
		return nil
	}
	return counts
}

func enough(capacity, counts []int, need int) bool {
	sum := 0
	for i, count := range counts {
		if count > 0 && capacity[i] == 0 {
			return false
		}
		sum += count * capacity[i]
	}
	return sum >= need
}

// line is a fractional mix of two sizes, short and long: of all such mixes the one that takes the most.
type line struct {
	short, long int
	spare       int // what it takes beyond the need, times (long - short)
}

// pairs tries every two sizes around the mean, with a third for what is left over. It returns the best fractional mix
// instead if none is enough, or nil if even that is not enough, so that no mix is.
func pairs(capacity []int, pipelines, size, need int) (counts []int, best *line) {
	for short := 0; short*pipelines <= size; short++ {
		for long := len(capacity) - 1; long > short && long*pipelines >= size; long-- {
			if capacity[short] == 0 || capacity[long] == 0 {
				continue
			}
			onLong, onShort := size-short*pipelines, long*pipelines-size
			spare := capacity[short]*onShort + capacity[long]*onLong - need*(long-short)
			if spare < 0 {
				continue
			}
			if best == nil || spare*(best.long-best.short) > best.spare*(long-short) {
				best = &line{short, long, spare}
			}
			counts := make([]int, len(capacity))
			counts[long], counts[short] = onLong/(long-short), pipelines-onLong/(long-short)
			if over := onLong % (long - short); over > 0 {
				counts[short]--
				counts[short+over]++
			}
			if enough(capacity, counts, need) {
				return counts, best
			}
		}
	}
	return nil, best
}

// whole solves the integer problem. Every size lies on the line or below it; a mix that is enough uses none that lies
// below by more than the line has to spare, which leaves few.
func (l *line) whole(capacity []int, pipelines, size, need int) []int {
	first, last := len(capacity), 0
	near := make([]int, len(capacity))
	for i, value := range capacity {
		below := capacity[l.short]*(l.long-i) + capacity[l.long]*(i-l.short) - value*(l.long-l.short)
		if value > 0 && below <= l.spare {
			near[i] = value
			first, last = min(first, i), max(last, i)
		}
	}
	size -= first * pipelines
	h := &halving{capacity: near[first : last+1], size: size, pipelines: pipelines, tables: map[int]table{}}
	if h.table(pipelines).at(size) < need {
		return nil
	}
	counts := make([]int, len(capacity))
	h.collect(pipelines, size, counts[first:])
	return counts
}

// halving knows the most micro-batches that k pipelines can take on slots of total size m, for m near k times the mean.
// The best for k follows from the best for k/2, and need be known only near the mean, because any set of slots can be
// halved so that both halves stay near it (Jansen and Rohwedder, "On Integer Programming, Discrepancy, and
// Convolution"). O(log(pipelines) * sizes^2), however many nodes there are.
type halving struct {
	capacity        []int
	size, pipelines int
	tables          map[int]table // by k; looked up, never ranged over
}

type table struct {
	first int // the total size that most[0] is for
	most  []int
}

const none = -1 << 60

func (t table) at(size int) int {
	if i := size - t.first; i >= 0 && i < len(t.most) {
		return t.most[i]
	}
	return none
}

// window is the range of totals to know for k slots. A set of k whose total is within r of k times the mean can be cut
// in two, exchanging one member at a time, so that a part is within d/2 of its share of the total, hence within d/2 +
// 2r/3 of its own mean (2/3: two of three), d being the largest size. This is at most r if r = 3d/2.
func (h *halving) window(k int) (first, last int) {
	r := 3*(len(h.capacity)-1)/2 + 1
	mean := k * h.size / h.pipelines
	return max(0, mean-r), min(k*(len(h.capacity)-1), mean+1+r)
}

func (h *halving) table(k int) table {
	if t, ok := h.tables[k]; ok {
		return t
	}
	first, last := h.window(k)
	t := table{first, make([]int, last-first+1)}
	for i := range t.most {
		if k == 1 {
			t.most[i] = h.single(first + i)
		} else {
			t.most[i], _ = h.best(k, first+i)
		}
	}
	h.tables[k] = t
	return t
}

func (h *halving) single(size int) int {
	if h.capacity[size] == 0 {
		return none
	}
	return h.capacity[size]
}

// best is the most that k slots of total size m take, and the total size of the first half of them.
func (h *halving) best(k, m int) (most, half int) {
	left, right := h.table(k/2), h.table(k-k/2)
	most = none
	for i, value := range left.most {
		if sum := value + right.at(m-left.first-i); sum > most {
			most, half = sum, left.first+i
		}
	}
	return most, half
}

// collect counts the sizes of the best k slots of total size m.
func (h *halving) collect(k, m int, counts []int) {
	if k == 1 {
		counts[m]++
		return
	}
	_, half := h.best(k, m)
	h.collect(k/2, half, counts)
	h.collect(k-k/2, m-half, counts)
}
