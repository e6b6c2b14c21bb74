package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/reknit/reknit/services/restorer/replicate"
	"github.com/reknit/reknit/tests/bench/figures"
)

const (
	fetchShard  = 8 << 20 // the restorer's, of layers of a gigabyte
	fetchGap    = 1.01    // times the optimum of infinitely small shards
	seededPlans = 50
	mostNeeds   = 12 // of a seeded fetch: all their sets are tried
)

// solved is a fetch and the least seconds for it.
type solved struct {
	replicate.Fetch
	optimum float64
}

// fetches compares what fetches take with their optimum, and with fetching each layer from one node.
func fetches(r *figures.Report, s settings) error {
	var seeded []solved
	for seed := range uint64(seededPlans) {
		fetch := someFetch(rand.New(rand.NewPCG(seed, 4)))
		seeded = append(seeded, solved{fetch, slowestSet(fetch)})
	}
	if err := compareFetches(r, fmt.Sprintf("%d seeded fetches", seededPlans), seeded); err != nil || s.cases == "" {
		return err
	}
	given, err := fetchCases(filepath.Join(s.cases, "fetch.json"))
	if err != nil {
		return err
	}
	return compareFetches(r, fmt.Sprintf("%d fetches of fetch.json", len(given)), given)
}

// compareFetches adds the fetch that is worst beside its optimum, the one that is worst beside one source for each
// layer, and all together beside one source.
func compareFetches(r *figures.Report, name string, fetches []solved) error {
	apart := figures.Row{
		Figure: name + ", worst", Unit: "s", BaselineName: "optimum", LeastRatio: 1 / fetchGap, Ratio: math.Inf(1),
	}
	worst := figures.Row{Figure: name + ", worst", Unit: "s", BaselineName: "one source for each layer", LeastRatio: 1,
		Ratio: math.Inf(1)}
	all := figures.Row{Figure: name + ", all", Unit: "s", BaselineName: "one source for each layer", LeastRatio: 1}
	keep := func(row *figures.Row, ours, baseline float64) {
		if ratio := baseline / ours; ratio < row.Ratio {
			row.Ours, row.Baseline, row.Ratio = ours, baseline, ratio
		}
	}
	for i, fetch := range fetches {
		found, err := replicate.PlanFetch(fetch.Fetch)
		if err != nil {
			return fmt.Errorf("%s: %d: %w", name, i, err)
		}
		one := fromOne(fetch.Fetch)
		keep(&apart, found.Seconds, fetch.optimum)
		keep(&worst, found.Seconds, one)
		all.Ours, all.Baseline = all.Ours+found.Seconds, all.Baseline+one
	}
	r.Add(apart)
	r.Add(worst)
	r.Add(all)
	return nil
}

func fetchCases(file string) ([]solved, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var cases struct {
		Cases []struct {
			Input struct {
				LayerBytes []int64   `json:"layer_bytes"`
				Egress     []float64 `json:"egress_bytes_per_s"`
				Ingress    []float64 `json:"ingress_bytes_per_s"`
				Holders    [][]int   `json:"holders_of_layer"`
				Needs      []replicate.Need
			}
			Expected struct {
				Seconds float64 `json:"optimal_seconds"`
			}
		}
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var fetches []solved
	for _, c := range cases.Cases {
		fetches = append(fetches, solved{replicate.Fetch{
			LayerBytes: c.Input.LayerBytes, ShardBytes: fetchShard, Holders: c.Input.Holders, Needs: c.Input.Needs,
			EgressBytesPerSecond: c.Input.Egress, IngressBytesPerSecond: c.Input.Ingress,
		}, c.Expected.Seconds})
	}
	return fetches, nil
}

// someFetch draws receivers that lack layers of some gigabytes, each of which several nodes hold. Receivers
// are fast, and senders and links differ by up to ten times.
func someFetch(random *rand.Rand) replicate.Fetch {
	const nodes = 16
	fetch := replicate.Fetch{ShardBytes: fetchShard}
	rates := func() []float64 {
		row := make([]float64, nodes)
		for node := range row {
			row[node] = 125e6 * (1 + 9*random.Float64())
		}
		return row
	}
	fetch.EgressBytesPerSecond, fetch.IngressBytesPerSecond = rates(), slices.Repeat([]float64{10 * 125e6}, nodes)
	for range nodes {
		fetch.LinkBytesPerSecond = append(fetch.LinkBytesPerSecond, rates())
	}
	for layer := range 6 {
		fetch.LayerBytes = append(fetch.LayerBytes, 1e9+random.Int64N(3e9))
		order := random.Perm(nodes)
		holders := 2 + random.IntN(4)
		fetch.Holders = append(fetch.Holders, order[:holders])
		for _, node := range order[holders:] {
			if random.IntN(6) == 0 && len(fetch.Needs) < mostNeeds {
				fetch.Needs = append(fetch.Needs, replicate.Need{Node: node, Layer: layer})
			}
		}
	}
	return fetch
}

// slowestSet is the exact optimum for infinitely small shards: by the theorem of max-flow and min-cut it is that of the
// set of needs whose bytes take longest over all that its holders can send them, or of the slowest receiver. It tries
// every set.
func slowestSet(fetch replicate.Fetch) float64 {
	slowest := 0.0
	for set := range 1 << len(fetch.Needs) {
		bytes := 0.0
		ways := make([]map[int]bool, len(fetch.EgressBytesPerSecond)) // per sender: receivers
		for k, need := range fetch.Needs {
			if set>>k&1 == 0 {
				continue
			}
			bytes += float64(fetch.LayerBytes[need.Layer])
			for _, sender := range fetch.Holders[need.Layer] {
				if ways[sender] == nil {
					ways[sender] = map[int]bool{}
				}
				ways[sender][need.Node] = true
			}
		}
		rate := 0.0
		for sender, receivers := range ways {
			links := 0.0
			for receiver := range receivers {
				links += fetch.LinkBytesPerSecond[sender][receiver]
			}
			rate += min(links, fetch.EgressBytesPerSecond[sender])
		}
		if bytes > 0 {
			slowest = max(slowest, bytes/rate)
		}
	}
	return max(slowest, slowestReceiver(fetch))
}

func slowestReceiver(fetch replicate.Fetch) float64 {
	received := make([]float64, len(fetch.IngressBytesPerSecond))
	slowest := 0.0
	for _, need := range fetch.Needs {
		received[need.Node] += float64(fetch.LayerBytes[need.Layer])
		slowest = max(slowest, received[need.Node]/fetch.IngressBytesPerSecond[need.Node])
	}
	return slowest
}

// fromOne fetches each layer from the one holder that will have sent it first, one need after the other.
func fromOne(fetch replicate.Fetch) float64 {
	sends := make([]float64, len(fetch.EgressBytesPerSecond)) // bytes
	between := map[[2]int]float64{}
	slowest := slowestReceiver(fetch)
	for _, need := range fetch.Needs {
		bytes, best, first := float64(fetch.LayerBytes[need.Layer]), math.Inf(1), 0
		for _, sender := range fetch.Holders[need.Layer] {
			done := (sends[sender] + bytes) / fetch.EgressBytesPerSecond[sender]
			if fetch.LinkBytesPerSecond != nil {
				done = max(done, (between[[2]int{sender, need.Node}]+bytes)/fetch.LinkBytesPerSecond[sender][need.Node])
			}
			if done < best {
				best, first = done, sender
			}
		}
		sends[first] += bytes
		between[[2]int{first, need.Node}] += bytes
		slowest = max(slowest, best)
	}
	return slowest
}
