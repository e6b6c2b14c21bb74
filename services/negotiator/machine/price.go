package machine

import (
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/profile"
)

// figures are what nodes and the monitor measured.
type figures struct {
	Paces    map[string]float64 `json:"paces"`    // seconds of a usual step, by the node that measured it
	Pauses   map[string]float64 `json:"pauses"`   // seconds of the longest pause between two steps, likewise
	Prices   prices             `json:"prices"`   // of the last changes
	Costs    profile.Layers     `json:"costs"`    // of layers, as nodes measured them
	Measured profile.Paces      `json:"measured"` // of steps under the plan in force
	Message  float64            `json:"message"`  // seconds over a ring's slowest link, as known when its plan was made; zero: none was
	Failures float64            `json:"failures"` // per node and second, as the monitor last said
	Returns  float64            `json:"returns"`  // seconds a lost node stays away, by the monitor; zero: not known
}

// prices are what changes cost besides their transfers: the mean of the last one and of what was measured before.
type prices struct {
	Switch  float64   `json:"switch"`  // seconds of those that moved nothing; zero: none was measured
	Restart float64   `json:"restart"` // of those that moved state
	Told    []float64 `json:"told,omitempty"`
	Tellers []string  `json:"tellers,omitempty"` // who told that, of the plan in force
	Done    bool      `json:"done"`              // the plan in force is measured
}

// leastPrice is told of a change that cost nothing, as zero is not known.
const leastPrice = 0.001

// measure notes how long a node stood still for the plan in force: from the commit, by the log's clock, to its first step, without
// that step, or its own stall where that is less, as when it trained on until the plan took over. The time before the commit is
// noticing, asking and moving. Once more than half of those who trained before have told, the lower median counts: of three or
// more that told, one that lies or comes late changes nothing.
func (m *Machine) measure(told events.Activation) {
	plan, known := m.state.Plan, &m.state.Prices
	if known.Done || plan == nil || plan.Parent == "" || plan.Snapshot != "" || told.Generation != plan.Generation ||
		slices.Contains(known.Tellers, told.Node) {
		return
	}
	trained := 0
	for node := range plan.HoldsOfAll() {
		if member := m.state.Members[node]; member != nil && member.Since.Before(m.state.Committed) {
			trained++
		}
	}
	teller := m.state.Members[told.Node]
	if teller == nil || !teller.Since.Before(m.state.Committed) {
		return
	}
	seconds := min(told.StallSeconds, m.cause.Logged.Sub(m.state.Committed).Seconds()-told.StepSeconds)
	known.Told, known.Tellers = append(known.Told, max(leastPrice, seconds)), append(known.Tellers, told.Node)
	if 2*len(known.Told) <= trained {
		return
	}
	price := &known.Switch
	if len(plan.Migration.Transfers) > 0 {
		price = &known.Restart
	}
	median := profile.Median(known.Told)
	if *price > 0 {
		median = (median + *price) / 2
	}
	*price, known.Told, known.Tellers, known.Done = median, nil, nil, true
}

// committed forgets what was told of the plan before.
func (p *prices) committed() { p.Told, p.Tellers, p.Done = nil, nil, false }
