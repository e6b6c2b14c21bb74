package machine

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/reknit/reknit/events"
)

// far is a data-parallel job whose nodes stand at site a in turn with site b, which a quarter of them are at. Only what is usual
// between the sites is known.
func far(nodes int) events.PlanRequest {
	var names []string
	for i := range nodes {
		names = append(names, fmt.Sprintf("n%d", i+1))
	}
	r := replicas(names)
	for i := range r.Nodes {
		r.Nodes[i].Site = "a"
		if i%4 == 3 {
			r.Nodes[i].Site = "b"
		}
	}
	for _, ends := range [][2]string{{"a", "b"}, {"b", "a"}} {
		r.Usual.Between = append(r.Usual.Between, events.Measurement{
			From: ends[0], To: ends[1], RoundTripSeconds: 0.028, BandwidthBytesPerSecond: 50e6 / 8, Uncertainty: 0.01})
	}
	return r
}

func TestASlowFarSiteWaitsHoweverManyNodesThereAre(t *testing.T) {
	for _, nodes := range []int{16, 64, 68, 256, 1000} {
		plan := proposed(t, far(nodes)).Plan
		if len(plan.Idle) != nodes/4 || len(plan.Pipelines) != nodes*3/4 {
			t.Errorf("%d nodes: %d train and %d wait, expected a quarter", nodes, len(plan.Pipelines), len(plan.Idle))
			continue
		}
		for _, idle := range plan.Idle {
			if idle.StepSeconds < 2*plan.Predicted.StepSeconds || idle.NeedsBytesPerSecond < 50e6/8 && idle.NeedsRoundTripSeconds == 0 {
				t.Fatalf("%d nodes: %+v, and %v s without", nodes, idle, plan.Predicted.StepSeconds)
			}
		}
	}
}

// A node that may not wait has all pay: the ring crosses to the far site once and back, and a step takes as long as messages over the slow link.
func TestARingOfManyNodesKeepsASlowFarSiteTogether(t *testing.T) {
	for _, nodes := range []int{16, 64, 68, 256, 1000} {
		r := far(nodes)
		r.Job.Data = events.LocalData
		plan := proposed(t, r).Plan
		order, crossings := plan.Sync.Rounds[0].Groups[0].Nodes, 0
		site := map[string]string{}
		for _, node := range r.Nodes {
			site[node.Node] = node.Site
		}
		for i, node := range order {
			if site[node] != site[order[(i+1)%len(order)]] {
				crossings++
			}
		}
		if len(order) != nodes || crossings != 2 {
			t.Errorf("a ring of %d nodes out of %d crosses between the sites %d times, expected 2", len(order), nodes, crossings)
		}
		messages := 2 * float64(nodes-1) * (0.014 + 96e6/float64(nodes)/(50e6/8))
		if step := plan.Predicted.StepSeconds; step < messages || step > messages+60 {
			t.Errorf("%d nodes: a step of %v s, expected %v and what nodes compute", nodes, step, messages)
		}
	}
}

// A link that was measured counts as it was measured, and not as others between its sites.
func TestAFarNodeWithFastLinksTrainsAmongMany(t *testing.T) {
	r := far(100)
	slow := r.Usual.Between[1]
	slow.To = "b" // so that no far node comes in through n4
	r.Usual.Between = append(r.Usual.Between, slow)
	for _, other := range []string{"n1", "n2"} { // n4 is far
		r.Links = append(r.Links,
			link("n4", other, events.Measurement{RoundTripSeconds: 0.001, BandwidthBytesPerSecond: 1.25e9, Uncertainty: 0.05}, false)...)
	}
	plan := proposed(t, r).Plan
	if _, waits := plan.IdleOf("n4"); waits || len(plan.Idle) != 24 {
		t.Errorf("n4 waits: %v, and %d in all: expected the 24 others of its site", waits, len(plan.Idle))
	}
}

// scattered has a quarter of the nodes reach all others over links that are slow, each its own way.
func scattered(nodes int) events.PlanRequest {
	r := far(nodes)
	r.Usual.Between = nil
	random := rand.New(rand.NewPCG(1, 2))
	for a := range nodes {
		for b := range a {
			if a%4 == 3 || b%4 == 3 {
				rate := 50e6 / 8 * (0.5 + random.Float64())
				r.Links = append(r.Links, link(r.Nodes[a].Node, r.Nodes[b].Node,
					events.Measurement{RoundTripSeconds: 0.028, BandwidthBytesPerSecond: rate, Uncertainty: 0.08}, false)...)
			}
		}
	}
	return r
}

// Lookups by link allocate, so that bytes count the work. Made anew for each node that waits, it was 3.1 GB for 256 nodes.
func TestWhatManyWaitingNodesTakeGrowsAsTheirLinks(t *testing.T) {
	spent := map[int]float64{}
	for _, nodes := range []int{256, 512} {
		r := scattered(nodes)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		plan := proposed(t, r).Plan
		runtime.ReadMemStats(&after)
		if spent[nodes] = float64(after.TotalAlloc - before.TotalAlloc); len(plan.Idle) != nodes/4 {
			t.Errorf("%d of %d nodes wait, expected a quarter", len(plan.Idle), nodes)
		}
	}
	t.Logf("%.0f MB for 256 nodes, %.0f MB for 512", spent[256]/1e6, spent[512]/1e6)
	if growth := spent[512] / spent[256]; growth > 6 || spent[512] > 1e9 {
		t.Errorf("%.0f MB for 512 nodes, %.1f times as much as for half as many: expected 1,000 MB and 6 times at most", spent[512]/1e6, growth)
	}
}
