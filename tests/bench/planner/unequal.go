package main

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/reknit/reknit/services/planner/policy"
	"github.com/reknit/reknit/services/planner/search"
	"github.com/reknit/reknit/tests/bench/figures"
)

// unequalSeconds is what a plan of mostUnequal devices may take.
const (
	unequalSeconds = 0.1
	mostUnequal    = 1024
)

// planningUnequal measures the first plan of devices of five memories and five speeds, and the one after a loss.
func planningUnequal(r *figures.Report) error {
	fmt.Println("planning for devices of five memories and five speeds: CPU seconds, predicted step")
	fmt.Printf("%8s %12s %12s %12s %12s\n", "devices", "first", "after a loss", "first", "after a loss")
	for devices := 64; devices <= mostUnequal; devices *= 4 {
		s := unequal(devices)
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
		if devices == mostUnequal {
			target = unequalSeconds
		}
		name := fmt.Sprintf(", %d unequal devices", devices)
		r.Add(figures.Row{Figure: "first plan" + name, Unit: "s", Ours: tookFirst, Target: target})
		r.Add(figures.Row{Figure: "plan after a loss" + name, Unit: "s", Ours: tookAfter, Target: target})
	}
	fmt.Println()
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

// unequal is the job of afterALoss for devices of 80 to 160 GB and speeds of 1 to 2, drawn with a fixed seed.
func unequal(devices int) policy.Situation {
	s, random := afterALoss(devices), rand.New(rand.NewPCG(1, 7))
	s.Nodes, s.MemoryBytes, s.Current, s.MinReplicas, s.PipelineLength = nil, nil, nil, 2, search.Limits{}
	for i := range devices {
		s.Nodes = append(s.Nodes, fmt.Sprint("n", i))
		s.MemoryBytes = append(s.MemoryBytes, int64(4+random.IntN(5))*20e9)
		s.Speed = append(s.Speed, 1+float64(random.IntN(5))/4)
	}
	return s
}

func without(s policy.Situation, node string) policy.Situation {
	lost := slices.Index(s.Nodes, node)
	s.Nodes = slices.Delete(slices.Clone(s.Nodes), lost, lost+1)
	s.MemoryBytes = slices.Delete(slices.Clone(s.MemoryBytes), lost, lost+1)
	s.Speed = slices.Delete(slices.Clone(s.Speed), lost, lost+1)
	return s
}
