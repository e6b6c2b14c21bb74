package restore

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/restorer/replicate"
	"github.com/reknit/reknit/services/restorer/rounds"
)

// allReduce is how long gradients are reduced in a step of the plan wanted. Each group is a ring in the order of its nodes,
// as fast as its slowest link.
type allReduce struct {
	Seconds           float64     `json:"seconds"`           // round after round, each as long as its slowest group
	SecondsLowerBound float64     `json:"secondsLowerBound"` // no schedule is shorter: the node with most to reduce needs so long
	GroupBytes        [][]int64   `json:"groupBytes"`        // gradients, per round and group
	GroupSeconds      [][]float64 `json:"groupSeconds"`
}

func (q *question) allReduce(fetch replicate.Fetch, names []string, plan events.Plan) (allReduce, error) {
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
	var err error
	a.SecondsLowerBound, err = lowerBound(groups, plan.Nodes)
	return a, err
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
		roundTrip := assumedRoundTripSeconds
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

// lowerBound is what the node with most to reduce needs. rounds knows it of any schedule, in whole units of time.
func lowerBound(groups []timedGroup, nodes []events.Member) (float64, error) {
	slices.SortFunc(groups, func(a, b timedGroup) int { return cmp.Compare(a.Layers.First, b.Layers.First) })
	nanoseconds := make([]int64, len(groups))
	items := make([][]int, len(nodes))
	for g, group := range groups {
		nanoseconds[g] = int64(group.seconds * float64(time.Second))
		for i, node := range nodes {
			if slices.Contains(group.Nodes, node.Node) {
				items[i] = append(items[i], g)
			}
		}
	}
	timeline, err := rounds.WrapAround(nanoseconds, items)
	if err != nil {
		return 0, fmt.Errorf("the least time of the all-reduces: %w", err)
	}
	return time.Duration(timeline.AtLeast).Seconds(), nil
}
