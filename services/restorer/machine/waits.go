package machine

import (
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
)

const (
	// newestStarts is how many receivers' words count of how long a giver takes to begin: one that is wrong, or lies, decides nothing.
	newestStarts = 5
	// mostWaitSeconds bounds what is believed.
	mostWaitSeconds = 60
)

// begin is how long a receiver waited for the first byte of a giver.
type begin struct {
	To      string  `json:"to"`
	Seconds float64 `json:"seconds"`
}

// learn remembers how long a receiver waited for those that gave to it. The newest word of each giver's newest receivers counts.
func (m *Machine) learn(w *watch, receipt events.Receipt) {
	for _, source := range receipt.Sources {
		gives := func(givers []string) bool { return slices.Contains(givers, source.From) }
		if source.StartSeconds <= 0 || !slices.ContainsFunc(slices.Collect(maps.Values(w.Givers)), gives) {
			continue
		}
		told := slices.DeleteFunc(m.state.Starts[source.From], func(s begin) bool { return s.To == receipt.Node })
		told = append(told, begin{receipt.Node, source.StartSeconds})
		if m.state.Starts == nil {
			m.state.Starts = map[string][]begin{}
		}
		m.state.Starts[source.From] = told[max(0, len(told)-newestStarts):]
	}
}

// forgetOthers keeps what is known of those who hold something, or are in the plan that is asked for.
func (m *Machine) forgetOthers(request *events.RestorationRequest) {
	known := map[string]bool{}
	for _, holder := range request.Holders {
		known[holder.Node] = true
	}
	for _, member := range request.Proposal.Plan.Nodes {
		known[member.Node] = true
	}
	maps.DeleteFunc(m.state.Starts, func(giver string, _ []begin) bool { return !known[giver] })
}

// waits returns per giver how long it takes to begin beyond a round trip, which is what it is at until then (tau_sync of Chaos): the
// median of what its receivers waited, less the round trip to each as it was measured.
func (r *restoration) waits(starts map[string][]begin) map[string]float64 {
	roundTrip := r.roundTripOf()
	waits := make(map[string]float64, len(starts))
	for giver, told := range starts {
		seconds := make([]float64, len(told))
		for i, s := range told {
			seconds[i] = min(max(0, s.Seconds-roundTrip(way{giver, s.To})), mostWaitSeconds)
		}
		slices.Sort(seconds)
		waits[giver] = seconds[(len(seconds)-1)/2]
	}
	return waits
}

// roundTripOf returns the round trip of a way, as measured or as usual.
func (r *restoration) roundTripOf() func(way) float64 {
	told := make(map[way]float64, len(r.Links))
	for _, link := range r.Links {
		told[way{link.From, link.To}] = link.RoundTripSeconds
	}
	usual, site := r.usual(), r.sites()
	return func(of way) float64 {
		if seconds, known := told[of]; known {
			return seconds
		}
		return usual.Link(site[of.from], site[of.to]).RoundTripSeconds
	}
}
