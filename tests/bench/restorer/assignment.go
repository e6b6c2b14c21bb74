package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"time"

	"github.com/reknit/reknit/tests/bench/figures"
	"github.com/reknit/reknit/tests/papers/assignment"
)

// matrix is a kind of costs: integers times scale.
type matrix struct {
	name  string
	scale float64
	costs func(n int, random *rand.Rand) [][]int64
}

const binaryPlaces = 46 // of random reals: sums of 4,096 of them are exact in int64

var matrices = []matrix{
	{"integers", 1, func(n int, random *rand.Rand) [][]int64 {
		return filled(n, func(int, int) int64 { return random.Int64N(100) })
	}},
	{"reals", 1.0 / (1 << binaryPlaces), func(n int, random *rand.Rand) [][]int64 {
		return filled(n, func(int, int) int64 { return random.Int64N(1 << binaryPlaces) })
	}},
	{"stages", 1, stages},
	{"stages over own links", 1, func(n int, random *rand.Rand) [][]int64 {
		cost := stages(n, random)
		for _, row := range cost {
			perLayer := 1000 + random.Int64N(9000)
			for j := range row {
				row[j] *= perLayer
			}
		}
		return cost
	}},
}

func filled(n int, cost func(i, j int) int64) [][]int64 {
	rows := make([][]int64, n)
	for i := range rows {
		rows[i] = make([]int64, n)
		for j := range rows[i] {
			rows[i][j] = cost(i, j)
		}
	}
	return rows
}

// stages is what Chameleon's restorer solves: the layers that each of n survivors of pipelines of eight stages lacks
// for each place of pipelines of seven, eight and nine, all in random order.
func stages(n int, random *rand.Rand) [][]int64 {
	holds, needs := stagesOf(n, 8), stagesOf(n, 7, 8, 9)
	random.Shuffle(n, func(a, b int) { holds[a], holds[b] = holds[b], holds[a] })
	random.Shuffle(n, func(a, b int) { needs[a], needs[b] = needs[b], needs[a] })
	return filled(n, func(i, j int) int64 {
		shared := min(holds[i].End, needs[j].End) - max(holds[i].First, needs[j].First)
		return int64(needs[j].End - needs[j].First - max(0, shared))
	})
}

// assignments compares the solver with scipy's, call by call in turn, so that both meet the same machine.
func assignments(r *figures.Report, s settings) error {
	rival, err := startScipy(python)
	if err != nil {
		for n := 256; n <= s.matrices; n *= 2 {
			for _, m := range matrices {
				r.Add(figures.Row{Figure: figureOf(n, m), Skipped: err.Error()})
			}
		}
		return nil
	}
	for n := 256; n <= s.matrices && err == nil; n *= 2 {
		for _, m := range matrices {
			if err = beside(r, rival, n, m); err != nil {
				break
			}
		}
	}
	return errors.Join(err, rival.stop())
}

func figureOf(n int, m matrix) string { return fmt.Sprintf("assignment, n = %d, %s", n, m.name) }

func beside(r *figures.Report, rival *scipy, n int, m matrix) error {
	const enough = 300 * time.Millisecond
	cost := m.costs(n, rand.New(rand.NewPCG(uint64(n), 1)))
	file, err := rival.lay(fmt.Sprint(m.name, n), cost, m.scale)
	if err != nil {
		return err
	}
	ours, theirs := math.Inf(1), math.Inf(1)
	for began := figures.Spent(); figures.Spent()-began < enough; {
		var found assignment.Assignment
		took := figures.Once(func() { found, err = assignment.LeastTotal(cost) })
		if err != nil {
			return err
		}
		seconds, total, err := rival.solve(file, n)
		if err != nil {
			return err
		}
		if mine := float64(found.Total) * m.scale; math.Abs(mine-total) > 1e-9*total {
			return fmt.Errorf("%s: the optimum is %v, scipy says %v", figureOf(n, m), mine, total)
		}
		ours, theirs = min(ours, took), min(theirs, seconds)
	}
	r.Add(figures.Row{Figure: figureOf(n, m), Unit: "CPU s", Ours: ours, Baseline: theirs,
		BaselineName: "scipy " + rival.version, LeastRatio: 1})
	return os.Remove(file)
}
