// Package chaos is problem P4 of the Chaos papers: how many equal shards of a replica each neighbour sends, and how
// large a shard may be. The restorer plans the fetches of all nodes at once instead (replicate.PlanFetch).
package chaos

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// Neighbour is a source of equal shards: it has sent n of them StartNanoseconds + n*ShardNanoseconds from now.
type Neighbour struct {
	StartNanoseconds int64 // until it can begin: propagation, and the all-reduce it is in
	ShardNanoseconds int64 // for each shard, at least 1
}

// Use says whether a neighbour may stay idle.
type Use bool

const (
	// AnyNeighbour leaves a neighbour idle where that is faster. It is never slower than EveryNeighbour.
	AnyNeighbour Use = false
	// EveryNeighbour takes at least one shard from each, as in the wide-area Chaos paper.
	EveryNeighbour Use = true
)

// ErrTooFewShards says that there is not one shard for each neighbour.
var ErrTooFewShards = errors.New("fewer shards than neighbours")

// maxNanoseconds bounds each time, about nine years, so that sums of two cannot overflow.
const maxNanoseconds = 1 << 58

// Allocation is how many shards each neighbour sends, and when the last has arrived.
type Allocation struct {
	Shards      []int64 // per neighbour
	Nanoseconds int64
}

// Allocate divides shards among neighbours so that the last arrives as early as possible: exactly the solution of
// Chaos's P4, and the same counts as its greedy algorithm (one shard after the other to whoever would finish it first,
// the first in the list on a tie), but in time that does not depend on the number of shards: the earliest finish is
// found by bisection, O(m log(finish)) for m neighbours.
//
// It fails when there is no neighbour, a time is out of bounds or the finish would be over 2^62 ns, and with
// ErrTooFewShards when every neighbour must be used and cannot.
func Allocate(neighbours []Neighbour, shards int64, use Use) (Allocation, error) {
	if err := checkNeighbours(neighbours, shards); err != nil {
		return Allocation{}, err
	}
	level, first := neighbours, int64(0)
	if use == EveryNeighbour {
		first = 1
		if shards < int64(len(neighbours)) {
			return Allocation{}, ErrTooFewShards
		}
		level = slices.Clone(neighbours)
		for u, n := range neighbours {
			level[u].StartNanoseconds = n.StartNanoseconds + n.ShardNanoseconds
		}
	}
	rest := shards - first*int64(len(neighbours))
	finish, ok := earliestFinish(level, rest)
	if !ok {
		return Allocation{}, errors.New("the last shard would arrive after more than 2^62 ns")
	}
	result := Allocation{Shards: countsAt(level, finish, rest)}
	for u, n := range neighbours {
		result.Shards[u] += first
		if count := result.Shards[u]; count > 0 {
			result.Nanoseconds = max(result.Nanoseconds, n.StartNanoseconds+count*n.ShardNanoseconds)
		}
	}
	return result, nil
}

func checkNeighbours(neighbours []Neighbour, shards int64) error {
	if len(neighbours) == 0 {
		return errors.New("neighbours: none, expected at least one")
	}
	if shards < 0 {
		return fmt.Errorf("shards is %d, expected at least 0", shards)
	}
	for u, n := range neighbours {
		if n.StartNanoseconds < 0 || n.StartNanoseconds > maxNanoseconds {
			return fmt.Errorf("neighbour %d: startNanoseconds is %d, expected 0 to 2^58", u, n.StartNanoseconds)
		}
		if n.ShardNanoseconds < 1 || n.ShardNanoseconds > maxNanoseconds {
			return fmt.Errorf("neighbour %d: shardNanoseconds is %d, expected 1 to 2^58", u, n.ShardNanoseconds)
		}
	}
	return nil
}

// earliestFinish returns the least time by which the neighbours can have sent all shards.
func earliestFinish(neighbours []Neighbour, shards int64) (finish int64, ok bool) {
	if shards == 0 {
		return 0, true
	}
	late := int64(math.MaxInt64) // by then the best neighbour has sent all of them alone
	for _, n := range neighbours {
		if high, low := bits.Mul64(uint64(n.ShardNanoseconds), uint64(shards)); high == 0 && low < 1<<62 {
			late = min(late, n.StartNanoseconds+int64(low))
		}
	}
	if late == math.MaxInt64 {
		return 0, false
	}
	early := int64(0) // by then they have not
	for late-early > 1 {
		if middle := early + (late-early)/2; enough(neighbours, middle, shards) {
			late = middle
		} else {
			early = middle
		}
	}
	return late, true
}

// enough reports whether the neighbours have sent all shards by finish.
func enough(neighbours []Neighbour, finish, shards int64) bool {
	for _, n := range neighbours {
		if finish <= n.StartNanoseconds {
			continue
		}
		if shards -= (finish - n.StartNanoseconds) / n.ShardNanoseconds; shards <= 0 {
			return true
		}
	}
	return false
}

// countsAt returns what each neighbour sends by the earliest finish. Those that finish exactly then may be too many for
// the last shards: the last in the list go without.
func countsAt(neighbours []Neighbour, finish, shards int64) []int64 {
	counts := make([]int64, len(neighbours))
	for u, n := range neighbours {
		counts[u] = max(0, finish-n.StartNanoseconds) / n.ShardNanoseconds
		shards -= counts[u]
	}
	for u := len(neighbours) - 1; shards < 0; u-- {
		n := neighbours[u]
		if counts[u] > 0 && (finish-n.StartNanoseconds)%n.ShardNanoseconds == 0 {
			counts[u]--
			shards++
		}
	}
	return counts
}

// FluidNanoseconds is the time if shards were infinitely divisible: no allocation is faster. O(m log m).
func FluidNanoseconds(neighbours []Neighbour, shards int64) float64 {
	byStart := slices.Clone(neighbours)
	slices.SortStableFunc(byStart, func(a, b Neighbour) int {
		return cmp.Compare(a.StartNanoseconds, b.StartNanoseconds)
	})
	// Times from the first start on, because sums of r/p lose digits when all r are large.
	level, rate, work := 0.0, 0.0, float64(shards)
	for u, n := range byStart {
		start := float64(n.StartNanoseconds - byStart[0].StartNanoseconds)
		if u > 0 && start >= level {
			break
		}
		rate += 1 / float64(n.ShardNanoseconds)
		work += start / float64(n.ShardNanoseconds)
		level = work / rate
	}
	return float64(byStart[0].StartNanoseconds) + level
}
