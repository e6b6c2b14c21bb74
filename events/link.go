package events

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// LinkRequest asks that a link be used, or no longer be used. Links have two ends and no direction here.
type LinkRequest struct {
	From string `json:"from" is:"token"`
	To   string `json:"to" is:"token"`
}

// Measurement is how good a link is in one direction.
type Measurement struct {
	From                    string  `json:"from" is:"token"`
	To                      string  `json:"to" is:"token"`
	RoundTripSeconds        float64 `json:"roundTripSeconds" is:"min=0,max=3600"`
	BandwidthBytesPerSecond float64 `json:"bandwidthBytesPerSecond" is:"rate,max=1e18"`
	// Uncertainty is the share by which either figure may be off, at most a half. Left out it is a half: nodes measure once.
	// It shrinks with the number of measurements that agree.
	Uncertainty float64 `json:"uncertainty,omitempty" is:"min=0,max=0.5"`
}

// Rounded returns the measurement in three significant digits, and its uncertainty in hundredths, rounded up. It is no more
// exact, and whoever remembers the links of thousands of nodes remembers half as much. One that is more exact stays as it is.
func (m *Measurement) Rounded() Measurement {
	rounded := *m
	if m.IsExact() {
		return rounded
	}
	rounded.RoundTripSeconds = threeDigits(m.RoundTripSeconds)
	rounded.BandwidthBytesPerSecond = threeDigits(m.BandwidthBytesPerSecond)
	if rounded.Uncertainty = math.Ceil(100*m.Uncertainty-1e-9) / 100; rounded.Uncertainty >= MostUncertainty {
		rounded.Uncertainty = 0
	}
	return rounded
}

// Off is the share by which either figure may be off.
func (m *Measurement) Off() float64 { return cmp.Or(m.Uncertainty, MostUncertainty) }

// IsExact tells a figure that somebody states from one that was measured: it is off by less than three digits can tell.
func (m *Measurement) IsExact() bool { return m.Uncertainty > 0 && m.Uncertainty < 0.001 }

// Exact is the uncertainty of a link that somebody states without one. Zero is left out, and would mean a half.
const Exact = 1e-6

// Spread is by how many times a measurement may differ from that of the usual link though both links are alike: from 1 to 3.
// Off by u, a link that carries v reads v(1-u) to v(1+u). If one reads more than (1+u)/(1-u) times the other, their
// intervals do not overlap. Here u is 1.4 times the uncertainty, a half at most: of hundreds of links some are further off than the two
// standard errors that the monitor tells (services/monitor/detect), and plans that followed them moved 1.24 times the fewest bytes on
// equal links whose probes scatter by half (tests/bench/planner).
func (m *Measurement) Spread(usual Measurement) float64 {
	off := surely(max(m.Off(), usual.Uncertainty))
	return (1 + off) / (1 - off)
}

// SurelyOff is by which share either figure may be off for all that Spread tells.
func (m *Measurement) SurelyOff() float64 { return surely(m.Off()) }

func surely(off float64) float64 {
	const certain = 1.4
	if off <= Exact {
		return off
	}
	return min(MostUncertainty, certain*off)
}

func threeDigits(value float64) float64 {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(value, 'e', 2, 64), 64)
	if err != nil {
		return value // beyond the largest float
	}
	return rounded
}

// A link is taken to have 1 Gbit/s, and a millisecond there and back, until somebody has measured it. All who weigh
// links take the same, or a plan would not cost what was said of it.
const (
	AssumedBytesPerSecond   = 125e6
	AssumedRoundTripSeconds = 1e-3
)

// MostUncertainty is the greatest uncertainty that is told. Probes of slow links scatter: were two thirds told, a link five times
// as slow as usual would count as usual.
const MostUncertainty = 0.5

// LinkState says that a link is lost or restored.
type LinkState struct {
	From   string `json:"from" is:"token"`
	To     string `json:"to" is:"token"`
	Reason string `json:"reason" is:"reason"`
}

func (r *LinkRequest) Validate() error {
	c := within(r)
	c.ends("", r.From, r.To)
	return c.err
}

// Validate refuses what no link is: with that, one node's word would leave all without a plan.
func (m *Measurement) Validate() error {
	c := within(m)
	c.ends("", m.From, m.To)
	return c.err
}

func (s *LinkState) Validate() error {
	c := within(s)
	c.ends("", s.From, s.To)
	return c.err
}

// ends checks that a link has two ends; the field is what holds it.
func (c *check) ends(field, from, to string) {
	c.rule("ends", from != to, strings.TrimPrefix(field+".to", "."), "another node than from", to)
}

func (c *check) links(field string, measured []Measurement) {
	for i, link := range measured {
		c.ends(fmt.Sprintf("%s[%d]", field, i), link.From, link.To)
	}
}
