// Package replicate decides what comes from whom: when several nodes fetch at once, which holder sends which shards of
// which layer, and how long a node takes that fetches while nobody else does.
package replicate

import (
	"fmt"
	"math"
)

// Need is a layer that a node has to fetch.
type Need struct{ Node, Layer int }

// Fetch is what several nodes have to fetch at once, and who can send it. Nodes are numbered from 0.
type Fetch struct {
	LayerBytes []int64 // per layer
	ShardBytes int64   // layers are cut into shards of this size, the last of a layer may be short
	Holders    [][]int // per layer: the nodes that can send it
	Needs      []Need

	EgressBytesPerSecond  []float64   // per node
	IngressBytesPerSecond []float64   // per node
	LinkBytesPerSecond    [][]float64 // from sender to receiver, 0 where there is no way; nil when links do not limit
}

// Source is a run of shards of a layer that one node sends.
type Source struct {
	Node       int
	First, End int64 // shards, half-open
	Bytes      int64
}

// Fetched is who sends what, and how long it takes.
type Fetched struct {
	Sources [][]Source // per need: its shards from the first to the last, each exactly once
	Seconds float64    // when all nodes send and receive all along at their rates
}

// PlanFetch divides every need among the holders so that all are served as soon as possible. No division into whole
// shards is faster when the short last shard of a layer counts as a whole one; with shards of one byte it is within a
// byte of the linear program of flows out of, into and between nodes. Where the slowest part leaves the choice, the
// rest is spread evenly over its holders too, so that nobody sends faster than necessary while others train. Receivers
// do not relay.
//
// It finds the time by a discrete Newton iteration on least cuts: each maximum flow that falls short names the nodes
// that are too slow for the needs that depend on them. A handful of flows for each group of nodes that ends at a time
// of its own; a flow takes about as long as needs of different holders times holders.
//
// It fails when a size, rate or index is out of bounds, and when a need cannot be served.
func PlanFetch(fetch Fetch) (Fetched, error) {
	if err := fetch.check(); err != nil {
		return Fetched{}, err
	}
	d := newDivision(fetch)
	if err := d.settle(); err != nil {
		return Fetched{}, err
	}
	result := Fetched{Sources: make([][]Source, len(fetch.Needs))}
	for _, group := range d.groups {
		d.cutUp(group, result.Sources)
	}
	result.Seconds = fetch.Seconds(result.Sources)
	return result, nil
}

func (f Fetch) check() error {
	if f.ShardBytes < 1 {
		return fmt.Errorf("shardBytes is %d, expected at least 1", f.ShardBytes)
	}
	for layer, size := range f.LayerBytes {
		if size < 0 {
			return fmt.Errorf("layerBytes[%d] is %d, expected at least 0", layer, size)
		}
	}
	nodes := len(f.EgressBytesPerSecond)
	if len(f.IngressBytesPerSecond) != nodes || f.LinkBytesPerSecond != nil && len(f.LinkBytesPerSecond) != nodes {
		return fmt.Errorf("rates of %d, %d and %d nodes, expected the same number (no links at all will do)",
			nodes, len(f.IngressBytesPerSecond), len(f.LinkBytesPerSecond))
	}
	if len(f.Holders) != len(f.LayerBytes) {
		return fmt.Errorf("holders of %d layers, expected %d", len(f.Holders), len(f.LayerBytes))
	}
	rows := append([][]float64{f.EgressBytesPerSecond, f.IngressBytesPerSecond}, f.LinkBytesPerSecond...)
	for _, row := range rows {
		if len(row) != nodes {
			return fmt.Errorf("a row of %d rates, expected one for each of %d nodes", len(row), nodes)
		}
		for node, rate := range row {
			if !(rate >= 0) || math.IsInf(rate, 1) {
				return fmt.Errorf("a rate of node %d is %v, expected a finite number of at least 0", node, rate)
			}
		}
	}
	return f.checkNeeds(nodes)
}

func (f Fetch) checkNeeds(nodes int) error {
	for layer, holders := range f.Holders {
		for _, node := range holders {
			if node < 0 || node >= nodes {
				return fmt.Errorf("layer %d is held by node %d, expected 0 to %d", layer, node, nodes-1)
			}
		}
	}
	for k, need := range f.Needs {
		if need.Node < 0 || need.Node >= nodes || need.Layer < 0 || need.Layer >= len(f.LayerBytes) {
			return fmt.Errorf("needs[%d] is layer %d at node %d, expected below %d and %d",
				k, need.Layer, need.Node, len(f.LayerBytes), nodes)
		}
		for _, node := range f.Holders[need.Layer] {
			if node == need.Node {
				return fmt.Errorf("needs[%d]: node %d holds layer %d already", k, node, need.Layer)
			}
		}
		if f.IngressBytesPerSecond[need.Node] == 0 {
			return fmt.Errorf("needs[%d]: node %d receives at 0 bytes per second", k, need.Node)
		}
	}
	return nil
}

func (f Fetch) shards(layer int) int64 {
	return (f.LayerBytes[layer] + f.ShardBytes - 1) / f.ShardBytes
}

// Seconds is when the busiest node or link is done, if each need is served by its sources and all send at once. Per
// need, the sources' nodes hold its layer at a rate above 0. Linear in the sources, plus the nodes.
func (f Fetch) Seconds(sources [][]Source) float64 {
	nodes := len(f.EgressBytesPerSecond)
	sent, received := make([]int64, nodes), make([]int64, nodes)
	between := make(map[linkKey]int64)
	worst := 0.0
	for k, need := range f.Needs {
		for _, source := range sources[k] {
			sent[source.Node] += source.Bytes
			received[need.Node] += source.Bytes
			if f.LinkBytesPerSecond != nil {
				link := linkKey{source.Node, need.Node}
				between[link] += source.Bytes
				worst = max(worst, float64(between[link])/f.LinkBytesPerSecond[link.from][link.to])
			}
		}
	}
	for node := range nodes {
		if sent[node] > 0 {
			worst = max(worst, float64(sent[node])/f.EgressBytesPerSecond[node])
		}
		if received[node] > 0 {
			worst = max(worst, float64(received[node])/f.IngressBytesPerSecond[node])
		}
	}
	return worst
}
