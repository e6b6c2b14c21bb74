package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/reknit/reknit/tests/torch"
)

const (
	rounds     = 3  // each with all settings, so that a machine that is busy for a while is so for all of them
	roundSteps = 21 // the first is not measured
)

// settings are how many steps lie between two snapshots; 0: there are none.
var settings = []int{0, 10, 1}

// cost is what steps took with snapshots.
type cost struct {
	mean, most float64 // seconds of a step
	written    int     // snapshots
}

// snapshots prints what snapshots to a folder cost a node that trains alone.
func snapshots(ctx context.Context, place torch.Place, script, directory string) error {
	fmt.Printf("\n| round | a snapshot every | mean step | x without | longest step | snapshots written |\n")
	fmt.Println("| --- | --- | --- | --- | --- | --- |")
	for round := range rounds {
		without := 0.0
		for _, every := range settings {
			c, err := train(ctx, place, script, filepath.Join(directory, fmt.Sprintf("round-%d-every-%d", round, every)), every)
			if err != nil {
				return err
			}
			if every == 0 {
				without = c.mean
			}
			fmt.Printf("| %d | %d steps | %.3f s | %.2f | %.3f s | %d |\n", round+1, every, c.mean, c.mean/without, c.most, c.written)
		}
	}
	return nil
}

// train trains a job of one node to its end.
func train(ctx context.Context, place torch.Place, script, directory string, every int) (c cost, err error) {
	folder := filepath.Join(directory, "snapshots")
	for name, value := range map[string]string{"FOLDER": folder, "DISK_EVERY": fmt.Sprint(every)} {
		if err := os.Setenv("REKNIT_SNAPSHOT_"+name, value); err != nil {
			return c, err
		}
	}
	if err := os.Mkdir(directory, 0o755); err != nil {
		return c, err
	}
	job, err := torch.NewReknit(place, script, directory, []string{node(1)}, roundSteps)
	if err != nil {
		return c, err
	}
	err = job.Course.Wait(ctx, limit, "the last step", func(steps []torch.Step) bool { return len(steps) == roundSteps })
	job.Close()
	if err != nil {
		return c, err
	}
	steps := job.Course.Steps()
	c.mean = (steps[roundSteps-1].Time - steps[0].Time) / (roundSteps - 1)
	for i := range steps[1:] {
		c.most = max(c.most, steps[i+1].Time-steps[i].Time)
	}
	log, err := os.ReadFile(filepath.Join(directory, node(1)+".log"))
	c.written = bytes.Count(log, []byte("snapshot written"))
	return c, err
}
