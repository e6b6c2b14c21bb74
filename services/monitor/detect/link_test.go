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
		{0, 0.07, 0.08}, {0.05, 0.08, 0.1}, {0.1, 0.09, 0.13}, {0.2, 0.12, 0.19}, {0.3, 0.17, 0.26}, {0.5, 0.26, 0.4},
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
		if beyond > estimates/6 { // two figures, and the median of flat noise is off more than that of normal noise
			t.Errorf("probes scatter by %v: %d of %d estimates are further off than they say", scatter.share, beyond, estimates)
		}
		if mean := sum / estimates; mean < scatter.least || mean > scatter.most {
			t.Errorf("probes scatter by %v: off by up to %.3f in the mean, want %v to %v", scatter.share, mean, scatter.least, scatter.most)
		}
	}
}

func TestAnEstimateShrinksWithTheProbesThatAgreeAndOneWildProbeIsNotBelieved(t *testing.T) {
	var known detect.Estimate
	probe := func(rate float64) {
		known = known.Probed(detect.Estimate{RoundTripSeconds: 0.01, BytesPerSecond: rate}, untold)
	}
	last := 1.0
	for n := range 8 {
		if probe(1e8); known.Uncertainty >= last {
			t.Errorf("off by %.3f after %d probes, and %.3f after one less", known.Uncertainty, n+1, last)
		}
		last = known.Uncertainty
	}
	for _, wild := range []float64{2.7e6, 7e9} {
		if probe(wild); known.BytesPerSecond != 1e8 || known.Uncertainty > 0.1 {
			t.Errorf("a probe of %g bytes a second made it %g, off by %.3f", wild, known.BytesPerSecond, known.Uncertainty)
		}
		probe(1e8)
	}
}

func TestALinkThatChangedIsBelievedAfterTwoProbesAndAsCertainAgainWhenTheyAgree(t *testing.T) {
	var known detect.Estimate
	probe := func(rate float64) {
		known = known.Probed(detect.Estimate{RoundTripSeconds: 0.01, BytesPerSecond: rate}, untold)
	}
	if probe(1e8); known.Uncertainty != detect.MostUncertainty {
		t.Errorf("of one probe it says %v", known.Uncertainty)
	}
	for range 20 {
		probe(1e8)
	}
	sure := known.Uncertainty
	probe(3e7)
	if probe(2.9e7); known.BytesPerSecond > 3.1e7 || known.Uncertainty < sure+0.1 {
		t.Errorf("%g bytes a second, off by %.2f, with a link that lost most of its rate", known.BytesPerSecond, known.Uncertainty)
	}
	for range 20 {
		probe(3e7)
	}
	if again := known.Uncertainty; again > sure+0.01 {
		t.Errorf("uncertainty was %.2f, and is %.2f after 20 probes that agree", sure, again)
	}
}

// Each of two links is probed five times, which scatter by a twentieth. The bounds are of 1,000 pairs.
func TestFiveProbesThatScatterByATwentiethTellTwoGbitFromOneAndAQuarterAndEqualLinksAreAlike(t *testing.T) {
	dice, told, mistaken := rand.New(rand.NewPCG(3, 4)), 0, 0
	probed := func(rate float64) (known detect.Estimate) {
		for range 5 {
			known = known.Probed(detect.Estimate{RoundTripSeconds: 0.03, BytesPerSecond: rate * (1 + 0.05*dice.NormFloat64())}, untold)
		}
		return known
	}
	const pairs = 1000
	for range pairs {
		fast, slow, same := probed(2.5e8), probed(1.56e8), probed(2.5e8)
		spread := (1 + fast.Uncertainty) / (1 - fast.Uncertainty)
		if fast.BytesPerSecond > spread*slow.BytesPerSecond {
			told++
		}
		if fast.BytesPerSecond > spread*same.BytesPerSecond || same.BytesPerSecond > spread*fast.BytesPerSecond {
			mistaken++
		}
	}
	if told < pairs*98/100 || mistaken > pairs/500 {
		t.Errorf("of %d pairs %d of different links were told apart, and %d of equal ones", pairs, told, mistaken)
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
