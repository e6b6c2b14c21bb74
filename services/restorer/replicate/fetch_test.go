package replicate_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reknit/reknit/services/restorer/replicate"
)

// checkFetched recounts a plan: every shard of every need once, from a holder, and the seconds it says.
func checkFetched(t *testing.T, fetch replicate.Fetch, fetched replicate.Fetched) {
	t.Helper()
	nodes := len(fetch.EgressBytesPerSecond)
	sent, received := make([]float64, nodes), make([]float64, nodes)
	link := make([]float64, nodes*nodes)
	for k, need := range fetch.Needs {
		end, bytes, seen := int64(0), int64(0), make(map[int]bool)
		for _, source := range fetched.Sources[k] {
			holds := false
			for _, node := range fetch.Holders[need.Layer] {
				holds = holds || node == source.Node
			}
			if !holds || seen[source.Node] || source.First != end || source.End <= source.First {
				t.Fatalf("need %d %v: sources %v of holders %v", k, need, fetched.Sources[k], fetch.Holders[need.Layer])
			}
			seen[source.Node] = true
			end, bytes = source.End, bytes+source.Bytes
			sent[source.Node] += float64(source.Bytes)
			received[need.Node] += float64(source.Bytes)
			link[source.Node*nodes+need.Node] += float64(source.Bytes)
		}
		size := fetch.LayerBytes[need.Layer]
		if bytes != size || end != (size+fetch.ShardBytes-1)/fetch.ShardBytes {
			t.Fatalf("need %d: %d bytes and %d shards of a layer of %d bytes", k, bytes, end, size)
		}
	}
	if want := seconds(fetch, sent, received, link); math.Abs(fetched.Seconds-want) > 1e-9*want {
		t.Fatalf("takes %v seconds, said %v", want, fetched.Seconds)
	}
}

func TestWhereEachNeedHasOneSourceAllHoldersShareTheWork(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	for range 500 {
		fetch := randomFetch(random, 2+random.IntN(6), 1000)
		fetched, err := replicate.PlanWhole(fetch)
		if err != nil {
			t.Fatal(err)
		}
		checkFetched(t, fetch, fetched)
		for k, sources := range fetched.Sources {
			if empty := fetch.LayerBytes[fetch.Needs[k].Layer] == 0; len(sources) != 1 && !empty {
				t.Fatalf("need %d comes from %v", k, sources)
			}
		}
		least, err := replicate.PlanFetch(fetch)
		if err != nil || fetched.Seconds < least.Seconds*(1-1e-9) {
			t.Fatalf("%v s, less than the least possible, %v s (%v)", fetched.Seconds, least.Seconds, err)
		}
	}
}

// seconds is how long the busiest node or link takes for so many bytes, each from its start on.
func seconds(fetch replicate.Fetch, sent, received, link []float64) float64 {
	worst, nodes := 0.0, len(sent)
	divide := func(start, bytes, rate float64) {
		if bytes > 0 {
			worst = max(worst, start+bytes/rate)
		}
	}
	start := func(from, to int) float64 {
		if fetch.StartSeconds == nil {
			return 0
		}
		return fetch.StartSeconds[from][to]
	}
	sends := make([]float64, nodes) // to any who needs something
	for from := range nodes {
		sends[from] = math.Inf(1)
		for _, need := range fetch.Needs {
			if need.Node != from {
				sends[from] = min(sends[from], start(from, need.Node))
			}
		}
	}
	for node := range sent {
		divide(sends[node], sent[node], fetch.EgressBytesPerSecond[node])
		gets := math.Inf(1) // from any holder
		for _, need := range fetch.Needs {
			for _, from := range fetch.Holders[need.Layer] {
				if need.Node == node {
					gets = min(gets, start(from, node))
				}
			}
		}
		divide(gets, received[node], fetch.IngressBytesPerSecond[node])
		if fetch.LinkBytesPerSecond != nil {
			for to, rate := range fetch.LinkBytesPerSecond[node] {
				divide(start(node, to), link[node*nodes+to], rate)
			}
		}
	}
	return worst
}

// bestSeconds tries every holder for every shard.
func bestSeconds(fetch replicate.Fetch) float64 {
	nodes := len(fetch.EgressBytesPerSecond)
	sent, received, link := make([]float64, nodes), make([]float64, nodes), make([]float64, nodes*nodes)
	gives := make([][]int, len(fetch.Needs)) // shards, per need and holder
	for k := range gives {
		gives[k] = make([]int, nodes)
	}
	best := math.Inf(1)
	var try func(need int, shard int64)
	try = func(need int, shard int64) {
		if need == len(fetch.Needs) {
			if !fetch.EachHolder || eachSends(fetch, gives) {
				best = min(best, seconds(fetch, sent, received, link))
			}
			return
		}
		to, layer := fetch.Needs[need].Node, fetch.Needs[need].Layer
		bytes := min(fetch.ShardBytes, fetch.LayerBytes[layer]-shard*fetch.ShardBytes)
		if bytes <= 0 {
			try(need+1, 0)
			return
		}
		for _, from := range fetch.Holders[layer] {
			add := func(bytes float64, shards int) {
				sent[from] += bytes
				received[to] += bytes
				link[from*nodes+to] += bytes
				gives[need][from] += shards
			}
			add(float64(bytes), 1)
			try(need, shard+1)
			add(-float64(bytes), -1)
		}
	}
	try(0, 0)
	return best
}

// eachSends reports whether of what the same holders give to whom it is alike for, each of them sends something.
func eachSends(fetch replicate.Fetch, gives [][]int) bool {
	alike := func(a, b replicate.Need) bool {
		return slices.Equal(fetch.Holders[a.Layer], fetch.Holders[b.Layer]) && (fetch.LinkBytesPerSecond == nil || a.Node == b.Node)
	}
	for _, need := range fetch.Needs {
		for _, holder := range fetch.Holders[need.Layer] {
			shards := 0
			for k, other := range fetch.Needs {
				if alike(need, other) {
					shards += gives[k][holder]
				}
			}
			if shards == 0 {
				return false
			}
		}
	}
	return true
}

// randomFetch draws a fetch of few whole shards, with links that limit in half of the cases, and starts in half of them.
func randomFetch(random *rand.Rand, nodes int, largest int64) replicate.Fetch {
	fetch := replicate.Fetch{ShardBytes: 1 + random.Int64N(3)}
	rates := func() []float64 {
		row := make([]float64, nodes)
		for node := range row {
			row[node] = float64(1 + random.IntN(5))
		}
		return row
	}
	fetch.EgressBytesPerSecond, fetch.IngressBytesPerSecond = rates(), rates()
	if random.IntN(2) == 0 {
		for range nodes {
			fetch.LinkBytesPerSecond = append(fetch.LinkBytesPerSecond, rates())
		}
	}
	if random.IntN(2) == 0 {
		for range nodes {
			fetch.StartSeconds = append(fetch.StartSeconds, rates())
		}
	}
	for layer := range 1 + random.IntN(3) {
		fetch.LayerBytes = append(fetch.LayerBytes, fetch.ShardBytes*random.Int64N(largest+1))
		order := random.Perm(nodes)
		holders := 1 + random.IntN(nodes-1)
		fetch.Holders = append(fetch.Holders, order[:holders])
		for _, node := range order[holders:] {
			if random.IntN(2) == 0 {
				fetch.Needs = append(fetch.Needs, replicate.Need{Node: node, Layer: layer})
			}
		}
	}
	return fetch
}

func TestAFetchIsAsFastAsTheBestOfAllDivisions(t *testing.T) {
	tried, few := 0, 0
	for seed := range uint64(3000) {
		fetch := randomFetch(rand.New(rand.NewPCG(seed, 6)), 4, 3)
		if len(fetch.Needs) > 3 {
			continue // too many ways to try them all
		}
		tried++
		fetch.EachHolder = seed%3 == 0
		fetched, err := replicate.PlanFetch(fetch)
		if errors.Is(err, replicate.ErrTooFewShards) {
			if best := bestSeconds(fetch); !math.IsInf(best, 1) {
				t.Fatalf("seed %d: each holder can send a shard, in %v s: %+v", seed, best, fetch)
			}
			few++
			continue
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		checkFetched(t, fetch, fetched)
		if best := bestSeconds(fetch); math.Abs(fetched.Seconds-best) > 1e-9*best {
			t.Fatalf("seed %d: %v seconds, best %v: %+v", seed, fetched.Seconds, best, fetch)
		}
	}
	if tried < 1000 || few < 50 {
		t.Fatalf("only %d fetches were small enough to try, and %d had fewer shards than holders", tried, few)
	}
}

// Hall's theorem for flows: the time is that of the set of layers whose holders are slowest together, or of the slowest
// receiver.
func TestAFetchOfManyBytesTakesWhatTheSlowestSetOfLayersTakes(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 7))
		fetch := randomFetch(random, 6, 1_000_000_000)
		fetch.LinkBytesPerSecond, fetch.StartSeconds = nil, nil
		fetched, err := replicate.PlanFetch(fetch)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		checkFetched(t, fetch, fetched)
		worst := 0.0
		for set := range 1 << len(fetch.LayerBytes) {
			bytes, rate, sends := 0.0, 0.0, make(map[int]bool)
			for _, need := range fetch.Needs {
				if set>>need.Layer&1 == 1 {
					bytes += float64(fetch.LayerBytes[need.Layer])
				}
			}
			for layer, holders := range fetch.Holders {
				for _, node := range holders {
					if set>>layer&1 == 1 && !sends[node] {
						sends[node] = true
						rate += fetch.EgressBytesPerSecond[node]
					}
				}
			}
			if bytes > 0 {
				worst = max(worst, bytes/rate)
			}
		}
		for node, rate := range fetch.IngressBytesPerSecond {
			bytes := 0.0
			for _, need := range fetch.Needs {
				if need.Node == node {
					bytes += float64(fetch.LayerBytes[need.Layer])
				}
			}
			worst = max(worst, bytes/rate)
		}
		if fetched.Seconds < worst*(1-1e-9) || fetched.Seconds > worst*(1+1e-6)+10 {
			t.Fatalf("seed %d: %v seconds, expected %v", seed, fetched.Seconds, worst)
		}
	}
}

func TestALostLayerIsFetchedFromEveryHolder(t *testing.T) {
	fetch := replicate.Fetch{
		LayerBytes: []int64{1_000_003}, ShardBytes: 1000, Holders: [][]int{{0, 1, 2}},
		Needs:                 []replicate.Need{{Node: 3, Layer: 0}},
		EgressBytesPerSecond:  []float64{100, 100, 200, 100},
		IngressBytesPerSecond: []float64{1, 1, 1, 50}, // the receiver is slowest: any division would do
	}
	fetched, err := replicate.PlanFetch(fetch)
	if err != nil {
		t.Fatal(err)
	}
	checkFetched(t, fetch, fetched)
	for _, source := range fetched.Sources[0] {
		share := float64(source.Bytes) / 1_000_003
		if want := fetch.EgressBytesPerSecond[source.Node] / 400; math.Abs(share-want) > 0.002 {
			t.Errorf("node %d sends %.3f of the layer, expected %.3f", source.Node, share, want)
		}
	}
	if len(fetched.Sources[0]) != 3 {
		t.Errorf("sources %v, expected all three holders", fetched.Sources[0])
	}
}

func TestALinkThatIsDownIsNotUsed(t *testing.T) {
	fetch := replicate.Fetch{
		LayerBytes: []int64{90}, ShardBytes: 1, Holders: [][]int{{0, 1}},
		Needs:                 []replicate.Need{{Node: 2, Layer: 0}},
		EgressBytesPerSecond:  []float64{10, 10, 10},
		IngressBytesPerSecond: []float64{10, 10, 10},
		LinkBytesPerSecond:    [][]float64{{0, 9, 0}, {9, 0, 9}, {9, 9, 0}},
	}
	fetched, err := replicate.PlanFetch(fetch)
	if err != nil {
		t.Fatal(err)
	}
	checkFetched(t, fetch, fetched)
	if fetched.Sources[0][0].Node != 1 || fetched.Seconds != 10 {
		t.Errorf("sources %v in %v seconds, expected all from node 1 in 10", fetched.Sources[0], fetched.Seconds)
	}
	fetch.LinkBytesPerSecond[1][2] = 0
	if _, err := replicate.PlanFetch(fetch); err == nil {
		t.Error("planned a fetch over links that are down")
	}
}

func TestAFetchThatCannotBeServedOrIsOutOfBoundsIsRefused(t *testing.T) {
	good := func() replicate.Fetch {
		return replicate.Fetch{
			LayerBytes: []int64{9}, ShardBytes: 1, Holders: [][]int{{0}}, Needs: []replicate.Need{{Node: 1, Layer: 0}},
			EgressBytesPerSecond: []float64{1, 1}, IngressBytesPerSecond: []float64{1, 1},
		}
	}
	if _, err := replicate.PlanFetch(good()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*replicate.Fetch){
		"no holder":            func(f *replicate.Fetch) { f.Holders[0] = nil },
		"silent holder":        func(f *replicate.Fetch) { f.EgressBytesPerSecond[0] = 0 },
		"deaf receiver":        func(f *replicate.Fetch) { f.IngressBytesPerSecond[1] = 0 },
		"no rate":              func(f *replicate.Fetch) { f.EgressBytesPerSecond[0] = math.NaN() },
		"endless rate":         func(f *replicate.Fetch) { f.IngressBytesPerSecond[0] = math.Inf(1) },
		"holds it":             func(f *replicate.Fetch) { f.Needs[0].Node = 0 },
		"unknown layer":        func(f *replicate.Fetch) { f.Needs[0].Layer = 1 },
		"unknown node":         func(f *replicate.Fetch) { f.Needs[0].Node = 2 },
		"unknown holder":       func(f *replicate.Fetch) { f.Holders[0][0] = 2 },
		"negative size":        func(f *replicate.Fetch) { f.LayerBytes[0] = -1 },
		"empty shards":         func(f *replicate.Fetch) { f.ShardBytes = 0 },
		"missing links":        func(f *replicate.Fetch) { f.LinkBytesPerSecond = [][]float64{{1, 1}} },
		"a start in the past":  func(f *replicate.Fetch) { f.StartSeconds = [][]float64{{0, -1}, {0, 0}} },
		"a start that is none": func(f *replicate.Fetch) { f.StartSeconds = [][]float64{{0, math.NaN()}, {0, 0}} },
		"missing starts":       func(f *replicate.Fetch) { f.StartSeconds = [][]float64{{0, 0}} },
		"missing rates":        func(f *replicate.Fetch) { f.IngressBytesPerSecond = []float64{1} },
		"missing holders":      func(f *replicate.Fetch) { f.Holders = nil },
	} {
		fetch := good()
		spoil(&fetch)
		if _, err := replicate.PlanFetch(fetch); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
