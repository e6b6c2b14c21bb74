package main

import (
	_ "embed" // the networks
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/reknit/reknit/services/planner/place"
	"github.com/reknit/reknit/tests/papers/dtfm"
)

//go:embed networks.json
var ours []byte

// network is a grid to place, and the least cost that is known for it; 0 for none.
type network struct {
	name string
	grid dtfm.Grid
	best float64
}

// table is a network in a file: classes of devices with equal links, or single devices.
type table struct {
	Name      string      `json:"name"`
	Classes   []int       `json:"classes"`
	Delay     [][]float64 `json:"delay_ms"`
	Bandwidth [][]float64 `json:"bandwidth_gbps"`
	Pipelines int         `json:"pipelines"`
	Stages    int         `json:"stages"`
	Gradient  float64     `json:"gradient_gigabit"`
	Boundary  float64     `json:"activation_gigabit"`
	Scatter   uint64      `json:"scatter"` // seed; 0: none
}

const gigabit = 1e9 / 8 // bytes

// load reads our networks, or those of dtfm_networks.json in a directory.
func load(cases string) ([]network, error) {
	if cases != "" {
		return loadCases(filepath.Join(cases, "dtfm_networks.json"))
	}
	var file struct{ Networks []table }
	if err := json.Unmarshal(ours, &file); err != nil {
		return nil, fmt.Errorf("networks.json: %w", err)
	}
	var networks []network
	for _, t := range file.Networks {
		networks = append(networks, network{name: t.Name, grid: t.grid()})
	}
	return networks, nil
}

func loadCases(file string) ([]network, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var cases struct {
		Cases map[string]struct {
			table
			Classes   []struct{ Devices int } `json:"classes"`
			Pipelines int                     `json:"D_DP"`
			Stages    int                     `json:"D_PP"`
			Gradient  float64                 `json:"c_dp_gigabit"`
			Boundary  float64                 `json:"c_pp_gigabit"`
			Best      struct {
				Seconds float64 `json:"total_s"`
			} `json:"best_known"`
		}
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var networks []network
	for name, c := range cases.Cases {
		t := c.table
		for _, class := range c.Classes {
			t.Classes = append(t.Classes, class.Devices)
		}
		t.Pipelines, t.Stages, t.Gradient, t.Boundary = c.Pipelines, c.Stages, c.Gradient, c.Boundary
		networks = append(networks, network{name, t.grid(), c.Best.Seconds})
	}
	slices.SortFunc(networks, func(a, b network) int { return strings.Compare(a.name, b.name) })
	return networks, nil
}

// grid expands the classes to devices.
func (t table) grid() dtfm.Grid {
	g := dtfm.Grid{Pipelines: t.Pipelines, Stages: t.Stages, GradientBytes: t.Gradient * gigabit,
		ActivationBytes: t.Boundary * gigabit}
	var class []int
	for c, devices := range t.Classes {
		class = append(class, slices.Repeat([]int{c}, devices)...)
	}
	for _, a := range class {
		var delays, rates []float64
		for _, b := range class {
			delays, rates = append(delays, t.Delay[a][b]/1e3), append(rates, t.Bandwidth[a][b]*gigabit)
		}
		g.Network.DelaySeconds, g.Network.BytesPerSecond = append(g.Network.DelaySeconds, delays),
			append(g.Network.BytesPerSecond, rates)
	}
	if t.Scatter != 0 {
		scatter(g.Network, rand.New(rand.NewPCG(t.Scatter, 0)))
	}
	return g
}

// scatter multiplies each pair's delay and bandwidth by factors that are log-normal around 1.
func scatter(n place.Network, random *rand.Rand) {
	const sigma = 0.25
	for a := range n.DelaySeconds {
		for b := range a {
			n.DelaySeconds[a][b] *= math.Exp(sigma * random.NormFloat64())
			n.BytesPerSecond[a][b] *= math.Exp(sigma * random.NormFloat64())
			n.DelaySeconds[b][a], n.BytesPerSecond[b][a] = n.DelaySeconds[a][b], n.BytesPerSecond[a][b]
		}
	}
}
