package main

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/services/restorer/replicate"
)

type fetchInput struct {
	LayerBytes []int64   `json:"layer_bytes"`
	Egress     []float64 `json:"egress_bytes_per_s"`
	Ingress    []float64 `json:"ingress_bytes_per_s"`
	Holders    [][]int   `json:"holders_of_layer"`
	Needs      []replicate.Need
}

func solveFetch(in fetchInput) (answer, error) {
	found, err := replicate.PlanFetch(replicate.Fetch{
		LayerBytes: in.LayerBytes, ShardBytes: 1, Holders: in.Holders, Needs: in.Needs,
		EgressBytesPerSecond: in.Egress, IngressBytesPerSecond: in.Ingress,
	})
	if err != nil {
		return nil, err
	}
	seconds, err := in.seconds(found.Sources)
	if err != nil {
		return nil, err
	}
	received := make([]float64, len(in.Ingress))
	for _, need := range in.Needs {
		received[need.Node] += float64(in.LayerBytes[need.Layer])
	}
	return answer{
		"optimal_seconds": seconds, "ingress_lower_bound_seconds": longest(received, in.Ingress),
		"schedule": sharesOf(found.Sources),
	}, nil
}

// seconds is how long the busiest sender or receiver takes; it checks that every need is covered by holders.
func (in fetchInput) seconds(sources [][]replicate.Source) (float64, error) {
	sent, received := make([]float64, len(in.Egress)), make([]float64, len(in.Ingress))
	if len(sources) != len(in.Needs) {
		return 0, fmt.Errorf("schedule: expected sources for %d needs, got %d", len(in.Needs), len(sources))
	}
	for i, need := range in.Needs {
		next := int64(0)
		for _, source := range sources[i] {
			if source.First != next || source.End <= source.First ||
				!slices.Contains(in.Holders[need.Layer], source.Node) {
				return 0,
					fmt.Errorf("schedule: need %d: expected a holder of layer %d to send bytes from %d on, got %+v", i,
						need.Layer, next, source)
			}
			sent[source.Node] += float64(source.End - source.First)
			received[need.Node] += float64(source.End - source.First)
			next = source.End
		}
		if next != in.LayerBytes[need.Layer] {
			return 0, fmt.Errorf("schedule: need %d: %d of %d bytes", i, next, in.LayerBytes[need.Layer])
		}
	}
	return max(longest(sent, in.Egress), longest(received, in.Ingress)), nil
}

func longest(bytes, perSecond []float64) float64 {
	seconds := 0.0
	for i := range bytes {
		if bytes[i] > 0 {
			seconds = max(seconds, bytes[i]/perSecond[i])
		}
	}
	return seconds
}

// share is the bytes that one node sends for a need.
type share struct {
	Node  int   `json:"node"`
	First int64 `json:"first"`
	End   int64 `json:"end"`
}

func sharesOf(sources [][]replicate.Source) [][]share {
	shares := make([][]share, len(sources))
	for i := range sources {
		for _, source := range sources[i] {
			shares[i] = append(shares[i], share{source.Node, source.First, source.End})
		}
	}
	return shares
}
