package detect_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/reknit/reknit/services/monitor/detect"
)

var untold = detect.Tolerance{Share: 0.25, RoundTripSeconds: 0.5e-3}

// scatteredBy probes a link of 1e8 bytes a second so many times, each time off by up to a share, and hands out each estimate.
func scatteredBy(dice *rand.Rand, share float64, probes int, each func(probe int, known detect.Estimate)) {
	var known detect.Estimate
	off := func() float64 { return 1 + share*(2*dice.Float64()-1) }
	for probe := range probes {
		known = known.Probed(detect.Estimate{RoundTripSeconds: 0.02 * off(), BytesPerSecond: 1e8 * off()}, untold)
		each(probe, known)
	}
}

func TestWhatALinkCarriesIsWithinTheUncertaintyOfItsEstimate(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	for _, scatter := range []struct{ share, least, most float64 }{
		{0, 0.25, 0.26}, {0.1, 0.3, 0.35}, {0.2, 0.35, 0.45}, {0.3, 0.4, 0.5}, {0.5, 0.48, 0.5},
	} {
		beyond, sum := 0, 0.0
		const links, probes, settled = 50, 200, 12
		scattered := func(probe int, known detect.Estimate) {
			if probe < settled {
				return
			}
			if math.Abs(known.BytesPerSecond/1e8-1) > known.Uncertainty || math.Abs(known.RoundTripSeconds/0.02-1) > known.Uncertainty {
				beyond++
			}
			sum += known.Uncertainty
		}
		for range links {
			scatteredBy(dice, scatter.share, probes, scattered)
		}
		const estimates = links * (probes - settled)
		if beyond > estimates/1000 {
			t.Errorf("probes scatter by %v: %d of %d estimates are further off than they say", scatter.share, beyond, estimates)
		}
		if mean := sum / estimates; mean < scatter.least || mean > scatter.most {
			t.Errorf("probes scatter by %v: off by up to %.3f in the mean, want %v to %v", scatter.share, mean, scatter.least, scatter.most)
		}
	}
}

func TestALinkThatChangedIsLessCertainUntilItsProbesAgreeAgain(t *testing.T) {
	var known detect.Estimate
	probe := func(rate float64) float64 {
		known = known.Probed(detect.Estimate{RoundTripSeconds: 0.01, BytesPerSecond: rate}, untold)
		return known.Uncertainty
	}
	if first := probe(1e8); first != detect.MostUncertainty {
		t.Errorf("of one probe it says %v", first)
	}
	for range 20 {
		probe(1e8)
	}
	sure := known.Uncertainty
	if doubt := probe(3e7); doubt < sure+0.05 {
		t.Errorf("uncertainty went from %.2f to %.2f with a link that lost most of its rate", sure, doubt)
	}
	for range 20 {
		probe(3e7)
	}
	if again := known.Uncertainty; again > sure+0.02 {
		t.Errorf("uncertainty was %.2f, and is %.2f after 20 probes that agree", sure, again)
	}
}

// A probe that measured nothing, and one of a link as fast as none is.
func TestUncertaintyStaysAShareWhateverIsProbed(t *testing.T) {
	var known detect.Estimate
	for _, rate := range []float64{1e8, 0, 1e18, 1, 0, 0, 1e18, 1e18} {
		for range 10 {
			known = known.Probed(detect.Estimate{RoundTripSeconds: rate / 1e16, BytesPerSecond: rate}, untold)
			if !(known.Uncertainty >= 0 && known.Uncertainty <= detect.MostUncertainty) {
				t.Fatalf("uncertainty %v", known.Uncertainty)
			}
		}
	}
}
