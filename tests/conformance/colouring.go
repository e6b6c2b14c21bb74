package main

import (
	"errors"
	"slices"

	"github.com/reknit/reknit/services/restorer/layers"
	"github.com/reknit/reknit/services/restorer/rounds"
	"github.com/reknit/reknit/tests/papers/schedule"
)

// effort is a hundred times what the restorer spends on the rounds of a plan.
const effort = 10_000_000

type colouringInput struct {
	Layers     int
	LayerBytes []int64 `json:"layer_bytes"`
	StageSizes [][]int `json:"pipelines_stage_sizes"` // every stage is a device
}

func solveColouring(in colouringInput) (answer, error) {
	holdings := in.holdings()
	groups, err := rounds.Groups(in.Layers, holdings)
	if err != nil {
		return nil, err
	}
	segments, bytes := make([][2]int, len(groups)), make([]int64, len(groups))
	onDevice, ofDevice := make([][]int, len(holdings)), make([][]int, len(holdings))
	for x, group := range groups {
		segments[x] = [2]int{group.Layers.First, group.Layers.End}
		for layer := group.Layers.First; layer < group.Layers.End; layer++ {
			bytes[x] += in.LayerBytes[layer]
			for _, device := range group.Nodes {
				ofDevice[device] = append(ofDevice[device], layer)
			}
		}
		for _, device := range group.Nodes {
			onDevice[device] = append(onDevice[device], x)
		}
	}
	result := answer{"segments": segments}
	return result, errors.Join(
		addRounds(result, "min_rounds_layers", "layer_colours", in.Layers, ofDevice),
		addRounds(result, "min_rounds_segments", "colours", len(groups), onDevice),
		addSchedules(result, bytes, onDevice),
	)
}

// holdings are the layers of each device.
func (in colouringInput) holdings() [][]layers.Range {
	var holdings [][]layers.Range
	for _, sizes := range in.StageSizes {
		next := 0
		for _, size := range sizes {
			holdings = append(holdings, []layers.Range{{First: next, End: next + size}})
			next += size
		}
	}
	return holdings
}

func addRounds(result answer, roundsKey, coloursKey string, items int, devices [][]int) error {
	roundOf, err := schedule.FewestRounds(items, devices)
	if errors.Is(err, schedule.ErrNotContiguous) {
		var found rounds.Colouring
		found, err = rounds.Colour(slices.Repeat([]int64{1}, items), devices, effort)
		roundOf = found.RoundOf
	}
	if err != nil {
		return err
	}
	result[roundsKey], result[coloursKey] = slices.Max(roundOf)+1, roundOf
	return proper(roundOf, devices)
}

// addSchedules answers what was proved; finding the best unsplit schedule, or the shortest rounds, is hard.
func addSchedules(result answer, bytes []int64, devices [][]int) error {
	shortest, shortestErr := rounds.Colour(bytes, devices, effort)
	split, splitErr := schedule.WrapAround(bytes, devices)
	whole := schedule.Unsplit(bytes, devices)
	if err := errors.Join(shortestErr, splitErr); err != nil {
		return err
	}
	splitEnd, splitErr := makespan(split.Pieces, bytes, devices)
	result["max_bytes_on_one_device"], result["schedule"] = splitEnd, written(split.Pieces)
	wholeEnd, wholeErr := makespan(whole.Pieces, bytes, devices)
	if wholeEnd == whole.AtLeast {
		result["min_makespan_bytes_unsplit_no_barrier"], result["unsplit_schedule"] = wholeEnd, written(whole.Pieces)
	}
	if sum := sumOfMaxima(shortest.RoundOf, bytes); sum == shortest.AtLeast {
		result["min_sum_of_round_maxima_bytes"], result["shortest_colours"] = sum, shortest.RoundOf
	}
	return errors.Join(splitErr, wholeErr, proper(shortest.RoundOf, devices))
}

type colouringGeneralInput struct {
	Items       int
	DeviceItems [][]int `json:"device_items"`
}

func solveColouringGeneral(in colouringGeneralInput) (answer, error) {
	largest := 0
	for _, items := range in.DeviceItems {
		largest = max(largest, len(items))
	}
	result := answer{"largest_device": largest}
	return result, addRounds(result, "chromatic_number", "colours", in.Items, in.DeviceItems)
}
