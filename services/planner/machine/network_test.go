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
