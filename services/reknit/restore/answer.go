package restore

import (
	"fmt"
	"slices"

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
	// Restart has every place read all of its layers anew, each over its node's best link from a store that nobody waits
	// for. Starting processes is not counted.
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
	transferSeconds []float64 // per transfer, as if it were alone
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
	a.transferSeconds = alone(fetch, names, restoration.Plan.Migration)
	a.AllReduce, err = q.allReduce(fetch, names, restoration.Plan)
	return a, err
}

func figureOf(r events.Restoration) figure {
	return figure{r.BytesMoved, r.Plan.Predicted.TransitionSeconds}
}

// restart is when the last node has read the layers of its place.
func restart(fetch replicate.Fetch, names []string, r events.Restoration) figure {
	slowest := 0.0
	for i, name := range names {
		bytes := int64(0)
		held, _ := r.Plan.Holds(name)
		for layer := held.First; layer < held.End; layer++ {
			bytes += fetch.LayerBytes[layer]
		}
		rate := fetch.IngressBytesPerSecond[i]
		if rate == 0 { // of the only node there is
			rate = assumedBytesPerSecond
		}
		slowest = max(slowest, float64(bytes)/rate)
	}
	return figure{r.NaiveBytes, slowest}
}

// inRankOrder asks for the same places with the nodes in the order that they have in the plan in force, who has no place
// there last. In no class, they keep them. Rerouted micro-batches leave everybody in place anyway.
func (q *question) inRankOrder(request events.RestorationRequest) events.RestorationRequest {
	request.Proposal.Classes = nil
	if len(q.to.Reroutes) > 0 {
		return request
	}
	var ranks []string
	for _, pipeline := range q.from.Pipelines {
		for _, stage := range pipeline.Stages {
			_, lived := q.from.Member(stage.Node)
			if _, lives := q.to.Member(stage.Node); lived && lives {
				ranks = append(ranks, stage.Node)
			}
		}
	}
	for _, member := range q.to.Nodes {
		if !slices.Contains(ranks, member.Node) {
			ranks = append(ranks, member.Node)
		}
	}
	plan := &request.Proposal.Plan
	plan.Pipelines = nil
	for _, pipeline := range q.to.Pipelines {
		ranked := events.Pipeline{MicroBatches: pipeline.MicroBatches}
		for _, stage := range pipeline.Stages {
			ranked.Stages = append(ranked.Stages, events.Stage{Node: ranks[0], Layers: stage.Layers})
			ranks = ranks[1:]
		}
		plan.Pipelines = append(plan.Pipelines, ranked)
	}
	return request
}

// singleSource fetches the same layers, each from the first of its holders only.
func singleSource(fetch replicate.Fetch, r events.Restoration) (figure, error) {
	first := make([][]int, len(fetch.Holders))
	for layer, holders := range fetch.Holders {
		first[layer] = holders[:min(1, len(holders))]
	}
	fetch.Holders = first
	fetched, err := replicate.PlanFetch(fetch)
	return figure{r.BytesMoved, fetched.Seconds}, err
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
			sources = append(sources, replicate.Source{Node: index[source.Node], Bytes: sourceBytes(source, transfer, migration.ShardBytes)})
		}
		fetch.Needs = []replicate.Need{{Node: index[transfer.To], Layer: transfer.Layer}}
		seconds = append(seconds, fetch.Seconds([][]replicate.Source{sources}))
	}
	return seconds
}

// sourceBytes is how much of a transfer one source sends: the last shard of a layer may be short.
func sourceBytes(source events.Source, transfer events.Transfer, shardBytes int64) int64 {
	return min(int64(source.Shards.End)*shardBytes, transfer.Bytes) - int64(source.Shards.First)*shardBytes
}
