package machine

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reknit/reknit/events"
)

// uneven are links among nodes in two places: usual ones that scatter by a third, and slow ones between the places.
func uneven(random *rand.Rand, nodes []string) (links []events.Link) {
	for i, from := range nodes {
		for j, to := range nodes {
			rate := 1e8 * (1 + random.Float64()/3)
			if i%4 == 0 && j%4 != 0 {
				rate /= 10
			}
			if from != to {
				links = append(links, events.Link{Measurement: events.Measurement{
					From: from, To: to, RoundTripSeconds: 2e-3, BandwidthBytesPerSecond: rate,
				}})
			}
		}
	}
	return links
}

func TestWhereUsualLinksAreNotListedThePlanIsTheSame(t *testing.T) {
	for seed := range uint64(20) {
		var nodes []string
		for i := range 12 {
			nodes = append(nodes, fmt.Sprintf("n%02d", i))
		}
		all := request(nodes...)
		all.Links = uneven(rand.New(rand.NewPCG(seed, 1)), nodes)
		few := all
		few.Usual = events.UsualOf(all.Links, nil)
		few.Links = slices.DeleteFunc(slices.Clone(all.Links),
			func(link events.Link) bool { return few.Usual.StandsFor(link.Measurement, nil) })
		if len(few.Links) == 0 || len(few.Links) > len(all.Links)/2 {
			t.Fatalf("%d of %d links are listed", len(few.Links), len(all.Links))
		}
		if want, got := ask(t, all), ask(t, few); !bytes.Equal(want.Data, got.Data) {
			t.Fatalf("seed %d: with all links\n%s\nwith those listed\n%s", seed, want.Data, got.Data)
		}
	}
}

// twoSites asks for a plan of so many nodes at two sites, whose names do not tell where they stand: 2 ms a transfer within a site,
// 0.1 s between them. Each node holds two of six layers.
func twoSites(nodes int) events.PlanRequest {
	var names []string
	for i := range nodes {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	r := request(names...)
	r.Job.GlobalBatch = 16 * nodes
	for layer := range r.Job.Layers {
		r.Job.Layers[layer].OutputBytes = 1e6
	}
	for place, i := range rand.New(rand.NewPCG(1, 2)).Perm(nodes) {
		r.Nodes[i].Site, r.Nodes[i].MemoryBytes = fmt.Sprintf("s%d", place%2), 450e3
	}
	return r
}

// measuredByJoiners has each node measure its links to seven nodes of its own site and to one of the other.
func measuredByJoiners(r *events.PlanRequest) {
	random := rand.New(rand.NewPCG(3, 4))
	for i, from := range r.Nodes {
		left := map[string]int{"s0": 1, "s1": 1} // to measure
		left[from.Site] = 7
		for _, j := range random.Perm(len(r.Nodes)) {
			to := r.Nodes[j]
			link := events.Measurement{From: from.Node, To: to.Node, RoundTripSeconds: 1e-3, BandwidthBytesPerSecond: 1e9}
			if to.Site != from.Site {
				link.RoundTripSeconds, link.BandwidthBytesPerSecond = 20e-3, 1e7
			}
			if i != j && left[to.Site] > 0 {
				left[to.Site]--
				r.Links = append(r.Links, events.Link{Measurement: link})
			}
		}
	}
}

// crossing returns how many stages of a plan give to one at another site.
func crossing(t *testing.T, r events.PlanRequest) (stages int) {
	t.Helper()
	site := map[string]string{}
	for _, node := range r.Nodes {
		site[node.Node] = node.Site
	}
	for _, pipeline := range proposed(t, r).Plan.Pipelines {
		if len(pipeline.Stages) < 2 {
			t.Fatal("a pipeline of one stage cannot cross")
		}
		for st, stage := range pipeline.Stages[1:] {
			if site[pipeline.Stages[st].Node] != site[stage.Node] {
				stages++
			}
		}
	}
	return stages
}

// No two nodes have the same memory, so that they take places in an order that has nothing to do with sites.
func TestOfTwoSitesNoPipelineCrossesThoughFewOfTheLinksBetweenThemWereMeasured(t *testing.T) {
	r := twoSites(42)
	for i := range r.Nodes {
		r.Nodes[i].MemoryBytes += int64(i)
	}
	measuredByJoiners(&r)
	if stages := crossing(t, r); stages > 0 {
		t.Errorf("%d stages give to one at the other site", stages)
	}
}

func TestEqualNodesOfWhichNoLinkIsKnownShareAPipelineWithTheirSite(t *testing.T) {
	if stages := crossing(t, twoSites(300)); stages > 1 {
		t.Errorf("%d stages give to one at the other site", stages)
	}
}

// Between two sites links are 2.5 times as slow as within, which no single measurement shows and fifty do, and one is slower still.
func TestLinksBetweenTwoSitesShareWhatIsLearntAndOneThatIsSlowerThanTheyIsToldApart(t *testing.T) {
	r := twoSites(12)
	for _, from := range r.Nodes {
		for _, to := range r.Nodes {
			link := events.Measurement{From: from.Node, To: to.Node, RoundTripSeconds: 1e-3, BandwidthBytesPerSecond: 1e9}
			if from.Site != to.Site {
				link.BandwidthBytesPerSecond = 4e8
			}
			if from.Node != to.Node {
				r.Links = append(r.Links, events.Link{Measurement: link})
			}
		}
	}
	r.Links = slices.DeleteFunc(r.Links, func(link events.Link) bool { // so that those within a site are more
		return link.BandwidthBytesPerSecond == 4e8 && link.From > link.To
	})
	at := slices.IndexFunc(r.Links, func(link events.Link) bool { return link.BandwidthBytesPerSecond == 4e8 })
	r.Links[at].BandwidthBytesPerSecond = 1.3e8
	told := map[float64]int{}
	for _, link := range settings.Situation(r).Network.Links {
		told[link.BytesPerSecond]++
	}
	if len(told) != 2 || told[1.3e8] != 1 || told[4e8] != 71 {
		t.Errorf("told apart are so many of such rates: %v", told)
	}
}

func TestALinkIsToldApartWhereItDiffersByMoreThanItsUncertaintyExplains(t *testing.T) {
	for _, link := range []struct {
		times, uncertainty float64
		isTold             bool
	}{
		{0.45, 0, false}, {0.32, 0, true}, // who measured once may be off by half
		{0.33, 0.35, true}, {0.5, 0.35, false},
		{0.6, 0.2, false}, {0.4, 0.2, true},
		{0.52, 0.01, true}, {0.97, 0.01, true}, {0.99, 0.01, false},
		{0.999, events.Exact, true}, // somebody states it
		{2.2, 0.25, true}, {2.2, 0.5, false},
	} {
		r := twoSites(12)
		for i, from := range r.Nodes {
			r.Nodes[i].Site = ""
			for _, to := range r.Nodes {
				measured := events.Measurement{From: from.Node, To: to.Node, RoundTripSeconds: 1e-3, BandwidthBytesPerSecond: 1e9}
				if from.Node != to.Node {
					r.Links = append(r.Links, events.Link{Measurement: measured})
				}
			}
		}
		r.Links[7].BandwidthBytesPerSecond *= link.times
		r.Links[7].Uncertainty = link.uncertainty
		told := settings.Situation(r).Network.Links
		if isTold := len(told) == 1 && math.Abs(told[0].BytesPerSecond-1e9*link.times) < 1; isTold != link.isTold {
			t.Errorf("%v times the usual rate, off by up to %v: %+v", link.times, link.uncertainty, told)
		}
	}
}
