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

// Proof is a rate at which a transfer received, what probes of the link measured then, both in bytes a second, and how many
// transfers were nearly as fast since. The zero value proves nothing.
//
// A transfer is proof that the link carries as much, and of nothing else: what came more slowly may have shared the receiver's downlink
// with other sources, or the sender's uplink with other receivers. So a transfer can raise what a link is said to carry, and probes alone,
// which come when they please, lower it. A probe sees little but TCP's start on a long fast link, so its figure does not refute a proof. A
// figure that is smaller than before does, in proportion.
type Proof struct {
	BytesPerSecond, Probed float64
	Confirmations          int
}

// leastProofBytes is more than sockets hold (Linux lets a receiver's grow to 6 MiB) and than shapers let through at
// once, which comes faster than the link. With so little TCP's start still costs a long link much of its mean rate;
// then it proves less.
const leastProofBytes = 8 << 20

// Prove returns the proof that bytes came at a rate, when that is more than the link was known to carry.
func (p Proof) Prove(bytes int64, bytesPerSecond, probed float64) (proof Proof, higher bool) {
	if bytes < leastProofBytes || probed <= 0 || bytesPerSecond <= p.Bandwidth(probed) {
		return p, false
	}
	return Proof{BytesPerSecond: bytesPerSecond, Probed: probed}, true
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

// Uncertainty is by which share the rate that transfers proved may be off. How much more a link carries than one transfer, nobody
// knows; that several came as fast as each other and none faster says that it is about that, as the mean of so many is known.
func (p Proof) Uncertainty() float64 { return MostUncertainty / math.Sqrt(1+float64(p.Confirmations)) }
