package restore

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// Whatever the plans are, the restoration is valid, rank order moves what a count by hand says, and no naive way is
// cheaper.
func TestWhateverThePlansTheNaiveWaysAreCountedRightAndCostNoLess(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 5))
		q := randomQuestion(random)
		a, err := q.answer()
		if err != nil && strings.Contains(err.Error(), "no node holds it") {
			continue
		}
		if err == nil {
			err = a.Validate()
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if want := q.rankOrderBytes(); a.RankOrder.Bytes != want {
			t.Errorf("seed %d: in rank order %d bytes move, expected %d", seed, a.RankOrder.Bytes, want)
		}
		// Rank order may be better where it lets nodes trade places that the restorer keeps apart, and where there are
		// partitions: nodes and partitions are given their pipelines in turn, which need not end at the best there is.
		// A single source may be sooner over the hub, which the restorer spares.
		request := q.request()
		free, direct := len(request.Proposal.Classes) == 1 && q.to.Partitions() == 0, len(request.Unreachable) == 0
		ours, byRank := a.figures.Restoration, a.RankOrder
		if free && ours.Bytes > byRank.Bytes || byRank.Bytes > a.Restart.Bytes || direct &&
			ours.Seconds > a.SingleSource.Seconds*(1+1e-9) {
			t.Errorf("seed %d: %+v, expected no naive way to be cheaper", seed, a.figures)
		}
		lacked := int64(0)
		for node, fetch := range a.fetches {
			if lacked += fetch.Bytes; fetch.Seconds > ours.Seconds*(1+1e-9) {
				t.Errorf("seed %d: %s takes %v s alone, all together %v", seed, node, fetch.Seconds, ours.Seconds)
			}
		}
		if lacked != ours.Bytes {
			t.Errorf("seed %d: the nodes lack %d bytes and are sent %d", seed, lacked, ours.Bytes)
		}
		if a.AllReduce.SecondsLowerBound > a.AllReduce.Seconds+1e-6 {
			t.Errorf("seed %d: all-reduces %+v, expected no less than their bound", seed, a.AllReduce)
		}
	}
}

// rankOrderBytes seats the nodes one after the other, as a person would, tries every way to share out the partitions,
// and adds up what they lack.
func (q *question) rankOrderBytes() int64 {
	var ranks []string
	for _, pipeline := range q.from.Pipelines {
		for _, stage := range pipeline.Stages {
			ranks = append(ranks, stage.Node)
		}
	}
	ranks = slices.DeleteFunc(ranks, func(node string) bool { _, lives := q.to.Member(node); return !lives })
	for _, member := range q.to.Nodes {
		if _, placed := q.from.Holds(member.Node); !placed {
			ranks = append(ranks, member.Node)
		}
	}
	var lacks [][]int64 // by pipeline of the plan wanted, and by whose partitions it is given
	for p, pipeline := range q.to.Pipelines {
		lacks = append(lacks, nil)
		for _, other := range q.to.Pipelines {
			lacks[p] = append(lacks[p],
				q.lacked(ranks, events.Pipeline{Stages: pipeline.Stages, Partitions: other.Partitions}))
		}
		ranks = ranks[len(pipeline.Stages):]
	}
	return cheapest(lacks, 0, map[int]int64{})
}

// lacked adds up what the first nodes lack of a pipeline's rows.
func (q *question) lacked(ranks []string, pipeline events.Pipeline) int64 {
	bytes, layers, rowBytes := int64(0), q.to.LayerCount(), q.request().Units
	for s, stage := range pipeline.Stages {
		held := slices.Collect(events.Each(q.from.UnitsOf(ranks[s])))
		for _, kind := range append([]int{-1}, pipeline.Partitions...) {
			for layer := stage.Layers.First; layer < stage.Layers.End; layer++ {
				row := (1+kind)*layers + layer
				if !slices.Contains(held, row) {
					bytes += rowBytes[row]
				}
			}
		}
	}
	return bytes
}

// cheapest gives each row a column of its own, in every way that there is, and returns the least sum.
func cheapest(costs [][]int64, taken int, known map[int]int64) int64 {
	row := bits.OnesCount(uint(taken))
	if row == len(costs) {
		return 0
	}
	if least, has := known[taken]; has {
		return least
	}
	least := int64(math.MaxInt64)
	for column, cost := range costs[row] {
		if taken&(1<<column) == 0 {
			least = min(least, cost+cheapest(costs, taken|1<<column, known))
		}
	}
	known[taken] = least
	return least
}

// randomQuestion cuts a few layers into pipelines for some nodes, and then for others.
func randomQuestion(random *rand.Rand) question {
	layerCount := 4 + random.IntN(5)
	var pool []string
	for i := range 12 {
		pool = append(pool, fmt.Sprintf("n%d", i))
	}
	q := question{from: randomPlan(random, pool[:4+random.IntN(8)], layerCount)}
	random.Shuffle(len(pool), func(i, j int) { pool[i], pool[j] = pool[j], pool[i] })
	q.to = randomPlan(random, pool[:4+random.IntN(8)], layerCount)
	for range layerCount {
		q.layers = append(q.layers,
			events.LayerProfile{ParameterBytes: 1 + random.Int64N(1<<24), GradientBytes: random.Int64N(1 << 20)})
	}
	var links []events.Link
	cuts := random.IntN(2) == 0
	for _, from := range pool {
		for _, to := range pool {
			if from != to && random.IntN(3) == 0 {
				links = append(links,
					events.Link{Disconnected: cuts && random.IntN(8) == 0, Measurement: events.Measurement{
						From: from, To: to, RoundTripSeconds: random.Float64() / 100,
						BandwidthBytesPerSecond: 1e6 + 1e9*random.Float64(),
					}})
			}
		}
	}
	q.connect(links)
	if random.IntN(2) == 0 {
		q.partition(random, 1+random.IntN(4))
	}
	return q
}

// partition cuts the optimizer state, and has each pipeline keep what chance says, but every partition lives somewhere.
func (q *question) partition(random *rand.Rand, count int) {
	for layer := range q.layers {
		q.layers[layer].OptimizerBytes = int64(count) + random.Int64N(1<<24)
	}
	for _, plan := range []*events.Plan{&q.from, &q.to} {
		owner := random.Perm(max(count, len(plan.Pipelines)))
		for p := range plan.Pipelines {
			for partition := range count {
				if random.IntN(2) == 0 || owner[partition]%len(plan.Pipelines) == p {
					plan.Pipelines[p].Partitions = append(plan.Pipelines[p].Partitions, partition)
				}
			}
		}
	}
}

// randomPlan gives the nodes, the last of which may be spare, places in pipelines of any lengths.
func randomPlan(random *rand.Rand, nodes []string, layerCount int) events.Plan {
	plan := events.Plan{Cluster: "c", Generation: 1, Data: events.Data{MicroBatch: 1}}
	for _, node := range nodes {
		plan.Nodes = append(plan.Nodes, events.Member{Node: node, Incarnation: "1"})
	}
	for left := nodes; len(left) > 1; {
		stages := 1 + random.IntN(min(len(left), layerCount, 4))
		pipeline := events.Pipeline{MicroBatches: 1}
		for s, node := range left[:stages] {
			pipeline.Stages = append(pipeline.Stages, events.Stage{Node: node, Layers: events.Range{
				First: s * layerCount / stages, End: (s + 1) * layerCount / stages,
			}})
		}
		plan.Pipelines, left = append(plan.Pipelines, pipeline), left[stages:]
		plan.Data.GlobalBatch++
	}
	return plan
}
