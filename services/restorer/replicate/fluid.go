package replicate

import (
	"cmp"
	"errors"
	"slices"
)

// FluidSeconds is how long a fetch takes that is divided at will, and not into shards: no division is faster. It is the
// optimum of the linear program of flows from each link's start on, found by a Newton iteration on least cuts. It fails as
// PlanFetch does.
func FluidSeconds(fetch Fetch) (float64, error) {
	fetch.ShardBytes, fetch.EachHolder = 1, false
	if err := fetch.check(); err != nil {
		return 0, err
	}
	d, seconds := newDivision(fetch), 0.0
	for {
		missing := d.demand - d.flow(seconds)
		if missing == 0 {
			break
		}
		cut := d.cut()
		if len(cut) == 0 {
			return 0, d.unserved()
		}
		longer := d.fill(cut, float64(d.passing(cut, seconds)+missing))
		if longer <= seconds {
			break // what is missing is less than a byte of each link
		}
		seconds = longer
	}
	return max(seconds, fetch.receiving()), nil
}

// fill is when the limits of a cut have let so many bytes pass: the level up to which they fill, each from its start on.
// O(limits log limits).
func (d *division) fill(cut []int, bytes float64) float64 {
	limits := make([]limit, len(cut))
	for k, i := range cut {
		limits[k] = d.limits[i]
	}
	slices.SortFunc(limits, func(a, b limit) int { return cmp.Compare(a.start, b.start) })
	// Times from the first start on, because sums of start by rate lose digits where starts are late.
	level, rate, first := 0.0, 0.0, limits[0].start
	for k, l := range limits {
		start := l.start - first
		if k > 0 && start >= level {
			break
		}
		rate += l.shardsPerSecond
		bytes += start * l.shardsPerSecond
		level = bytes / rate
	}
	return first + level
}

// Tolerance is how much longer than infinitely small shards a shard size may take: one per cent. Larger shards are fewer to
// name and to verify, and that buys little beyond it.
const Tolerance = 0.01

// LargestShard returns the largest of sizes, which are ascending and divide one another, with which a fetch takes at most
// Tolerance longer than FluidSeconds, and the smallest and false where none does (the divisibility chain of Chaos, theorem 1).
// Along such sizes the time never falls: what is divided into shards of one size is divided into those of each smaller one,
// too. A short last shard counts as a whole one. Sizes with fewer shards than holders that must send are too large. It takes
// log2(sizes) fetches, and fails as PlanFetch does.
func LargestShard(fetch Fetch, sizes []int64) (size int64, within bool, err error) {
	fluid, err := FluidSeconds(fetch)
	if err != nil {
		return 0, false, err
	}
	fits, _ := slices.BinarySearchFunc(sizes, true, func(size int64, _ bool) int {
		seconds, failed := fetch.inWholeShards(size)
		switch {
		case errors.Is(failed, ErrTooFewShards):
			return 1
		case failed != nil:
			err = failed
		}
		if seconds > (1+Tolerance)*fluid {
			return 1
		}
		return -1
	})
	if fits == 0 {
		return sizes[0], false, err
	}
	return sizes[fits-1], true, err
}

// inWholeShards is how long a fetch takes in shards of a size, of which none is short.
func (f Fetch) inWholeShards(size int64) (float64, error) {
	f.ShardBytes, f.LayerBytes = size, slices.Clone(f.LayerBytes)
	for layer := range f.LayerBytes {
		f.LayerBytes[layer] = f.shards(layer) * size
	}
	fetched, err := PlanFetch(f)
	return fetched.Seconds, err
}
