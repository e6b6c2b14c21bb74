package events

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Idle is a node that has no place because each step would take longer with it than without.
type Idle struct {
	Node        string  `json:"node" is:"token"`
	StepSeconds float64 `json:"stepSeconds" is:"min=0,max=1e30"` // that a step is predicted to take with it
	// NeedsBytesPerSecond is the bandwidth that its links to two others need, in both directions, for it to slow nothing down. It is left
	// out where none is enough, because their delay is too long.
	NeedsBytesPerSecond float64 `json:"needsBytesPerSecond,omitempty" is:"min=0,max=1e30"`
	// NeedsRoundTripSeconds is given where no bandwidth is enough: the round trip of those links from which, with the usual bandwidth, it
	// would slow nothing down. It is left out where none is short enough.
	NeedsRoundTripSeconds float64 `json:"needsRoundTripSeconds,omitempty" is:"min=0,max=1e30"`
}

// IdleOf returns why a node has no place; false where it has one, or lacks it for another reason.
func (p *Plan) IdleOf(node string) (Idle, bool) {
	at := slices.IndexFunc(p.Idle, func(idle Idle) bool { return idle.Node == node })
	if at < 0 {
		return Idle{}, false
	}
	return p.Idle[at], true
}

// Why tells people why a node of a plan waits, and what it would need.
func (i Idle) Why(planned Predicted) string {
	why := fmt.Sprintf("its links are too slow: a step would take %s s with it, and takes %s s without", written(i.StepSeconds),
		written(planned.StepSeconds))
	switch {
	case i.NeedsRoundTripSeconds > 0:
		return fmt.Sprintf("%s; no bandwidth is enough with so long a delay: from a round trip of %s ms to two others on it slows nothing down",
			why, written(rounded(1000*i.NeedsRoundTripSeconds, math.Floor)))
	case i.NeedsBytesPerSecond == 0:
		return why + "; no bandwidth is enough with so long a delay"
	}
	bits, unit := rounded(8*i.NeedsBytesPerSecond/1e6, math.Ceil), "Mbit/s" // the unit of what is told
	if bits >= 1000 {
		bits, unit = bits/1000, "Gbit/s"
	}
	return fmt.Sprintf("%s; from %s %s both ways to two others on it slows nothing down", why, written(bits), unit)
}

// rounded is a number above zero in three significant digits, up or down: what is told as enough is.
func rounded(value float64, to func(float64) float64) float64 {
	last := math.Pow(10, math.Floor(math.Log10(value))-2)
	if whole := math.Round(value / last); math.Abs(value/last-whole) < 1e-9*whole {
		return whole * last // it has no more digits than rounding leaves behind
	}
	return to(value/last) * last
}

// written is a number in three digits and without an exponent.
func written(value float64) string {
	return strconv.FormatFloat(threeDigits(value), 'f', -1, 64)
}

func (p *Plan) validateIdle(members map[string]bool) error {
	holds := p.HoldsOfAll()
	for i, idle := range p.Idle {
		if _, placed := holds[idle.Node]; placed || !members[idle.Node] {
			return fmt.Errorf("[%d].node: expected an active node without a place, got %q", i, idle.Node)
		}
		bytes, roundTrip := idle.NeedsBytesPerSecond, idle.NeedsRoundTripSeconds
		if !(idle.StepSeconds > 0) || !(bytes >= 0) || !(roundTrip >= 0) || math.IsInf(idle.StepSeconds+bytes+roundTrip, 0) {
			return fmt.Errorf("[%d]: expected finite seconds above 0, and bytes a second and a round trip of at least 0, got %v, %v and %v", i,
				idle.StepSeconds, bytes, roundTrip)
		}
	}
	return nil
}
