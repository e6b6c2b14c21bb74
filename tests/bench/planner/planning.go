package main

import (
	"fmt"
	"math"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/policy"
	"github.com/reknit/reknit/services/planner/search"
	"github.com/reknit/reknit/tests/bench/figures"
	"github.com/reknit/reknit/tests/papers/chameleon"
)

// mostLiteral is the most devices for which the literal algorithm is run: it takes some ten seconds there.
const mostLiteral = 2048

// targets are the seconds allowed, by devices, and how many times faster than the literal algorithm ours must be.
var targets = map[int]struct{ seconds, ratio float64 }{256: {0.010, 0}, 2048: {0.100, 100}, 16384: {1, 0}}

// planning measures the answer to the loss of one device, for ever more of them.
func planning(r *figures.Report) {
	fmt.Println("planning after the loss of one device: CPU seconds, predicted step")
	fmt.Printf("%8s %12s %12s %8s %12s %12s %10s %10s\n", "devices", "ours", "literal", "ratio", "ours", "literal",
		"plans", "evaluated")
	var sizes, times []float64
	for devices := 8; devices <= 16384; devices *= 2 {
		s := afterALoss(devices)
		var found []policy.Candidate
		took := figures.Seconds(func() { found, _ = policy.Choose(s) })
		if len(found) == 0 {
			continue
		}
		sizes, times = append(sizes, math.Log(float64(devices))), append(times, math.Log(took))
		target, name := targets[devices], fmt.Sprintf("%d devices", devices)
		step := fastest(found)
		if devices > mostLiteral {
			fmt.Printf("%8d %12.6f %12s %8s %12.4f\n", devices, took, "", "", step)
			r.Add(figures.Row{Figure: "planning time, " + name, Unit: "s", Ours: took, Target: target.seconds})
			continue
		}
		literal, slow, theirs := byTheText(s)
		fmt.Printf("%8d %12.6f %12.6f %8.1f %12.4f %12.4f %10d %10d\n", devices, took, slow, slow/took, step, theirs,
			literal.Strategies, literal.Evaluated)
		r.Add(figures.Row{Figure: "planning time, " + name, Unit: "s", Ours: took, Baseline: slow,
			BaselineName: "Chameleon Algorithm 1, literal", Target: target.seconds, LeastRatio: target.ratio})
		r.Add(figures.Row{Figure: "predicted step, " + name, Unit: "s", Ours: step, Baseline: theirs,
			BaselineName: "Chameleon Algorithm 1, literal", LeastRatio: 1})
	}
	fmt.Printf("ours grows with devices^%.2f from 8 to 16,384, and with devices^%.2f from 2,048 on\n\n",
		slope(sizes, times), slope(sizes[len(sizes)-4:], times[len(times)-4:]))
}

// fastest is the shortest step among the candidates: what the two planners are compared by. Which of them is taken
// depends on the transition too.
func fastest(found []policy.Candidate) float64 {
	least := math.Inf(1)
	for _, candidate := range found {
		least = min(least, candidate.StepSeconds)
	}
	return least
}

// byTheText plans and assigns literally, and has our cost model judge the plan.
func byTheText(s policy.Situation) (literal chameleon.Planner, took, step float64) {
	var pipelines []policy.Pipeline
	took = figures.Seconds(func() {
		literal = chameleon.Planner{
			Layers: s.Layers, MicroBatches: s.MicroBatches, TransferSeconds: s.Network.TransferSeconds,
			Shortest: s.PipelineLength.Least, Longest: s.PipelineLength.Most,
		}
		literal.Find(len(s.Nodes), len(s.Current)-1, len(s.Current)+1)
		pipelines = assigned(s, literal.Plan)
	})
	candidate, err := policy.Judge(s, "literal", pipelines)
	if err != nil {
		return literal, took, math.Inf(1)
	}
	return literal, took, candidate.StepSeconds
}

// assigned gives each slot of a plan a node so that the fewest layers move.
func assigned(s policy.Situation, plan []estimate.Member) []policy.Pipeline {
	holds := map[string]estimate.Range{}
	for _, pipeline := range s.Current {
		for _, stage := range pipeline.Stages {
			holds[stage.Node] = stage.Layers
		}
	}
	var slots []estimate.Range
	for _, member := range plan {
		slots = append(slots, member.Stages...)
	}
	cost := make([][]int, len(s.Nodes))
	for i, node := range s.Nodes {
		cost[i] = make([]int, len(s.Nodes))
		for j, slot := range slots {
			cost[i][j] = slot.Len() - slot.Shared(holds[node])
		}
	}
	nodes := munkres(cost)
	var pipelines []policy.Pipeline
	next := 0
	for _, member := range plan {
		pipeline := policy.Pipeline{MicroBatches: member.MicroBatches}
		for _, layers := range member.Stages {
			pipeline.Stages = append(pipeline.Stages, policy.Stage{Node: s.Nodes[nodes[next]], Layers: layers})
			next++
		}
		pipelines = append(pipelines, pipeline)
	}
	return pipelines
}

// afterALoss is a grid of pipelines of 4 stages (8 from 64 devices on) that train 32 equal layers, the shape of Llama 2
// 7B, one node of which is gone. Pipelines may be a stage shorter or longer, as in the literal algorithm.
func afterALoss(devices int) policy.Situation {
	const layers = 32
	length := 8
	if devices < 64 {
		length = 4
	}
	width := devices / length
	s := policy.Situation{
		MicroBatches: 8 * width, GlobalBatch: 8 * width, MinReplicas: 1, SecondsBetweenFailures: 3600, SwitchSeconds: 2,
		PipelineLength: search.Limits{Least: length - 1, Most: length + 1},
		Network:        policy.Network{TransferSeconds: 0.001, BytesPerSecond: 1.4e9, LatencySeconds: 0.0001},
	}
	for range layers {
		s.Layers = append(s.Layers,
			estimate.Layer{
				ForwardSeconds: 0.0129, BackwardSeconds: 0.0258, StaticBytes: 3_240e6, ActivationBytes: 600e6,
			})
		s.StateBytes, s.GradientBytes = append(s.StateBytes, 2_830e6), append(s.GradientBytes, 405e6)
	}
	for p := range width {
		pipeline := policy.Pipeline{MicroBatches: 8}
		for st := range length {
			node := fmt.Sprintf("n%d", p*length+st)
			pipeline.Stages = append(pipeline.Stages,
				policy.Stage{
					Node: node, Layers: estimate.Range{First: st * layers / length, End: (st + 1) * layers / length},
				})
			if p != 0 || st != 1 {
				s.Nodes, s.MemoryBytes = append(s.Nodes, node), append(s.MemoryBytes, 64e9)
			}
		}
		s.Current = append(s.Current, pipeline)
	}
	return s
}

// slope of the line through points, by least squares.
func slope(x, y []float64) float64 {
	n, sx, sy, sxx, sxy := float64(len(x)), 0.0, 0.0, 0.0, 0.0
	for i := range x {
		sx, sy, sxx, sxy = sx+x[i], sy+y[i], sxx+x[i]*x[i], sxy+x[i]*y[i]
	}
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}
