// Package chaos is problem P4 of the Chaos papers, as a fetch of one node that the restorer divides (replicate.PlanFetch), and
// the papers' own algorithm beside it.
package chaos

import (
	"slices"

	"github.com/reknit/reknit/services/restorer/replicate"
)

// Neighbour is a source of equal shards: it has sent n of them StartNanoseconds + n*ShardNanoseconds from now (equations 1
// and 2).
type Neighbour struct {
	StartNanoseconds int64 // until it can begin: propagation, and the all-reduce it is in
	ShardNanoseconds int64 // for each shard
}

// Fetch is the fetch of a replica of so many shards from its neighbours, which are nodes 0, 1 and so on. Its unit of time is a
// nanosecond, and of bytes a shard.
func Fetch(neighbours []Neighbour, shards int64) replicate.Fetch {
	count := len(neighbours)
	fetch := replicate.Fetch{
		LayerBytes: []int64{shards}, ShardBytes: 1, Holders: make([][]int, 1), Needs: []replicate.Need{{Node: count}},
		EgressBytesPerSecond:  make([]float64, count+1),
		IngressBytesPerSecond: slices.Repeat([]float64{1e15}, count+1), // the receiver's downlink does not limit in P4
		StartSeconds:          make([][]float64, count+1),
	}
	for node := range fetch.StartSeconds {
		fetch.StartSeconds[node] = make([]float64, count+1)
	}
	for u, n := range neighbours {
		fetch.Holders[0] = append(fetch.Holders[0], u)
		fetch.EgressBytesPerSecond[u] = 1 / float64(n.ShardNanoseconds)
		fetch.StartSeconds[u][count] = float64(n.StartNanoseconds)
	}
	return fetch
}

// Counts returns how many shards each of so many neighbours sends by a division of Fetch.
func Counts(fetched replicate.Fetched, neighbours int) []int64 {
	counts := make([]int64, neighbours)
	for _, source := range fetched.Sources[0] {
		counts[source.Node] += source.End - source.First
	}
	return counts
}

// Finish is when the last shard has arrived. Neighbours that send none do not count.
func Finish(neighbours []Neighbour, counts []int64) (nanoseconds int64) {
	for u, n := range neighbours {
		if counts[u] > 0 {
			nanoseconds = max(nanoseconds, n.StartNanoseconds+counts[u]*n.ShardNanoseconds)
		}
	}
	return nanoseconds
}

// Greedy is algorithm 1 of the wide-area paper as its text has it: one shard to every neighbour, and each further one to
// whoever would have sent it first. It returns the list of shards of each neighbour. There is a shard for each.
func Greedy(neighbours []Neighbour, shards int64) (lists [][]int64, makespan int64) {
	lists, loads := make([][]int64, len(neighbours)), make([]int64, len(neighbours))
	for u, n := range neighbours {
		loads[u] = n.StartNanoseconds
	}
	for shard := range shards {
		least := int(shard)
		if least >= len(neighbours) {
			least = 0
			for u, n := range neighbours {
				if loads[u]+n.ShardNanoseconds < loads[least]+neighbours[least].ShardNanoseconds {
					least = u
				}
			}
		}
		lists[least] = append(lists[least], shard)
		loads[least] += neighbours[least].ShardNanoseconds
		makespan = max(makespan, loads[least])
	}
	return lists, makespan
}
