package detect

import "math"

// Outcome is how a probe of a link went.
type Outcome int

const (
	Worked Outcome = iota
	Failed         // the prober lives and could not reach the other end
	Silent         // no answer from the prober in time
)

// Reports holds when each end of a link last reported that the other does not answer.
type Reports map[string]float64

// Broken reports whether a link between two living nodes is lost: one end says so and a probe confirms it, or both
// ends say so and no probe refutes it. A peer's word alone is not enough: when a trainer dies, those beside it close
// connections to each other while they give up the step.
func (r Reports) Broken(now, windowSeconds float64, outcome Outcome) bool {
	recent := 0
	for _, reported := range r {
		if now-reported <= windowSeconds {
			recent++
		}
	}
	switch outcome {
	case Failed:
		return recent >= 1
	case Silent:
		return recent >= 2
	}
	return false
}

// Estimate is what probes make of a link in one direction.
type Estimate struct {
	RoundTripSeconds float64
	BytesPerSecond   float64
	Uncertainty      float64 // share by which either may be off; MostUncertainty after one probe
}

// Tolerance is what is not worth a word: a change by such a share, or of so short a round trip.
type Tolerance struct {
	Share            float64
	RoundTripSeconds float64
}

const (
	// smoothing is the weight of a new probe: a link is believed to have changed after two or three that agree.
	smoothing = 0.5
	// doubting is the weight of how far a probe was off: a link is known well after five that agree.
	doubting = 0.25
	// worthDoubting is a change of the uncertainty that is not worth a word. It is told in twentieths: three are worth one,
	// two are not. Probes that agree bring about one word.
	worthDoubting = 0.14
)

// MostUncertainty is the uncertainty of one probe, and the greatest. Probes of slow links scatter: were a link that much less
// certain, nobody would see that it is slow.
const MostUncertainty = 0.5

// Probed is the estimate after one more probe. A link may be off by what would not be told, and by how far probes are from
// what those before them said, in the mean.
func (e Estimate) Probed(probe Estimate, untold Tolerance) Estimate {
	if e.BytesPerSecond <= 0 {
		return Estimate{RoundTripSeconds: probe.RoundTripSeconds, BytesPerSecond: probe.BytesPerSecond, Uncertainty: MostUncertainty}
	}
	roundTrip := max(0, math.Abs(probe.RoundTripSeconds-e.RoundTripSeconds)-untold.RoundTripSeconds) /
		max(e.RoundTripSeconds, untold.RoundTripSeconds)
	off := min(1, max(roundTrip, math.Abs(probe.BytesPerSecond/e.BytesPerSecond-1)))
	return Estimate{
		RoundTripSeconds: e.RoundTripSeconds + smoothing*(probe.RoundTripSeconds-e.RoundTripSeconds),
		BytesPerSecond:   e.BytesPerSecond + smoothing*(probe.BytesPerSecond-e.BytesPerSecond),
		Uncertainty:      min(MostUncertainty, e.Uncertainty+doubting*(untold.Share+off-e.Uncertainty)),
	}
}

// Differs reports whether an estimate is worth a word after what was said.
func (e Estimate) Differs(said Estimate, untold Tolerance) bool {
	return math.Abs(e.RoundTripSeconds-said.RoundTripSeconds) > max(untold.Share*said.RoundTripSeconds, untold.RoundTripSeconds) ||
		math.Abs(e.BytesPerSecond-said.BytesPerSecond) > untold.Share*said.BytesPerSecond ||
		math.Abs(e.Uncertainty-said.Uncertainty) > worthDoubting
}

// Proof is a rate at which a transfer received, and what probes of the link measured then, both in bytes a second. The
// zero value proves nothing.
//
// A transfer is proof that the link carries as much, and of nothing else: what came more slowly may have shared the
// receiver's downlink with other sources, or the sender's uplink with other receivers. So a transfer can raise what a
// link is said to carry, and probes alone, which come when they please, lower it. Of a long fast link a probe sees
// little but TCP's start, so its figure does not refute a proof; that it is smaller than it was does, in proportion.
type Proof struct{ BytesPerSecond, Probed float64 }

// leastProofBytes is more than sockets hold (Linux lets a receiver's grow to 6 MiB) and than shapers let through at
// once, which comes faster than the link. With so little TCP's start still costs a long link much of its mean rate;
// then it proves less.
const leastProofBytes = 8 << 20

// Prove returns the proof that bytes came at a rate, when that is more than the link was known to carry.
func (p Proof) Prove(bytes int64, bytesPerSecond, probed float64) (proof Proof, higher bool) {
	if bytes < leastProofBytes || probed <= 0 || bytesPerSecond <= p.Bandwidth(probed) {
		return p, false
	}
	return Proof{bytesPerSecond, probed}, true
}

// Confirmed reports whether bytes that came at a rate are as good as a probe of a link that measured so much: they came as
// fast as the link is said to carry, or nearly, within a share of it.
func (p Proof) Confirmed(bytes int64, bytesPerSecond, probed, share float64) bool {
	return bytes >= leastProofBytes && probed > 0 && bytesPerSecond >= (1-share)*p.Bandwidth(probed)
}

// Bandwidth is what the link carries when probes measure so much.
func (p Proof) Bandwidth(probed float64) float64 {
	if p.Probed == 0 {
		return probed
	}
	return max(probed, p.BytesPerSecond*min(1, probed/p.Probed))
}
