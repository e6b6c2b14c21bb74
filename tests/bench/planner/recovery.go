package main

import (
	"errors"
	"fmt"

	"github.com/reknit/reknit/services/planner/policy"
	"github.com/reknit/reknit/tests/bench/figures"
	"github.com/reknit/reknit/tests/papers/recovery"
)

// restartSeconds is an assumption: to stop all trainers and to start them anew.
const restartSeconds = 30

// recoveries compares how long a sample takes, on average until the next failure, after the loss of one device.
func recoveries(r *figures.Report) error {
	fmt.Println("a sample until the next failure, after the loss of one device: seconds")
	fmt.Printf("%8s %12s %12s %12s\n", "devices", "ours", "templates", "restart")
	for devices := 8; devices <= mostLiteral; devices *= 4 {
		s := afterALoss(devices)
		ours, err := policy.Choose(s)
		if err != nil {
			return err
		}
		templates, err := recovery.Templates(s)
		if err != nil {
			return err
		}
		restarts, err := recovery.Restart(s, restartSeconds)
		if err != nil {
			return err
		}
		kept, keptErr := sampleSeconds(s, templates)
		restarted, restartErr := sampleSeconds(s, restarts...)
		if err := errors.Join(keptErr, restartErr); err != nil {
			return err
		}
		own := 1 / ours[0].Score
		fmt.Printf("%8d %12.6f %12.6f %12.6f\n", devices, own, kept, restarted)
		name := fmt.Sprintf("a sample, %d devices, beside ", devices)
		r.Add(figures.Row{
			Figure: name + "templates", Unit: "s", Ours: own, Baseline: kept, BaselineName: "Oobleck's templates",
			LeastRatio: 1,
		})
		r.Add(figures.Row{
			Figure: name + "a restart", Unit: "s", Ours: own, Baseline: restarted,
			BaselineName: "restart from a checkpoint", LeastRatio: 1,
		})
	}
	fmt.Println()
	return nil
}

// sampleSeconds is what the best of some candidates takes for a sample, the time of its transition included.
func sampleSeconds(s policy.Situation, candidates ...policy.Candidate) (float64, error) {
	weighed, err := policy.Weigh(s, candidates, nil)
	if err != nil {
		return 0, err
	}
	return 1 / weighed[0].Score, nil
}
