package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/reknit/reknit/tests/papers/chaos"
)

type shardsInput struct {
	StartDelay []int64 `json:"start_delay_ns"`
	PerShard   []int64 `json:"per_shard_ns"`
	Shards     int64
}

func solveShards(in shardsInput) (answer, error) {
	neighbours, err := neighbours(in.StartDelay, in.PerShard)
	if err != nil {
		return nil, err
	}
	some, err := chaos.Allocate(neighbours, in.Shards, chaos.AnyNeighbour)
	if err != nil {
		return nil, err
	}
	finish, err := finish(neighbours, some.Shards, in.Shards, 0)
	if err != nil {
		return nil, fmt.Errorf("counts: %w", err)
	}
	result := answer{
		"min_makespan_ns_some_unused": finish, "counts": some.Shards,
		"fluid_lower_bound_ns":     chaos.FluidNanoseconds(neighbours, in.Shards),
		"min_makespan_ns_all_used": nil,
	}
	return result, addAllUsed(result, neighbours, in.Shards)
}

// addAllUsed leaves the answer without a time where there are too few shards for all.
func addAllUsed(result answer, neighbours []chaos.Neighbour, shards int64) error {
	every, err := chaos.Allocate(neighbours, shards, chaos.EveryNeighbour)
	if errors.Is(err, chaos.ErrTooFewShards) {
		return nil
	}
	if err != nil {
		return err
	}
	result["counts_all_used"] = every.Shards
	if result["min_makespan_ns_all_used"], err = finish(neighbours, every.Shards, shards, 1); err != nil {
		return fmt.Errorf("counts_all_used: %w", err)
	}
	return nil
}

func neighbours(start, each []int64) ([]chaos.Neighbour, error) {
	if len(start) != len(each) {
		return nil, fmt.Errorf("expected a delay and a time for each neighbour, got %d and %d", len(start), len(each))
	}
	list := make([]chaos.Neighbour, len(start))
	for i := range list {
		list[i] = chaos.Neighbour{StartNanoseconds: start[i], ShardNanoseconds: each[i]}
	}
	return list, nil
}

// finish is when the last shard has arrived; idle neighbours do not count.
func finish(neighbours []chaos.Neighbour, counts []int64, shards, least int64) (int64, error) {
	var sum, last int64
	if len(counts) != len(neighbours) || slices.Min(counts) < least {
		return 0, fmt.Errorf("expected at least %d shards for each neighbour", least)
	}
	for i, neighbour := range neighbours {
		sum += counts[i]
		if counts[i] > 0 {
			last = max(last, neighbour.StartNanoseconds+counts[i]*neighbour.ShardNanoseconds)
		}
	}
	if sum != shards {
		return 0, fmt.Errorf("expected %d shards, got %d", shards, sum)
	}
	return last, nil
}

type shardChainInput struct {
	TotalElements int64   `json:"total_elements"`
	ChainElements []int64 `json:"chain_elements"`
	StartDelay    []int64 `json:"start_delay_ns"`
	PerElement    []int64 `json:"per_element_ns"`
}

func solveShardChain(in shardChainInput) (answer, error) {
	neighbours, err := neighbours(in.StartDelay, in.PerElement)
	if err != nil {
		return nil, err
	}
	weighed, err := chaos.WeighSizes(neighbours, in.TotalElements, in.ChainElements, chaos.EveryNeighbour)
	if err != nil {
		return nil, err
	}
	times := make([]*int64, len(weighed))
	for i, size := range weighed {
		if size.Nanoseconds >= 0 {
			times[i] = &weighed[i].Nanoseconds
		}
	}
	fluid := chaos.FluidNanoseconds(neighbours, in.TotalElements)
	result := answer{
		"theta_ns_per_size": times, "fluid_lower_bound_ns": fluid, "largest_size_within_1_percent_of_fluid": nil,
	}
	if largest, ok := chaos.LargestSize(weighed, fluid); ok {
		result["largest_size_within_1_percent_of_fluid"] = largest.Units
	}
	return result, nil
}
