package restore

import (
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/restorer/replicate"
)

// allReduce is how long gradients are reduced in a step of the plan wanted. Each group is a ring in the order of its
// nodes, as fast as its slowest link.
type allReduce struct {
	Seconds float64 `json:"seconds"` // round after round, each as long as its slowest group
	// SecondsLowerBound is what the node with most to reduce needs: no schedule is shorter.
	SecondsLowerBound float64     `json:"secondsLowerBound"`
	GroupBytes        [][]int64   `json:"groupBytes"` // gradients, per round and group
	GroupSeconds      [][]float64 `json:"groupSeconds"`
}

func (q *question) allReduce(fetch replicate.Fetch, names []string, plan events.Plan) allReduce {
	var a allReduce
	var groups []timedGroup
	for _, round := range plan.Sync.Rounds {
		var bytes []int64
		var seconds []float64
		for _, group := range round.Groups {
			size := q.gradientBytes(group.Layers)
			took := q.ringSeconds(fetch, names, group.Nodes, size)
			bytes, seconds = append(bytes, size), append(seconds, took)
			groups = append(groups, timedGroup{group, took})
		}
		a.GroupBytes, a.GroupSeconds = append(a.GroupBytes, bytes), append(a.GroupSeconds, seconds)
		a.Seconds += slices.Max(seconds)
	}
	a.SecondsLowerBound = mostLoaded(groups)
	return a
}

func (q *question) gradientBytes(layers events.Range) int64 {
	bytes := int64(0)
	for _, layer := range q.layers[layers.First:layers.End] {
		bytes += layer.GradientBytes
	}
	return bytes
}

// ringSeconds takes the rates that the restorer takes, and half a round trip for each message.
func (q *question) ringSeconds(fetch replicate.Fetch, names, ring []string, bytes int64) float64 {
	if len(ring) < 2 {
		return 0
	}
	rate, latency := 0.0, 0.0
	for i, node := range ring {
		next := ring[(i+1)%len(ring)]
		link := fetch.LinkBytesPerSecond[slices.Index(names, node)][slices.Index(names, next)]
		if rate == 0 || link < rate {
			rate = link
		}
		roundTrip := events.AssumedRoundTripSeconds
		if measured, known := q.measured[events.Pair{A: node, B: next}]; known {
			roundTrip = measured.RoundTripSeconds
		}
		latency = max(latency, roundTrip/2)
	}
	return estimate.RingSeconds(bytes, len(ring), rate, latency)
}

type timedGroup struct {
	events.Group
	seconds float64
}

// mostLoaded is how long the node with most to reduce needs: no schedule is shorter.
func mostLoaded(groups []timedGroup) float64 {
	load, most := map[string]float64{}, 0.0
	for _, group := range groups {
		for _, node := range group.Nodes {
			load[node] += group.seconds
			most = max(most, load[node])
		}
	}
	return most
}
