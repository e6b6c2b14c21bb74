package events

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
)

// LinkRequest asks that a link be used, or no longer be used. Links have two ends and no direction here.
type LinkRequest struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Measurement is how good a link is in one direction.
type Measurement struct {
	From                    string  `json:"from"`
	To                      string  `json:"to"`
	RoundTripSeconds        float64 `json:"roundTripSeconds"`
	BandwidthBytesPerSecond float64 `json:"bandwidthBytesPerSecond"`
	// Uncertainty is the share by which either figure may be off, at most a half. Left out it is a half: nodes measure once.
	Uncertainty float64 `json:"uncertainty,omitempty"`
}

// Rounded returns the measurement in three significant digits, and its uncertainty in twentieths, rounded up. It is no more
// exact, and whoever remembers the links of thousands of nodes remembers half as much.
func (m *Measurement) Rounded() Measurement {
	rounded := *m
	rounded.RoundTripSeconds = threeDigits(m.RoundTripSeconds)
	rounded.BandwidthBytesPerSecond = threeDigits(m.BandwidthBytesPerSecond)
	if rounded.Uncertainty = math.Ceil(20*m.Uncertainty) / 20; rounded.Uncertainty >= MostUncertainty {
		rounded.Uncertainty = 0
	}
	return rounded
}

// Off is the share by which either figure may be off.
func (m *Measurement) Off() float64 { return cmp.Or(m.Uncertainty, MostUncertainty) }

// Spread is by how many times two measurements of one link may differ, where each may be off as far as this one: from
// usualSpread to 3. A link that differs from the usual by less than usualSpread may not be listed, so that it is told apart nowhere.
func (m *Measurement) Spread() float64 { return max(usualSpread, (1+m.Off())/(1-m.Off())) }

func threeDigits(value float64) float64 {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(value, 'e', 2, 64), 64)
	if err != nil {
		return value // beyond the largest float
	}
	return rounded
}

// What a link is taken to be until somebody has measured it: 1 Gbit/s, and a millisecond there and back. Whoever weighs
// links takes the same, or a plan would not cost what was said of it.
const (
	AssumedBytesPerSecond   = 125e6
	AssumedRoundTripSeconds = 1e-3
)

// MostUncertainty is the greatest uncertainty that is told. Probes of slow links scatter: were two thirds told, a link five times
// as slow as usual would count as usual.
const MostUncertainty = 0.5

// LinkState says that a link is lost or restored.
type LinkState struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Reason string `json:"reason"`
}

func (r *LinkRequest) Validate() error {
	var c check
	c.pair(r.From, r.To)
	return c.err
}

func (m *Measurement) Validate() error {
	var c check
	c.pair(m.From, m.To)
	const longest, most = 3600, 1e18 // with what no link is, one node's word would leave all without a plan
	c.that(m.RoundTripSeconds >= 0 && m.RoundTripSeconds <= longest, "roundTripSeconds",
		fmt.Sprintf("0 to %d", longest), m.RoundTripSeconds)
	c.that(m.BandwidthBytesPerSecond == 0 || m.BandwidthBytesPerSecond >= 1 && m.BandwidthBytesPerSecond <= most,
		"bandwidthBytesPerSecond", fmt.Sprintf("1 to %g, or 0", most), m.BandwidthBytesPerSecond)
	c.that(m.Uncertainty >= 0 && m.Uncertainty <= MostUncertainty, "uncertainty", fmt.Sprintf("0 to %g", MostUncertainty), m.Uncertainty)
	return c.err
}

func (s *LinkState) Validate() error {
	var c check
	c.pair(s.From, s.To)
	c.reason(s.Reason)
	return c.err
}

func (c *check) pair(from, to string) {
	c.token("from", from)
	c.token("to", to)
	c.that(from != to, "to", "another node than from", to)
}
