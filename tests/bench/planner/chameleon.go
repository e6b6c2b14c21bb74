package main

import (
	"math"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/search"
)

// literal is Chameleon's planner as its text has it (section IV-C, Algorithm 1): all non-decreasing lengths that use up
// the nodes, with one pipeline more or less than now and lengths that differ by one from the present one; the batch in
// proportion; for each pipeline, the leftover layers on every choice of stages, each evaluated by dynamic programming.
// Nothing is remembered between pipelines.
type literal struct {
	layers                []estimate.Layer
	microBatches          int
	shortest, longest     int
	transfer              float64
	strategies, evaluated int
	best                  float64
	plan                  []estimate.Member
}

// find plans for so many nodes and from least to most pipelines.
func (l *literal) find(nodes, least, most int) {
	l.best = math.Inf(1)
	for pipelines := max(1, least); pipelines <= most; pipelines++ {
		l.peel(nodes, pipelines, l.shortest, nil)
	}
}

// peel takes one pipeline after another off the nodes.
func (l *literal) peel(nodes, pipelines, shortest int, lengths []int) {
	if pipelines == 0 {
		if nodes == 0 {
			l.weigh(lengths)
		}
		return
	}
	for length := shortest; length <= l.longest && length*pipelines <= nodes; length++ {
		if l.longest*(pipelines-1) < nodes-length {
			continue
		}
		l.peel(nodes-length, pipelines-1, length, append(lengths, length))
	}
}

func (l *literal) weigh(lengths []int) {
	if l.microBatches < len(lengths) {
		return
	}
	l.strategies++
	step := 0.0
	var plan []estimate.Member
	for p, microBatches := range search.ProportionalBatches(l.microBatches, lengths) {
		stages, seconds := l.split(lengths[p], microBatches)
		plan = append(plan, estimate.Member{MicroBatches: microBatches, Stages: stages})
		step = max(step, seconds)
	}
	if step < l.best {
		l.best, l.plan = step, plan
	}
}

// split tries every choice of the stages that take a leftover layer.
func (l *literal) split(length, microBatches int) (best []estimate.Range, seconds float64) {
	each, left := len(l.layers)/length, len(l.layers)%length
	seconds = math.Inf(1)
	for larger := range 1 << length {
		stages, first := make([]estimate.Range, length), 0
		for s := range stages {
			stages[s] = estimate.Range{First: first, End: first + each + larger>>s&1}
			first = stages[s].End
		}
		if ones(larger) != left {
			continue
		}
		l.evaluated++
		took := estimate.OneForwardOneBackward(estimate.OfLayers(l.layers, stages, microBatches, l.transfer)).MakespanSeconds
		if took < seconds {
			best, seconds = stages, took
		}
	}
	return best, seconds
}

func ones(set int) int {
	count := 0
	for ; set > 0; set &= set - 1 {
		count++
	}
	return count
}

// munkres assigns every row a column at the least total cost (Kuhn and Munkres), in O(n^3). It returns the row of each
// column.
func munkres(cost [][]int) []int {
	n := len(cost)
	u, v, rowOf, way := make([]int, n+1), make([]int, n+1), make([]int, n+1), make([]int, n+1)
	for row := 1; row <= n; row++ {
		rowOf[0] = row
		column := 0
		least, used := make([]int, n+1), make([]bool, n+1)
		for j := range least {
			least[j] = math.MaxInt
		}
		for rowOf[column] != 0 {
			used[column] = true
			delta, next := math.MaxInt, 0
			for j := 1; j <= n; j++ {
				if used[j] {
					continue
				}
				if reduced := cost[rowOf[column]-1][j-1] - u[rowOf[column]] - v[j]; reduced < least[j] {
					least[j], way[j] = reduced, column
				}
				if least[j] < delta {
					delta, next = least[j], j
				}
			}
			for j := range least {
				if used[j] {
					u[rowOf[j]] += delta
					v[j] -= delta
				} else {
					least[j] -= delta
				}
			}
			column = next
		}
		for ; column != 0; column = way[column] {
			rowOf[column] = rowOf[way[column]]
		}
	}
	rows := make([]int, n)
	for j := range rows {
		rows[j] = rowOf[j+1] - 1
	}
	return rows
}
