package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/restorer/layers"
)

// modelLayers is the number of layers of Llama 2 7B.
const modelLayers = 32

// layerBytes are those layers' state with Adam's in mixed precision; the first and the last have the embeddings, too.
func layerBytes() []int64 {
	bytes := make([]int64, modelLayers)
	for layer := range bytes {
		bytes[layer] = 2_830e6
	}
	bytes[0] += 1_835e6
	bytes[modelLayers-1] += 1_835e6
	return bytes
}

// cut divides the layers among the stages of a pipeline, the larger stages first.
func cut(stages int) []layers.Range {
	ranges, first := make([]layers.Range, stages), 0
	for s := range ranges {
		end := first + modelLayers/stages
		if s < modelLayers%stages {
			end++
		}
		ranges[s] = layers.Range{First: first, End: end}
		first = end
	}
	return ranges
}

// stagesOf cuts pipelines of the lengths in turn, and stops at the stage that makes n.
func stagesOf(n int, lengths ...int) []layers.Range {
	var stages []layers.Range
	for p := 0; len(stages) < n; p++ {
		stages = append(stages, cut(lengths[p%len(lengths)])...)
	}
	return stages[:n]
}

// change is a cluster of pipelines of eight stages that has lost a node, and the pipelines of seven, eight and nine
// stages that its survivors form next.
type change struct {
	holds   []layers.Range // per survivor
	lengths []int          // per pipeline
}

// afterALoss takes a multiple of eight nodes, at least 256. As many pipelines as before, of all three lengths.
func afterALoss(nodes int) change {
	width := nodes / 8
	c := change{holds: stagesOf(nodes, 8)}
	c.holds = append(c.holds[:1], c.holds[2:]...)
	short := width / 3
	for p := range width {
		switch {
		case p < short:
			c.lengths = append(c.lengths, 7)
		case p < width-short+1:
			c.lengths = append(c.lengths, 8)
		default:
			c.lengths = append(c.lengths, 9)
		}
	}
	return c
}

// partitioned cuts the optimizer state, 12 of 14 bytes a parameter, into partitions that two pipelines keep each. The
// node that is lost was the second.
func (c change) partitioned(request *events.RestorationRequest, partitions int) {
	for layer, bytes := range request.Units {
		request.Gradients = append(request.Gradients, bytes/7)
		request.Units[layer] = bytes / 7
	}
	for range partitions {
		for _, bytes := range layerBytes() {
			request.Units = append(request.Units, bytes*6/7/int64(partitions))
		}
	}
	pipelines := request.Proposal.Plan.Pipelines
	width := len(pipelines)
	kept := func(pipeline int) []int {
		var list []int
		for slot := pipeline * 2 * partitions / width; slot < (pipeline+1)*2*partitions/width; slot++ {
			list = append(list, slot%partitions)
		}
		return list
	}
	for i := range request.Holders {
		layers := request.Holders[i].Units[0]
		for _, partition := range kept(min(i+1, len(c.holds)) / 8) {
			first := (1 + partition) * modelLayers
			request.Holders[i].Units = append(request.Holders[i].Units,
				events.Range{First: first + layers.First, End: first + layers.End})
		}
	}
	for p := range pipelines {
		pipelines[p].Partitions = kept(p)
	}
}

// request asks for the restoration of the change: the survivors stand in any order in the proposed plan, and each has
// measured its links to eight others.
func (c change) request(random *rand.Rand) events.RestorationRequest {
	request := events.RestorationRequest{Negotiation: "g2", Units: layerBytes()}
	plan := &request.Proposal.Plan
	plan.Cluster, plan.Generation, plan.Data = "c", 2, events.Data{MicroBatch: 1}
	var names []string
	for i, holds := range c.holds {
		name := fmt.Sprintf("n%d", i)
		names = append(names, name)
		plan.Nodes = append(plan.Nodes, events.Member{Node: name, Incarnation: "a", Address: name + ":1"})
		request.Holders = append(request.Holders, events.Holder{Node: name, Units: []events.Range{events.Range(holds)}})
		for range 8 {
			link := events.Link{}
			link.From, link.To = name, fmt.Sprintf("n%d", random.IntN(len(c.holds)))
			link.BandwidthBytesPerSecond = 125e6 * (1 + 9*random.Float64())
			request.Links = append(request.Links, link)
		}
	}
	next := random.Perm(len(names))
	for _, length := range c.lengths {
		pipeline := events.Pipeline{MicroBatches: 8}
		for s, needs := range cut(length) {
			pipeline.Stages = append(pipeline.Stages, events.Stage{Node: names[next[s]], Layers: events.Range(needs)})
		}
		next = next[length:]
		plan.Pipelines = append(plan.Pipelines, pipeline)
		plan.Data.GlobalBatch += pipeline.MicroBatches
	}
	request.Proposal.Classes = [][]string{names}
	return request
}
