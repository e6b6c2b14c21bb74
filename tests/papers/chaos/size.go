package chaos

import "fmt"

// Tolerance is how much slower than infinitely small shards a shard size may be: one percent, because shards larger
// than that buy little (on AlexNet-shaped tensors a hundred times fewer shards cost less than a hundredth of a
// percent).
const Tolerance = 0.01

// Size is a shard size and what it leads to.
type Size struct {
	Units       int64 // per shard
	Shards      int64 // the last may be short
	Nanoseconds int64 // of the optimal allocation; -1 when there are fewer shards than neighbours that must be used
}

// WeighSizes returns what each shard size leads to when units (elements, bytes or chunks of bytes) are replicated and
// the ShardNanoseconds of the neighbours are those of a single unit. Along sizes that divide one another the time never
// falls (the divisibility chain of the wide-area Chaos paper). One Allocate each.
func WeighSizes(neighbours []Neighbour, units int64, sizes []int64, use Use) ([]Size, error) {
	weighed := make([]Size, len(sizes))
	scaled := make([]Neighbour, len(neighbours))
	for k, size := range sizes {
		if size < 1 {
			return nil, fmt.Errorf("sizes[%d] is %d, expected at least 1", k, size)
		}
		for u, n := range neighbours {
			if n.ShardNanoseconds > maxNanoseconds/size {
				return nil, fmt.Errorf("neighbour %d: a shard of %d units takes over 2^58 ns", u, size)
			}
			scaled[u] = Neighbour{n.StartNanoseconds, n.ShardNanoseconds * size}
		}
		weighed[k] = Size{Units: size, Shards: (units + size - 1) / size, Nanoseconds: -1}
		if use == EveryNeighbour && weighed[k].Shards < int64(len(neighbours)) {
			continue
		}
		allocation, err := Allocate(scaled, weighed[k].Shards, use)
		if err != nil {
			return nil, err
		}
		weighed[k].Nanoseconds = allocation.Nanoseconds
	}
	return weighed, nil
}

// LargestSize returns the largest size that is within Tolerance of fluidNanoseconds, and false when none is.
// Large shards are fewer to name, to verify and to lose time between.
func LargestSize(weighed []Size, fluidNanoseconds float64) (Size, bool) {
	best, found := Size{}, false
	for _, size := range weighed {
		within := size.Nanoseconds >= 0 && float64(size.Nanoseconds) <= (1+Tolerance)*fluidNanoseconds
		if within && size.Units > best.Units {
			best, found = size, true
		}
	}
	return best, found
}
