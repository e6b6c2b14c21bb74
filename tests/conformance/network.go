package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/reknit/reknit/services/planner/place"
	"github.com/reknit/reknit/tests/papers/dtfm"
)

const gigabit = 1e9 / 8 // bytes

func solvePath(in struct{ Weight [][]float64 }) (answer, error) {
	length, _ := place.ShortestPath(in.Weight)
	return answer{"min_path": length}, nil
}

// networkInput is a network of DT-FM, by device, and what is asked about it.
type networkInput struct {
	DelaySeconds [][]float64 `json:"delay_s"`
	Bandwidth    [][]float64 `json:"bandwidth_gbps"`
	Gradient     float64     `json:"c_dp_gigabit"`
	Boundary     float64     `json:"c_pp_gigabit"`
	GroupSize    int         `json:"group_size"`
	Groups       [][]int     `json:"groups"`
}

// A small network is searched for its optimum, a large one until it is proven or the last effort is spent.
var (
	smallEffort = dtfm.Effort{Moves: 20_000, Mixtures: 20_000}
	efforts     = []dtfm.Effort{{Moves: 200_000, Mixtures: 100_000}, {Moves: 2_500_000, Mixtures: 100_000}}
)

// smallDevices is how many devices a case has at most that was solved by exhaustion.
const smallDevices = 12

func (in networkInput) grid() (dtfm.Grid, error) {
	devices := len(in.DelaySeconds)
	if in.GroupSize < 1 || devices%in.GroupSize != 0 || len(in.Bandwidth) != devices {
		return dtfm.Grid{},
			fmt.Errorf("expected groups of a size that divides %d devices, and as many bandwidths, got %d and %d",
				devices, in.GroupSize, len(in.Bandwidth))
	}
	grid := dtfm.Grid{
		Network:   place.Network{DelaySeconds: in.DelaySeconds},
		Pipelines: in.GroupSize, Stages: devices / in.GroupSize,
		GradientBytes: in.Gradient * gigabit, ActivationBytes: in.Boundary * gigabit,
	}
	for _, rates := range in.Bandwidth {
		bytes := make([]float64, len(rates))
		for i, rate := range rates {
			bytes[i] = rate * gigabit
		}
		grid.Network.BytesPerSecond = append(grid.Network.BytesPerSecond, bytes)
	}
	return grid, nil
}

func solveNetworkCost(in networkInput) (answer, error) {
	if len(in.Groups) == 0 {
		return nil, errors.New("groups: expected at least one")
	}
	in.GroupSize = len(in.Groups[0])
	grid, err := in.grid()
	if err != nil {
		return nil, err
	}
	dataParallel, pipeline := grid.Cost(in.Groups)
	solved := answer{"datap_s": dataParallel, "pipelinep_s": pipeline, "total_s": dataParallel + pipeline}
	if len(in.DelaySeconds) <= smallDevices {
		best, err := grid.Place(smallEffort)
		if err != nil {
			return nil, err
		}
		solved["optimal_total_s"], err = totalSeconds(grid, best)
		if err != nil {
			return nil, err
		}
	}
	return solved, nil
}

func solveNetworkBest(in networkInput) (answer, error) {
	grid, err := in.grid()
	if err != nil {
		return nil, err
	}
	var best dtfm.Placement
	for _, effort := range efforts {
		if best, err = grid.Place(effort); err != nil {
			return nil, err
		}
		if best.Optimal {
			break
		}
	}
	total, err := totalSeconds(grid, best)
	return answer{"total_s": total, "groups": best.Groups, "lower_bound_s": best.LowerBoundSeconds}, err
}

// totalSeconds computes a layout's cost anew, and looks whether every device sits in one place.
func totalSeconds(grid dtfm.Grid, placement dtfm.Placement) (float64, error) {
	var seated []int
	for _, group := range placement.Groups {
		if len(group) != grid.Pipelines {
			return 0, fmt.Errorf("a group of %d devices, expected %d", len(group), grid.Pipelines)
		}
		seated = append(seated, group...)
	}
	slices.Sort(seated)
	for i, device := range seated {
		if device != i {
			return 0, fmt.Errorf("device %d sits in no place, or in two", i)
		}
	}
	dataParallel, pipeline := grid.Cost(placement.Groups)
	return dataParallel + pipeline, nil
}

// networksFile holds the networks that cases name.
const networksFile = "dtfm_networks.json"

// namedNetwork is a network by classes of devices with equal links.
type namedNetwork struct {
	Classes   []struct{ Devices int }
	Delay     [][]float64 `json:"delay_ms"`
	Bandwidth [][]float64 `json:"bandwidth_gbps"`
	GroupSize int         `json:"D_DP"`
	Gradient  float64     `json:"c_dp_gigabit"`
	Boundary  float64     `json:"c_pp_gigabit"`
}

// resolve puts the network that an input names in the place of its name.
func resolve(folder string, input json.RawMessage) (json.RawMessage, error) {
	var named struct {
		Network string
		Groups  [][]int
	}
	if json.Unmarshal(input, &named) != nil || named.Network == "" {
		return input, nil
	}
	data, err := os.ReadFile(filepath.Join(folder, networksFile))
	if err != nil {
		return nil, fmt.Errorf("network %q: %w", named.Network, err)
	}
	var file struct{ Cases map[string]namedNetwork }
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", networksFile, err)
	}
	network, found := file.Cases[named.Network]
	if !found {
		return nil, fmt.Errorf("network %q: expected one of %s", named.Network, networksFile)
	}
	resolved := network.byDevice()
	resolved.Groups = named.Groups
	return json.Marshal(resolved)
}

func (n namedNetwork) byDevice() networkInput {
	input := networkInput{GroupSize: n.GroupSize, Gradient: n.Gradient, Boundary: n.Boundary}
	var class []int
	for c, members := range n.Classes {
		class = append(class, slices.Repeat([]int{c}, members.Devices)...)
	}
	for _, a := range class {
		var delays, rates []float64
		for _, b := range class {
			delays, rates = append(delays, n.Delay[a][b]/1e3), append(rates, n.Bandwidth[a][b])
		}
		input.DelaySeconds, input.Bandwidth = append(input.DelaySeconds, delays), append(input.Bandwidth, rates)
	}
	return input
}
