package machine

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/reknit/reknit/events"
)

// probed is a request of nodes that state no site; each link was measured with errors of half its uncertainty.
func probed(seed uint64, rate func(from, to int) float64) events.PlanRequest {
	const uncertainty = 0.2
	r, random := twoSites(24), rand.New(rand.NewPCG(seed, 1))
	for from := range r.Nodes {
		r.Nodes[from].Site = ""
		for to := range r.Nodes {
			if from != to {
				r.Links = append(r.Links, events.Link{Measurement: events.Measurement{
					From: r.Nodes[from].Node, To: r.Nodes[to].Node, RoundTripSeconds: 1e-3, Uncertainty: uncertainty,
					BandwidthBytesPerSecond: rate(from, to) * math.Exp(uncertainty/2*random.NormFloat64()),
				}})
			}
		}
	}
	return r
}

// A link within one of three sites carries 1.8 times as much as one between them, which is what two measurements of one link may
// differ by.
func TestNodesThatAreAlikeShareWhatIsLearntOfTheirLinksThoughNobodySaysWhereTheyStand(t *testing.T) {
	for seed := range uint64(20) {
		links := settings.Situation(probed(seed, func(from, to int) float64 {
			if from%3 == to%3 {
				return 2.5e8
			}
			return 1.4e8
		})).Network.Links
		if len(links) != 3*8*7 {
			t.Fatalf("seed %d: %d links are told apart, expected those within three sites of eight", seed, len(links))
		}
		for _, link := range links {
			if link.From%3 != link.To%3 || math.Abs(link.BytesPerSecond/2.5e8-1) > 0.08 {
				t.Fatalf("seed %d: %+v, expected links within sites, of about 2.5e8 bytes a second", seed, link)
			}
		}
	}
}

func TestLinksThatDifferAsMeasurementsDoTellOfNoSites(t *testing.T) {
	for seed := range uint64(50) {
		r := probed(seed, func(_, _ int) float64 { return 1e9 })
		if links := settings.Situation(r).Network.Links; len(links) > 0 {
			t.Fatalf("seed %d: %d links are told apart, %+v first", seed, len(links), links[0])
		}
	}
}

// Each link has a way of its own, and measurements explain a tenth of the quarter by which they scatter.
func TestLinksThatScatterByMoreThanTheirMeasurementsAreAsMeasuredInAFirstPlanOnly(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 2))
		r := probed(seed, func(_, _ int) float64 { return 1e9 * math.Exp(0.25*random.NormFloat64()) })
		first := settings.Situation(r).Network
		r.Current = &events.Plan{}
		later := settings.Situation(r).Network
		if all, few := len(first.Links), len(later.Links); all < len(r.Links)*9/10 || few > len(r.Links)/2 {
			t.Fatalf("seed %d: %d of %d links are told apart in a first plan, and %d in a later one", seed, all, len(r.Links), few)
		}
	}
}

// Two digits are off by a twentieth, which many links between two sites are not.
func TestWhatManyLinksTellOfTwoSitesIsReadInThreeDigits(t *testing.T) {
	r := reading{}
	link := events.Measurement{RoundTripSeconds: 0.02468, BandwidthBytesPerSecond: 1.0444e8, Uncertainty: 0.03}
	known := r.read(link)
	if link.Uncertainty = 0.2; known.BytesPerSecond != 1.04e8 || known.LatencySeconds != 0.0123 || r.read(link).BytesPerSecond != 1.0e8 {
		t.Errorf("%+v, and %+v of one link", known, r.read(link))
	}
}
