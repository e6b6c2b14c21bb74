package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
)

// answer holds the keys of a case's expected values that we compute, and the solution.
type answer map[string]any

// kind is how a kind of case is solved and how the answer is judged.
type kind struct {
	// solve returns an error where the answer is not feasible: what a solution is worth is computed anew from the
	// input.
	solve func(input json.RawMessage) (answer, error)
	// relative, of numbers of which one is not whole; a case's own tolerance_relative comes before it
	tolerance float64
	notJudged []string // expected keys that are one solution among many, or no aim of ours
}

// kinds lists all that we solve.
var kinds = map[string]kind{
	"assignment":         {solve: reading(solveAssignment)},
	"migration":          {solve: reading(solveMigration)},
	"shards":             {solve: reading(solveShards), tolerance: 1e-9},
	"shard_chain":        {solve: reading(solveShardChain), tolerance: 1e-9},
	"fetch":              {solve: reading(solveFetch), tolerance: 1e-6}, // whole shards
	"colouring":          {solve: reading(solveColouring)},
	"colouring_general":  {solve: reading(solveColouringGeneral)},
	"pipeline_1f1b":      {solve: reading(solvePipeline)},
	"memory":             {solve: reading(solveMemory)},
	"reroute":            {solve: reading(solveReroute), tolerance: 1e-9},
	"objective":          {solve: reading(solveObjective), tolerance: 1e-9},
	"batch_distribution": {solve: reading(solveBatchDistribution)},
	"layer_split":        {solve: reading(solveLayerSplit)},
	"plan_search": {solve: reading(solvePlanSearch), notJudged: []string{
		"one_best_set_of_pipeline_lengths",
		"best_step_us_with_paper_batch_rule", // the best of what the paper searches, never better than the best of all
	}},
	"open_tsp":  {solve: reading(solvePath)},
	"dtfm_cost": {solve: reading(solveNetworkCost), tolerance: 1e-9},
	"dtfm_best": {solve: reading(solveNetworkBest), notJudged: []string{
		"datap_s", "how", // of one solution among many
		"certified_optimal", // says how the total is judged
	}},
	"elastic_tokens": {solve: reading(solveElasticTokens)},
	"elastic_lr":     {solve: reading(solveElasticRate), tolerance: 1e-12},
}

// reading decodes a case's input for its solver.
func reading[T any](solve func(T) (answer, error)) func(json.RawMessage) (answer, error) {
	return func(data json.RawMessage) (answer, error) {
		var input T
		if err := json.Unmarshal(data, &input); err != nil {
			return nil, fmt.Errorf("input: %w", err)
		}
		return solve(input)
	}
}

// faults compares an answer with all that is expected, in the order of the keys.
func (k kind) faults(expected json.RawMessage, got answer) ([]string, error) {
	want, err := numbers(expected)
	if err != nil {
		return nil, fmt.Errorf("expected: %w", err)
	}
	if own, ok := want["tolerance_relative"].(json.Number); ok {
		if k.tolerance, err = own.Float64(); err != nil {
			return nil, fmt.Errorf("expected: tolerance_relative: %w", err)
		}
		delete(want, "tolerance_relative")
	}
	proven, known := want["certified_optimal"].(bool)
	data, err := json.Marshal(got)
	if err != nil {
		return nil, err
	}
	have, err := numbers(data)
	if err != nil {
		return nil, err
	}
	var faults []string
	judged := 0
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if slices.Contains(k.notJudged, key) {
			continue
		}
		judged++
		value, ok := have[key]
		switch {
		case !ok:
			faults = append(faults, fmt.Sprintf("%s: expected %v, got no answer", key, want[key]))
		case known && !proven && noWorse(want[key], value, k.tolerance):
		case !same(want[key], value, k.tolerance):
			faults = append(faults, fmt.Sprintf("%s: expected %v, got %v", key, want[key], value))
		}
	}
	if judged == 0 {
		faults = append(faults, "expected: nothing to compare with")
	}
	return faults, nil
}

// numbers decodes an object and keeps its numbers as they are written.
func numbers(data []byte) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var object map[string]any
	return object, decoder.Decode(&object)
}

// same compares two JSON values. Better than the optimum is as wrong as worse: one of the two is no optimum.
func same(want, got any, tolerance float64) bool {
	switch want := want.(type) {
	case json.Number:
		number, ok := got.(json.Number)
		return ok && near(want, number, tolerance)
	case []any:
		list, ok := got.([]any)
		return ok && slices.EqualFunc(want, list, func(a, b any) bool { return same(a, b, tolerance) })
	}
	return reflect.DeepEqual(want, got)
}

// noWorse compares a cost with the best one known, which is not proven to be the least.
func noWorse(known, got any, tolerance float64) bool {
	a, first := known.(json.Number)
	b, second := got.(json.Number)
	if !first || !second {
		return false
	}
	x, firstErr := a.Float64()
	y, secondErr := b.Float64()
	return firstErr == nil && secondErr == nil && y <= x*(1+tolerance)
}

// near compares whole numbers exactly.
func near(want, got json.Number, tolerance float64) bool {
	a, firstErr := want.Int64()
	b, secondErr := got.Int64()
	if firstErr == nil && secondErr == nil {
		return a == b
	}
	x, firstErr := want.Float64()
	y, secondErr := got.Float64()
	return firstErr == nil && secondErr == nil && math.Abs(x-y) <= tolerance*max(math.Abs(x), math.Abs(y))
}
