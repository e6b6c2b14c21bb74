package machine

import (
	"maps"
	"slices"

	"github.com/reknit/reknit/events"
)

const (
	// newestStarts is how many receivers' words count of how long a giver takes to begin: of two or three one may lie, and of four or
	// five two, and it counts as no later than some honest one says.
	newestStarts = 5
	// mostWaitSeconds bounds what is believed.
	mostWaitSeconds = 60
	// mostOfOne bounds what is believed of one receiver alone, in seconds. A fetch ends at most so much later for a wait that is not
	// one: it could have all begin then, and go on as it would have. The planner takes a change that moves nothing to cost as much.
	mostOfOne = 0.05
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
		told = append(told, begin{receipt.Node, min(source.StartSeconds, mostWaitSeconds)})
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

// age halves what is known of each giver that a restoration left out, though it holds what is moved. It was late once, and is asked
// again after log2(its wait / how long a fetch takes) of them: only who is asked can be told to be late no more. O(holders x units that move).
func (m *Machine) age(request *events.RestorationRequest, plan *events.Plan) {
	moved, asked := map[int]bool{}, map[string]bool{}
	for _, transfer := range plan.Migration.Transfers {
		moved[transfer.Unit] = true
		for _, source := range transfer.Sources {
			asked[source.Node] = true
		}
	}
	for _, holder := range request.Holders {
		if told := m.state.Starts[holder.Node]; len(told) > 0 && !asked[holder.Node] && holdsAny(holder, moved) {
			for i := range told {
				told[i].Seconds /= 2
			}
			asked[holder.Node] = true // it may be listed again
		}
	}
}

func holdsAny(holder events.Holder, units map[int]bool) bool {
	for unit := range units {
		if slices.ContainsFunc(holder.Units, func(held events.Range) bool { return held.First <= unit && unit < held.End }) {
			return true
		}
	}
	return false
}

// waits returns per giver how long it takes to begin beyond a round trip, which is what it is at until then (tau_sync of Chaos): the
// lower median of what its receivers waited, less the round trip to each as it was measured.
func (r *restoration) waits(starts map[string][]begin) map[string]float64 {
	roundTrip := r.roundTripOf()
	waits := make(map[string]float64, len(starts))
	for giver, told := range starts {
		seconds := make([]float64, len(told))
		for i, s := range told {
			seconds[i] = max(0, s.Seconds-roundTrip(way{giver, s.To}))
		}
		slices.Sort(seconds)
		if waits[giver] = seconds[(len(seconds)-1)/2]; len(seconds) == 1 {
			waits[giver] = min(waits[giver], mostOfOne)
		}
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
