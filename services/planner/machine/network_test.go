package machine

import (
	"bytes"
	"fmt"
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
		var rates []float64
		for _, link := range all.Links {
			rates = append(rates, link.BandwidthBytesPerSecond)
		}
		slices.Sort(rates)
		few := all
		few.Usual = &events.Usual{RoundTripSeconds: 2e-3, BandwidthBytesPerSecond: rates[len(rates)/2]}
		few.Links = slices.DeleteFunc(slices.Clone(all.Links),
			func(link events.Link) bool { return few.Usual.StandsFor(link.Measurement) })
		if len(few.Links) == 0 || len(few.Links) > len(all.Links)/2 {
			t.Fatalf("%d of %d links are listed", len(few.Links), len(all.Links))
		}
		if want, got := ask(t, all), ask(t, few); !bytes.Equal(want.Data, got.Data) {
			t.Fatalf("seed %d: with all links\n%s\nwith those listed\n%s", seed, want.Data, got.Data)
		}
	}
}

// Two sites of 21 nodes, whose names do not tell where they stand: a transfer within one takes 2 ms, and 0.1 s between
// them. Each node measured its links to seven of its own site and to one of the other.
func TestOfTwoSitesNoPipelineCrossesThoughFewOfTheLinksBetweenThemWereMeasured(t *testing.T) {
	const nodes = 42
	var names []string
	for i := range nodes {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	r := request(names...)
	r.Job.GlobalBatch = 16 * nodes
	for layer := range r.Job.Layers {
		r.Job.Layers[layer].OutputBytes = 1e6
	}
	random := rand.New(rand.NewPCG(1, 2))
	for place, i := range random.Perm(nodes) {
		r.Nodes[i].Site, r.Nodes[i].MemoryBytes = fmt.Sprintf("s%d", place%2), 450e3 // for two layers
	}
	for i := range nodes {
		left := map[string]int{"s0": 1, "s1": 1} // to measure
		left[r.Nodes[i].Site] = 7
		for _, j := range random.Perm(nodes) {
			site := r.Nodes[j].Site
			link := events.Measurement{From: names[i], To: names[j], RoundTripSeconds: 1e-3, BandwidthBytesPerSecond: 1e9}
			if site != r.Nodes[i].Site {
				link.RoundTripSeconds, link.BandwidthBytesPerSecond = 20e-3, 1e7
			}
			if i != j && left[site] > 0 {
				left[site]--
				r.Links = append(r.Links, events.Link{Measurement: link})
			}
		}
	}
	site := map[string]string{}
	for _, node := range r.Nodes {
		site[node.Node] = node.Site
	}
	for _, pipeline := range proposed(t, r).Plan.Pipelines {
		if len(pipeline.Stages) < 2 {
			t.Fatal("a pipeline of one stage cannot cross")
		}
		for st, stage := range pipeline.Stages[1:] {
			if before := pipeline.Stages[st].Node; site[before] != site[stage.Node] {
				t.Errorf("%s gives to %s, which stands at the other site", before, stage.Node)
			}
		}
	}
}
