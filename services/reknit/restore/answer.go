package restore

import (
	"fmt"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/restorer/machine"
	"github.com/reknit/reknit/services/restorer/replicate"
)

// figure is what a way to the plan wanted costs.
type figure struct {
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// figures sets the restoration beside naive ways, which differ from it in one thing each.
type figures struct {
	Restoration figure `json:"restoration"`
	// Restart has every place read all that it keeps anew, each over its node's best link from a store that nobody
	// waits for. Starting processes is not counted.
	Restart figure `json:"restart"`
	// RankOrder leaves the nodes in the order that they had in the plan in force, joiners last.
	RankOrder figure `json:"rankOrder"`
	// SingleSource takes each layer from the first node that holds it, in the order of the plan's nodes.
	SingleSource figure    `json:"singleSource"`
	AllReduce    allReduce `json:"allReduce"`
}

// answer is the restoration and what it costs.
type answer struct {
	events.Restoration
	figures
	transferSeconds []float64         // per transfer, as if it were alone
	fetches         map[string]figure // per node that lacks something, as if it were alone
}

// answer asks the restorer. It fails with its reason where the plan cannot be restored.
func (q *question) answer() (answer, error) {
	request := q.request()
	restoration, err := machine.Restore(request)
	if err != nil {
		return answer{}, err
	}
	a := answer{Restoration: restoration}
	a.figures.Restoration = figureOf(restoration)
	byRank, err := machine.Restore(q.inRankOrder(request))
	if err != nil {
		return a, fmt.Errorf("in rank order: %w", err)
	}
	a.RankOrder = figureOf(byRank)

	request.Proposal.Plan = restoration.Plan
	fetch, names, err := machine.Fetching(request)
	if err != nil {
		return a, err
	}
	a.Restart = restart(fetch, names, restoration)
	if a.SingleSource, err = singleSource(fetch, restoration); err != nil {
		return a, fmt.Errorf("from a single source: %w", err)
	}
	a.transferSeconds, a.fetches = alone(fetch, names, restoration.Plan.Migration), fetches(fetch, names)
	a.AllReduce = q.allReduce(fetch, names, restoration.Plan)
	return a, nil
}

func figureOf(r events.Restoration) figure {
	return figure{r.BytesMoved, r.Plan.Predicted.TransitionSeconds}
}

// fetches is what each node lacks of its place, and how long it takes to fetch that while nobody else does: the time by
// which the restorer tells assignments of as many bytes apart.
func fetches(fetch replicate.Fetch, names []string) map[string]figure {
	needs := map[int][]replicate.Need{}
	for _, need := range fetch.Needs {
		needs[need.Node] = append(needs[need.Node], need)
	}
	all := map[string]figure{}
	for node, needed := range needs {
		var groups []int64
		var senders [][]int
		total := int64(0)
		for _, need := range needed {
			bytes := fetch.LayerBytes[need.Layer]
			groups, senders, total = append(groups, bytes), append(senders, fetch.Holders[need.Layer]), total+bytes
		}
		rates := make([]float64, len(names))
		for from := range rates {
			rates[from] = fetch.LinkBytesPerSecond[from][node]
		}
		all[names[node]] = figure{
			total, replicate.PullSeconds(groups, senders, rates, fetch.IngressBytesPerSecond[node]),
		}
	}
	return all
}

// alone is how long each transfer would take without the others.
func alone(fetch replicate.Fetch, names []string, migration events.Migration) []float64 {
	index := map[string]int{}
	for i, name := range names {
		index[name] = i
	}
	var seconds []float64
	for _, transfer := range migration.Transfers {
		var sources []replicate.Source
		for _, source := range transfer.Sources {
			sources = append(sources,
				replicate.Source{Node: index[source.Node], Bytes: sourceBytes(source, transfer, migration.ShardBytes)})
		}
		fetch.Needs = []replicate.Need{{Node: index[transfer.To], Layer: transfer.Unit}}
		seconds = append(seconds, fetch.Seconds([][]replicate.Source{sources}))
	}
	return seconds
}

// sourceBytes is how much of a transfer one source sends: the last shard of a layer may be short.
func sourceBytes(source events.Source, transfer events.Transfer, shardBytes int64) int64 {
	return min(int64(source.Shards.End)*shardBytes, transfer.Bytes) - int64(source.Shards.First)*shardBytes
}
