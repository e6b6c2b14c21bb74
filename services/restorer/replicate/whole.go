package replicate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// PlanWhole has every need served by one holder, for holders whose bytes are only alike. The largest needs are served
// first, each by the holder that is done soonest with it and what it sends before (Graham's longest processing time
// first). O(needs log needs + needs x holders). It fails as PlanFetch does.
func PlanWhole(fetch Fetch) (Fetched, error) {
	if err := fetch.check(); err != nil {
		return Fetched{}, err
	}
	largestFirst := make([]int, len(fetch.Needs))
	for k := range largestFirst {
		largestFirst[k] = k
	}
	bytes := func(k int) int64 { return fetch.LayerBytes[fetch.Needs[k].Layer] }
	slices.SortStableFunc(largestFirst, func(a, b int) int { return cmp.Compare(bytes(b), bytes(a)) })
	result := Fetched{Sources: make([][]Source, len(fetch.Needs))}
	sent, between := make([]int64, len(fetch.EgressBytesPerSecond)), map[linkKey]int64{}
	earliest := fetch.earliest()
	for _, k := range largestFirst {
		if bytes(k) == 0 {
			continue // no shards
		}
		need, sender, soonest := fetch.Needs[k], -1, math.Inf(1)
		for _, holder := range fetch.Holders[need.Layer] {
			link := linkKey{holder, need.Node}
			seconds := earliest[holder] + float64(sent[holder]+bytes(k))/fetch.EgressBytesPerSecond[holder]
			if fetch.LinkBytesPerSecond != nil {
				rate := fetch.LinkBytesPerSecond[link.from][link.to]
				seconds = max(seconds, fetch.start(link)+float64(between[link]+bytes(k))/rate)
			}
			if seconds < soonest {
				sender, soonest = holder, seconds
			}
		}
		if sender < 0 {
			return Fetched{}, fmt.Errorf("layer %d for node %d: no holder can send it", need.Layer, need.Node)
		}
		sent[sender] += bytes(k)
		between[linkKey{sender, need.Node}] += bytes(k)
		result.Sources[k] = []Source{{sender, 0, fetch.shards(need.Layer), bytes(k)}}
	}
	result.Seconds = fetch.Seconds(result.Sources)
	return result, nil
}
