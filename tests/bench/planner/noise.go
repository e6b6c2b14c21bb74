package main

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/detect"
	monitor "github.com/reknit/reknit/services/monitor/machine"
	"github.com/reknit/reknit/tests/bench/figures"
)

// mostMoved is how many times the fewest bytes may move though links are measured badly.
const mostMoved = 1.1

// noise has drawn clusters lose and gain nodes on equal links, whose measurements scatter by half.
func noise(r *figures.Report) error {
	all, err := churns(drawnClusters)
	if err != nil {
		return err
	}
	fmt.Println("equal links, measurements of which scatter by half: bytes moved beside the fewest for plans of the same shape")
	fmt.Printf("%d clusters: %.3g of %.3g bytes; link news changed %d of %d plans\n\n", drawnClusters, all.moved, all.least,
		all.heeded, all.news)
	r.Add(figures.Row{
		Figure: "bytes moved where only measurements differ, beside the fewest", Unit: "times", Ours: all.moved / all.least,
		Target: mostMoved,
	})
	r.Add(figures.Row{
		Figure: "plans that link news alone changed, of a hundred", Unit: "plans", Ours: 100 * float64(all.heeded) / float64(all.news),
		Target: 0.1, // none of 700
	})
	return nil
}

// churns are what became of so many clusters together.
func churns(clusters int) (churned, error) {
	var all churned
	for seed := range uint64(clusters) {
		c, err := churn(rand.New(rand.NewPCG(seed, 2)))
		if err != nil {
			return all, fmt.Errorf("seed %d: %w", seed, err)
		}
		all.moved, all.least = all.moved+c.moved, all.least+c.least
		all.news, all.heeded = all.news+c.news, all.heeded+c.heeded
	}
	return all, nil
}

// churned is what became of a cluster.
type churned struct {
	moved, least float64 // bytes
	news, heeded int     // times that nothing but measurements changed, and that the plan did
}

// churn has a drawn cluster lose a node, gain one or measure its links anew, a dozen times.
func churn(random *rand.Rand) (churned, error) {
	var c churned
	request, known := drawn(random), probed{}
	for i := range request.Nodes {
		request.Nodes[i].SpeedFactor = 1
	}
	request.SecondsBetweenFailures = 3600
	least := len(request.Nodes) * 3 / 4
	for change := range 12 {
		kind := random.IntN(3)
		switch {
		case request.Current == nil:
		case kind == 0 && len(request.Nodes) > least:
			gone := random.IntN(len(request.Nodes))
			request.Nodes = slices.Delete(slices.Clone(request.Nodes), gone, gone+1)
		case kind == 1:
			joiner := request.Nodes[0]
			joiner.Node = fmt.Sprint("j", change)
			request.Nodes = append(slices.Clone(request.Nodes), joiner)
		}
		request.Links = known.again(request.Nodes, random)
		proposal, err := planner.Plan(request)
		if err != nil {
			return c, err
		}
		if before := request.Current; before != nil {
			moved, fewest := fetched(request, proposal.Plan)
			c.moved, c.least = c.moved+moved, c.least+fewest
			if kind == 2 {
				c.news++
				if !reflect.DeepEqual(before.Pipelines, proposal.Plan.Pipelines) {
					c.heeded++
				}
			}
		}
		request.Generation++
		proposal.Plan.Generation = request.Generation - 1
		proposal.Plan.Nodes = nil
		for _, node := range request.Nodes {
			proposal.Plan.Nodes = append(proposal.Plan.Nodes, events.Member{Node: node.Node, Incarnation: node.Incarnation})
		}
		request.Current = &proposal.Plan
	}
	return c, nil
}

// probed is what a monitor knows of links, by their ends, from probes that scatter by half.
type probed map[[2]string]detect.Estimate

// again probes each link among nodes, all of which are equal, up to four times more, and tells what is known of them then, and
// how surely.
func (p probed) again(nodes []events.Device, random *rand.Rand) (links []events.Link) {
	untold := monitor.Defaults("").Untold
	for _, from := range nodes {
		for _, to := range nodes {
			if from.Node == to.Node {
				continue
			}
			known := p[[2]string{from.Node, to.Node}]
			for range 1 + random.IntN(4) {
				known = known.Probed(detect.Estimate{
					RoundTripSeconds: events.AssumedRoundTripSeconds * (0.5 + random.Float64()),
					BytesPerSecond:   10 * events.AssumedBytesPerSecond * (0.5 + random.Float64()),
				}, untold)
			}
			p[[2]string{from.Node, to.Node}] = known
			measured := events.Measurement{
				From: from.Node, To: to.Node, RoundTripSeconds: known.RoundTripSeconds,
				BandwidthBytesPerSecond: known.BytesPerSecond, Uncertainty: known.Uncertainty,
			}
			links = append(links, events.Link{Measurement: measured.Rounded()})
		}
	}
	return links
}

// fetched is the bytes that the nodes of a plan lack, and the fewest that they would were they seated for that alone.
// Nobody moves if lost nodes keep their places.
func fetched(request events.PlanRequest, plan events.Plan) (moved, fewest float64) {
	if len(plan.Reroutes) > 0 {
		return 0, 0
	}
	holds := map[string]events.Range{}
	for _, pipeline := range request.Current.Pipelines {
		for _, stage := range pipeline.Stages {
			holds[stage.Node] = stage.Layers
		}
	}
	cost := make([][]int, len(request.Nodes))
	for i := range cost {
		cost[i] = make([]int, len(request.Nodes))
	}
	place := 0
	for _, pipeline := range plan.Pipelines {
		for _, stage := range pipeline.Stages {
			for i, node := range request.Nodes {
				cost[i][place] = missing(request.Job.Layers, stage.Layers, holds[node.Node])
				if node.Node == stage.Node {
					moved += float64(cost[i][place])
				}
			}
			place++
		}
	}
	for place, node := range munkres(cost) {
		fewest += float64(cost[node][place])
	}
	return moved, fewest
}

func missing(layers []events.LayerProfile, wanted, held events.Range) int {
	bytes := int64(0)
	for layer := wanted.First; layer < wanted.End; layer++ {
		if layer < held.First || layer >= held.End {
			bytes += layers[layer].StateBytes()
		}
	}
	return int(bytes)
}
