package detect

import (
	"math"
	"slices"
)

// Estimate is what the last probes make of a link in one direction: their median, and by how much it may be off. The median, for
// a single wild probe must not count: of one loopback device probes measured 2.6 MiB/s to 6.7 GiB/s within a minute.
type Estimate struct {
	RoundTripSeconds float64
	BytesPerSecond   float64
	Uncertainty      float64 // share by which either may be off; MostUncertainty after one probe

	probes [kept]probe
	count  int // of probes that agree with each other, at most kept
}

// probe is a measurement of a link, oldest first.
type probe struct{ roundTripSeconds, bytesPerSecond float32 }

// Tolerance is what is not worth a word: a change by such a share, or of so short a round trip.
type Tolerance struct {
	Share            float64
	RoundTripSeconds float64
}

const (
	// kept is how many probes an estimate is made of, the last.
	kept = 8
	// MostUncertainty is the uncertainty of one probe, and the greatest. Probes of slow links scatter: were a link that much less
	// certain, nobody would see that it is slow.
	MostUncertainty = 0.5
	// standardErrors is how many of them an estimate may be off: it is further off once in twenty times.
	standardErrors = 2
	// medianOff is how many times the standard error of the median of normal figures is that of their mean: the root of pi/2.
	medianOff = 1.2533
	// within is which share of normal figures is off by a standard deviation at most.
	within = 0.683
	// changed is how many standard deviations off two probes in a row are that show another link than so many before, and
	// nearlyAll what they are off at most for that.
	changed, before, nearlyAll = 4, 4, 0.9
)

// Probed is the estimate after one more probe. O(1).
func (e Estimate) Probed(next Estimate, untold Tolerance) Estimate {
	if was := e; was.count > before {
		if was.count--; was.isLeft(e.probes[e.count-1], next.probe(), untold) {
			e.probes[0], e.count = e.probes[e.count-1], 1
		}
	}
	if e.count == kept {
		copy(e.probes[:], e.probes[1:])
		e.count--
	}
	e.probes[e.count] = next.probe()
	e.count++
	e.RoundTripSeconds, e.BytesPerSecond = e.medians()
	e.Uncertainty = e.off(untold)
	return e
}

func (e Estimate) probe() probe { return probe{float32(e.RoundTripSeconds), float32(e.BytesPerSecond)} }

func (e Estimate) medians() (roundTrip, rate float64) {
	return median(e.each(func(p probe) float64 { return float64(p.roundTripSeconds) })),
		median(e.each(func(p probe) float64 { return float64(p.bytesPerSecond) }))
}

func (e Estimate) each(figure func(probe) float64) []float64 {
	figures := make([]float64, e.count, kept)
	for i := range figures {
		figures[i] = figure(e.probes[i])
	}
	return figures
}

// median sorts what it is given. The median of an even number is the mean of the middle two.
func median(figures []float64) float64 {
	slices.Sort(figures)
	middle := len(figures) / 2
	if len(figures)%2 == 1 {
		return figures[middle]
	}
	return (figures[middle-1] + figures[middle]) / 2
}

// off is by which share the medians may be off: two standard errors. How far probes scatter is taken from the deviation that two
// thirds of them keep, which no single probe of four spoils, and from a prior that is worth one probe: probes of any link
// scatter by the share of a change that nobody is told of. Without it two probes that are equal by chance would be believed to
// the digit. The uncertainty of n probes that agree falls as 1/n, and that of n that scatter by s is 2.5 s/sqrt(n).
func (e Estimate) off(untold Tolerance) float64 {
	if e.count < 2 {
		return MostUncertainty
	}
	return min(MostUncertainty, standardErrors*medianOff*e.scatter(untold)/math.Sqrt(float64(e.count)))
}

// scatter is the standard deviation of a probe of the link, as a share.
func (e Estimate) scatter(untold Tolerance) float64 {
	roundTrip, rate := e.medians()
	rates := e.each(func(p probe) float64 { return apart(float64(p.bytesPerSecond), rate, 0) })
	trips := e.each(func(p probe) float64 { return apart(float64(p.roundTripSeconds), roundTrip, untold.RoundTripSeconds) })
	slices.Sort(rates)
	slices.Sort(trips)
	n := float64(e.count)
	most := int(math.Ceil(within*n)) - 1
	measured := max(rates[most], trips[most])
	return math.Sqrt((untold.Share*untold.Share + (n-1)*measured*measured) / n)
}

// apart is by which share a figure differs from another, beyond what is not worth a word; at most wholly.
func apart(figure, from, untold float64) float64 {
	if from <= 0 && untold <= 0 {
		return 1
	}
	return min(1, max(0, math.Abs(figure-from)-untold)/max(from, untold))
}

// isLeft reports whether two probes in a row show that the link is another one than it was: both are further off than probes
// scatter, and nearer to each other than to what was before.
func (e Estimate) isLeft(last, next probe, untold Tolerance) bool {
	limit := changed * e.scatter(untold)
	roundTrip, rate := e.medians()
	left := func(last, next, was, untold float64) bool {
		off := min(apart(last, was, untold), apart(next, was, untold))
		return off > min(limit, nearlyAll) && math.Abs(next-last) < min(math.Abs(next-was), math.Abs(last-was))
	}
	return left(float64(last.bytesPerSecond), float64(next.bytesPerSecond), rate, 0) ||
		left(float64(last.roundTripSeconds), float64(next.roundTripSeconds), roundTrip, untold.RoundTripSeconds)
}

const (
	// surer is how much of the uncertainty that was told is left where that is worth a word: after about half as many probes again.
	surer = 0.7
	// unsurer is the same where it has grown, and fewProbes of how many it is not known whether it has: after a restart of the
	// monitor each link begins anew.
	unsurer, fewProbes = 1.5, 4
)

// Differs reports whether an estimate is worth a word after what was said: it has left the interval that was said, or changed by
// a share that is worth one, or is known surer than was said or much less sure. A link whose probes agree is worth five words.
func (e Estimate) Differs(said Estimate, untold Tolerance) bool {
	share := min(untold.Share, said.Uncertainty)
	return math.Abs(e.RoundTripSeconds-said.RoundTripSeconds) > max(share*said.RoundTripSeconds, untold.RoundTripSeconds) ||
		math.Abs(e.BytesPerSecond-said.BytesPerSecond) > share*said.BytesPerSecond ||
		e.Uncertainty < surer*said.Uncertainty || e.count >= fewProbes && e.Uncertainty > unsurer*said.Uncertainty
}
