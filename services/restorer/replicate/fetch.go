// Package replicate decides what comes from whom: when several nodes fetch at once, which holder sends which shards of
// which layer, and how long a node takes that fetches while nobody else does.
package replicate

import (
	"errors"
	"fmt"
	"math"
	"slices"
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

	// StartSeconds is when the first byte can arrive, from sender to receiver: t_prop + tau_sync of Chaos (equations 1 and 2),
	// the way that a request and its answer take and what the sender is at until then. A link that starts at s brings n bytes by
	// s + n / its rate; a node's uplink and downlink start with the earliest of its links. nil: at once.
	StartSeconds [][]float64
	// EachHolder has every holder of a need, to which there is a way, send at least one shard of what the same holders give (P2
	// and P3 of Chaos). Without it a holder stays idle where that is faster.
	EachHolder bool
}

// ErrTooFewShards says that there is not a shard for each holder.
var ErrTooFewShards = errors.New("fewer shards than holders")

// Source is a run of shards of a layer that one node sends.
type Source struct {
	Node       int
	First, End int64 // shards, half-open
	Bytes      int64
}

// Fetched is who sends what, and how long it takes.
type Fetched struct {
	Sources [][]Source // per need: its shards from the first to the last, each exactly once
	Seconds float64    // when all nodes send and receive at their rates, from their starts on
}

// PlanFetch divides every need among the holders so that all are served as soon as possible. No division into whole shards is faster when
// the short last shard of a layer counts as a whole one; with shards of one byte it is within a byte of the linear program of flows out of,
// into and between nodes. The rest is spread evenly over its holders too, if the slowest part leaves the choice, so that nobody sends
// faster than necessary while others train. Receivers do not relay. For one receiver this is problem P4 of Chaos: the level up to which the
// links fill, each from its start on.
//
// It finds the time by a discrete Newton iteration on least cuts: each maximum flow that falls short names the nodes
// that are too slow for the needs that depend on them. A handful of flows for each group of nodes that ends at a time
// of its own; a flow takes about as long as needs of different holders times holders.
//
// It fails when a size, rate, start or index is out of bounds, when a need cannot be served, and with ErrTooFewShards.
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
	if f.StartSeconds != nil && len(f.StartSeconds) != nodes {
		return fmt.Errorf("starts of %d nodes, expected those of %d (none at all will do)", len(f.StartSeconds), nodes)
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
	if err := f.checkNeeds(nodes); err != nil {
		return err
	}
	return f.checkStarts(nodes)
}

// checkStarts looks at the links to who needs something: of the others there may be many.
func (f Fetch) checkStarts(nodes int) error {
	receivers := f.receivers()
	for from, row := range f.StartSeconds {
		if len(row) != nodes {
			return fmt.Errorf("a row of %d starts, expected one for each of %d nodes", len(row), nodes)
		}
		for _, to := range receivers {
			if start := row[to]; !(start >= 0 && start <= mostStart) {
				return fmt.Errorf("the start from node %d to node %d is %v, expected 0 to %g", from, to, start, mostStart)
			}
		}
	}
	return nil
}

// receivers are the nodes that need something, ascending.
func (f Fetch) receivers() []int {
	nodes := make([]int, len(f.Needs))
	for k, need := range f.Needs {
		nodes[k] = need.Node
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// mostStart bounds a start, so that a time still tells shards apart.
const mostStart = 1e12

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

// start is when the first byte over a link can arrive.
func (f Fetch) start(link linkKey) float64 {
	if f.StartSeconds == nil {
		return 0
	}
	return f.StartSeconds[link.from][link.to]
}

// earliest returns per node when the first byte can arrive that it sends to any who needs something. O(nodes x receivers).
func (f Fetch) earliest() []float64 {
	first := make([]float64, len(f.EgressBytesPerSecond))
	if f.StartSeconds == nil {
		return first
	}
	receivers := f.receivers()
	for from := range first {
		first[from] = math.Inf(1)
		for _, to := range receivers {
			if to != from && (f.LinkBytesPerSecond == nil || f.LinkBytesPerSecond[from][to] > 0) {
				first[from] = min(first[from], f.StartSeconds[from][to])
			}
		}
	}
	return first
}

// Seconds is when the busiest node or link is done, if each need is served by its sources and all send from their starts on.
// Per need, the sources' nodes hold its layer at a rate above 0. Linear in the sources and the
// holders of all needs, plus the nodes times the receivers.
func (f Fetch) Seconds(sources [][]Source) float64 {
	nodes := len(f.EgressBytesPerSecond)
	sent := make([]int64, nodes)
	between := make(map[linkKey]int64)
	worst := 0.0
	for k, need := range f.Needs {
		for _, source := range sources[k] {
			link := linkKey{source.Node, need.Node}
			sent[source.Node] += source.Bytes
			between[link] += source.Bytes
		}
	}
	if f.LinkBytesPerSecond != nil {
		for link, bytes := range between {
			worst = max(worst, f.start(link)+float64(bytes)/f.LinkBytesPerSecond[link.from][link.to])
		}
	}
	earliest := f.earliest()
	for node := range nodes {
		if sent[node] > 0 {
			worst = max(worst, earliest[node]+float64(sent[node])/f.EgressBytesPerSecond[node])
		}
	}
	return max(worst, f.receiving())
}

// receiving is how long the slowest downlink takes, from the earliest link of a holder on, whatever the division is. Linear in
// the holders of all needs.
func (f Fetch) receiving() (seconds float64) {
	nodes := len(f.IngressBytesPerSecond)
	bytes, begins := make([]int64, nodes), slices.Repeat([]float64{math.Inf(1)}, nodes)
	for _, need := range f.Needs {
		bytes[need.Node] += f.LayerBytes[need.Layer]
		for _, from := range f.Holders[need.Layer] {
			if f.LinkBytesPerSecond == nil || f.LinkBytesPerSecond[from][need.Node] > 0 {
				begins[need.Node] = min(begins[need.Node], f.start(linkKey{from, need.Node}))
			}
		}
	}
	for node := range nodes {
		if bytes[node] > 0 {
			seconds = max(seconds, begins[node]+float64(bytes[node])/f.IngressBytesPerSecond[node])
		}
	}
	return seconds
}
