package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/restorer/layers"
	"github.com/reknit/reknit/services/restorer/machine"
	"github.com/reknit/reknit/services/restorer/migrate"
	"github.com/reknit/reknit/tests/bench/figures"
	"github.com/reknit/reknit/tests/papers/assignment"
)

const (
	migrationNodes   = 2048 // one of which is lost
	migrationSeconds = 0.005

	migrationPartitions = 64 // of the optimizer state, over 256 pipelines
)

// migrations measures who becomes whom by kinds beside the matrix of all pairs, and then a whole restoration.
func migrations(r *figures.Report, _ settings) error {
	c := afterALoss(migrationNodes)
	problem := c.problem()
	var found migrate.Migration
	var err error
	took := figures.Seconds(func() { found, err = migrate.LeastTotal(problem) })
	if err != nil {
		return err
	}
	var pairs assignment.Assignment
	slow := figures.Seconds(func() { pairs, err = assignment.LeastTotal(bytesMissing(problem)) })
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%d survivors", len(c.holds))
	r.Add(figures.Row{Figure: "migration, " + name, Unit: "CPU s", Ours: took, Target: migrationSeconds, Baseline: slow,
		BaselineName: "the matrix of all pairs", LeastRatio: 1})
	r.Add(figures.Row{Figure: "bytes fetched, " + name, Unit: "bytes", Ours: float64(found.Bytes),
		Baseline: float64(pairs.Total), BaselineName: "the matrix of all pairs", LeastRatio: 1})
	if err := whatIf(r, c, name, 0); err != nil {
		return err
	}
	return whatIf(r, c, fmt.Sprintf("%s, %d partitions", name, migrationPartitions), migrationPartitions)
}

// problem is the migration of the change.
func (c change) problem() migrate.Problem {
	problem := migrate.Problem{LayerBytes: layerBytes()}
	for _, holds := range c.holds {
		problem.Survivors = append(problem.Survivors, migrate.Survivor{Holds: []layers.Range{holds}})
	}
	for _, length := range c.lengths {
		for _, needs := range cut(length) {
			problem.Places = append(problem.Places, migrate.Place{Needs: []layers.Range{needs}})
		}
	}
	return problem
}

// bytesMissing is the cost of every pair of a survivor and a place.
func bytesMissing(problem migrate.Problem) [][]int64 {
	return filled(len(problem.Survivors), func(i, j int) int64 {
		holds, needs := problem.Survivors[i].Holds[0], problem.Places[j].Needs[0]
		missing := int64(0)
		for layer := needs.First; layer < needs.End; layer++ {
			if layer < holds.First || layer >= holds.End {
				missing += problem.LayerBytes[layer]
			}
		}
		return missing
	})
}

// whatIf measures a whole restoration: who becomes whom, what comes from whom, and the rounds.
func whatIf(r *figures.Report, c change, name string, partitions int) error {
	request := c.request(rand.New(rand.NewPCG(1, 2)))
	if partitions > 0 {
		c.partitioned(&request, partitions)
	}
	var restored events.Restoration
	var err error
	took := figures.Seconds(func() { restored, err = machine.Restore(request) })
	if err != nil {
		return err
	}
	r.Add(figures.Row{Figure: "whole restoration, " + name, Unit: "CPU s", Ours: took})
	r.Add(figures.Row{Figure: "bytes moved, " + name, Unit: "bytes", Ours: float64(restored.BytesMoved),
		Baseline: float64(restored.NaiveBytes), BaselineName: "every place reads its layers anew", LeastRatio: 1})
	return nil
}
