package main

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/policy"
	"github.com/reknit/reknit/services/planner/search"
	"github.com/reknit/reknit/tests/bench/figures"
)

// freeSeconds is what a plan of freeDevices may take.
const (
	freeSeconds = 0.1
	freeDevices = 1024
)

// planningFree measures the first plan where pipelines may be of any length, and the one after a loss.
func planningFree(r *figures.Report) error {
	for _, drawn := range []struct {
		name      string
		situation func(devices int) policy.Situation
	}{{"equal", equal}, {"tight", tight}, {"unequal", unequal}} {
		fmt.Printf("planning for %s devices, pipelines of any length: CPU seconds, predicted step\n", drawn.name)
		fmt.Printf("%8s %12s %12s %12s %12s\n", "devices", "first", "after a loss", "first", "after a loss")
		for devices := 64; devices <= freeDevices; devices *= 4 {
			s := drawn.situation(devices)
			first, tookFirst, err := chosen(s)
			if err != nil {
				return err
			}
			s.Current = first.Pipelines
			after, tookAfter, err := chosen(without(s, first.Pipelines[0].Stages[1].Node))
			if err != nil {
				return err
			}
			fmt.Printf("%8d %12.6f %12.6f %12.4f %12.4f\n", devices, tookFirst, tookAfter, first.StepSeconds, after.StepSeconds)
			target := 0.0
			if devices == freeDevices {
				target = freeSeconds
			}
			name := fmt.Sprintf(", %d %s devices", devices, drawn.name)
			r.Add(figures.Row{Figure: "first plan" + name, Unit: "s", Ours: tookFirst, Target: target})
			r.Add(figures.Row{Figure: "plan after a loss" + name, Unit: "s", Ours: tookAfter, Target: target})
		}
		fmt.Println()
	}
	return nil
}

func chosen(s policy.Situation) (best policy.Candidate, took float64, err error) {
	var found []policy.Candidate
	took = figures.Seconds(func() { found, err = policy.Choose(s) })
	if err != nil {
		return best, took, err
	}
	return found[0], took, nil
}

// equal is the job of afterALoss for devices of 80 GB.
func equal(devices int) policy.Situation {
	s := afterALoss(devices)
	s.Nodes, s.MemoryBytes, s.Current, s.MinReplicas, s.PipelineLength = nil, nil, nil, 2, search.Limits{}
	for i := range devices {
		s.Nodes, s.MemoryBytes = append(s.Nodes, fmt.Sprint("n", i)), append(s.MemoryBytes, 80e9)
	}
	return s
}

// tight is the job of bench-negotiator: nodes hold a third of the layers at most, short pipelines have more to reduce and
// long ones wait longer for each other, so that of many degrees the best plans are about as good.
func tight(devices int) policy.Situation {
	s := equal(devices)
	s.MicroBatches, s.GlobalBatch, s.Network.TransferSeconds, s.Network.BytesPerSecond = 4*devices, 4*devices, 0.0036, 1.25e9
	for i := range s.Layers {
		s.Layers[i] = estimate.Layer{
			ForwardSeconds: 0.01, BackwardSeconds: 0.02, StaticBytes: 256 << 20, ActivationBytes: 16 << 20,
		}
		s.StateBytes[i], s.GradientBytes[i] = 192<<20, 64<<20
	}
	for i := range s.Nodes {
		s.MemoryBytes[i] = 12 * (256 + 16) << 20
	}
	return s
}

// unequal is the job of equal for devices of 80 to 160 GB and speeds of 1 to 2, drawn with a fixed seed.
func unequal(devices int) policy.Situation {
	s, random := equal(devices), rand.New(rand.NewPCG(1, 7))
	for i := range devices {
		s.MemoryBytes[i] = int64(4+random.IntN(5)) * 20e9
		s.Speed = append(s.Speed, 1+float64(random.IntN(5))/4)
	}
	return s
}

func without(s policy.Situation, node string) policy.Situation {
	lost := slices.Index(s.Nodes, node)
	s.Nodes = slices.Delete(slices.Clone(s.Nodes), lost, lost+1)
	s.MemoryBytes = slices.Delete(slices.Clone(s.MemoryBytes), lost, lost+1)
	if s.Speed != nil {
		s.Speed = slices.Delete(slices.Clone(s.Speed), lost, lost+1)
	}
	return s
}
