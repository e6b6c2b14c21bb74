package restore

import (
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/restorer/replicate"
)

// restart is when the last node has read all that its place keeps.
func restart(fetch replicate.Fetch, names []string, r events.Restoration) figure {
	slowest := 0.0
	for i, name := range names {
		bytes := int64(0)
		for row := range events.Each(r.Plan.UnitsOf(name)) {
			bytes += fetch.LayerBytes[row]
		}
		rate := fetch.IngressBytesPerSecond[i]
		if rate == 0 { // of the only node there is
			rate = events.AssumedBytesPerSecond
		}
		slowest = max(slowest, float64(bytes)/rate)
	}
	return figure{r.NaiveBytes, slowest}
}

// inRankOrder asks for the same places with the nodes in the order that they have in the plan in force, who has no
// place there last. In no class, they keep them. Rerouted micro-batches leave everybody in place anyway.
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
		ranked := events.Pipeline{MicroBatches: pipeline.MicroBatches, Partitions: pipeline.Partitions}
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
