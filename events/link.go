package events

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
}

// What a link is taken to be until somebody has measured it: 1 Gbit/s, and a millisecond there and back. Whoever weighs
// links takes the same, or a plan would not cost what was said of it.
const (
	AssumedBytesPerSecond   = 125e6
	AssumedRoundTripSeconds = 1e-3
)

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
	c.amount("roundTripSeconds", m.RoundTripSeconds)
	c.amount("bandwidthBytesPerSecond", m.BandwidthBytesPerSecond)
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
