package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/reknit/reknit/services/restorer/replicate"
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
	fetch := chaos.Fetch(neighbours, in.Shards)
	fluid, err := replicate.FluidSeconds(fetch)
	if err != nil {
		return nil, err
	}
	some, finish, err := divided(neighbours, fetch, 0)
	if err != nil {
		return nil, fmt.Errorf("counts: %w", err)
	}
	result := answer{
		"min_makespan_ns_some_unused": finish, "counts": some,
		"fluid_lower_bound_ns": fluid, "min_makespan_ns_all_used": nil,
	}
	fetch.EachHolder = true
	every, finish, err := divided(neighbours, fetch, 1)
	if errors.Is(err, replicate.ErrTooFewShards) {
		return result, nil
	}
	if err != nil {
		return nil, fmt.Errorf("counts_all_used: %w", err)
	}
	result["counts_all_used"], result["min_makespan_ns_all_used"] = every, finish
	return result, nil
}

// divided returns how many shards each neighbour sends, and when the last has arrived.
func divided(neighbours []chaos.Neighbour, fetch replicate.Fetch, least int64) (counts []int64, finished int64, err error) {
	fetched, err := replicate.PlanFetch(fetch)
	if err != nil {
		return nil, 0, err
	}
	counts = chaos.Counts(fetched, len(neighbours))
	shards := (fetch.LayerBytes[0] + fetch.ShardBytes - 1) / fetch.ShardBytes
	finished, err = finish(neighbours, counts, shards, least)
	return counts, finished, err
}

// finish is when the last shard has arrived.
func finish(neighbours []chaos.Neighbour, counts []int64, shards, least int64) (int64, error) {
	if len(counts) != len(neighbours) || slices.Min(counts) < least {
		return 0, fmt.Errorf("expected at least %d shards for each neighbour", least)
	}
	sum := int64(0)
	for _, count := range counts {
		sum += count
	}
	if sum != shards {
		return 0, fmt.Errorf("expected %d shards, got %d", shards, sum)
	}
	return chaos.Finish(neighbours, counts), nil
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
	fetch := chaos.Fetch(neighbours, in.TotalElements)
	fetch.EachHolder = true
	fluid, err := replicate.FluidSeconds(fetch)
	if err != nil {
		return nil, err
	}
	result := answer{"fluid_lower_bound_ns": fluid, "largest_size_within_1_percent_of_fluid": nil}
	if result["theta_ns_per_size"], err = in.thetas(neighbours, fetch); err != nil {
		return nil, err
	}
	largest, within, err := replicate.LargestShard(fetch, in.ChainElements)
	if within {
		result["largest_size_within_1_percent_of_fluid"] = largest
	}
	return result, err
}

// thetas is the time that each size takes; null where there are fewer shards than neighbours.
func (in shardChainInput) thetas(neighbours []chaos.Neighbour, fetch replicate.Fetch) ([]*int64, error) {
	thetas := make([]*int64, len(in.ChainElements))
	for i, size := range in.ChainElements {
		scaled := slices.Clone(neighbours)
		for u := range scaled {
			scaled[u].ShardNanoseconds *= size
		}
		fetch.ShardBytes = size
		_, finish, err := divided(scaled, fetch, 1)
		if errors.Is(err, replicate.ErrTooFewShards) {
			continue
		}
		if err != nil {
			return nil, err
		}
		thetas[i] = &finish
	}
	return thetas, nil
}
