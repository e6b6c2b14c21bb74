package machine

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/restorer/layers"
	"github.com/reknit/reknit/services/restorer/replicate"
)

// move decides what comes from whom, and what may be dropped.
func (r *restoration) move() error {
	r.plan.Migration.Transfers, r.plan.Migration.Drops = nil, nil
	if r.Snapshot {
		r.read()
	} else {
		r.plan.Migration.Drops = r.drops()
	}
	fetch, names, err := r.lacking()
	if err != nil {
		return err
	}
	if len(fetch.Needs) == 0 {
		r.plan.Predicted.TransitionSeconds = 0
		return nil
	}
	r.rates(&fetch, names)
	r.spareDoubts(&fetch, names)
	r.spareTheHub(&fetch, names)
	fewGivers(&fetch)
	fewSources(&fetch)
	divide := replicate.PlanFetch
	if r.plan.Replicas == events.AlikeReplicas {
		divide = replicate.PlanWhole
	}
	if r.settings.ShardSize == Chain {
		if fetch.ShardBytes, _, err = replicate.LargestShard(fetch, chain()); err != nil {
			return fmt.Errorf("how large a shard may be: %w", err)
		}
	}
	fetched, err := divide(fetch)
	if err != nil {
		return fmt.Errorf("what comes from whom: %w", err)
	}
	r.transfers(fetch, fetched, names)
	return nil
}

// read has each node take from itself what it can read of a snapshot and needs.
func (r *restoration) read() {
	units := r.plan.UnitsOfAll()
	for _, node := range r.plan.Nodes {
		held := r.heldBy(node.Node).units
		for unit := range events.Each(units[node.Node]) {
			if held.Has(unit) {
				itself := events.Source{Node: node.Node, Shards: events.Range{First: 0, End: 1}}
				r.plan.Migration.Transfers = append(r.plan.Migration.Transfers,
					events.Transfer{Unit: unit, To: node.Node, Sources: []events.Source{itself}, Bytes: r.Units[unit]})
			}
		}
	}
}

// lacking lists holders and needs; the rates are still to be filled in. O(units x names).
func (r *restoration) lacking() (fetch replicate.Fetch, names []string, err error) {
	index, names := r.numbered()
	fetch = replicate.Fetch{LayerBytes: r.Units, ShardBytes: r.shardBytes(), Holders: r.holders(names)}
	units := r.plan.UnitsOfAll()
	for _, node := range r.plan.Nodes {
		held := r.heldBy(node.Node).units
		for layer := range events.Each(units[node.Node]) {
			switch {
			case held.Has(layer):
			case len(fetch.Holders[layer]) == 0:
				return fetch, names, fmt.Errorf("%s: no node holds it", events.UnitName(layer, r.plan.LayerCount()))
			default:
				fetch.Needs = append(fetch.Needs, replicate.Need{Node: index[node.Node], Layer: layer})
			}
		}
	}
	return fetch, names, nil
}

// holders returns, per unit, which of names can give it, ascending. Units of the same holders share one list.
func (r *restoration) holders(names []string) [][]int {
	sets := make([]layers.Set, len(names))
	for i, name := range names {
		sets[i] = r.heldBy(name).units
	}
	lists := make([][]int, len(r.Units))
	known := map[string][]int{}
	for unit := range lists {
		var holders []int
		for i, set := range sets {
			if set.Has(unit) {
				holders = append(holders, i)
			}
		}
		key := keyOf(holders)
		if _, before := known[key]; !before {
			known[key] = holders
		}
		lists[unit] = known[key]
	}
	return lists
}

// drops lists what the nodes hold and no longer need.
func (r *restoration) drops() []events.Drop {
	var drops []events.Drop
	units := r.plan.UnitsOfAll()
	for _, node := range r.plan.Nodes {
		held := r.heldBy(node.Node).units
		needed := make([]bool, len(r.Units))
		for layer := range events.Each(units[node.Node]) {
			needed[layer] = true
		}
		for layer, needs := range needed {
			if !needs && held.Has(layer) {
				drops = append(drops, events.Drop{Node: node.Node, Unit: layer})
			}
		}
	}
	return drops
}

// numbered lists everybody who receives or gives: the plan's nodes, then holders that are about to leave.
func (r *restoration) numbered() (index map[string]int, names []string) {
	index = map[string]int{}
	add := func(name string) {
		if _, known := index[name]; !known {
			index[name] = len(names)
			names = append(names, name)
		}
	}
	for _, node := range r.plan.Nodes {
		add(node.Node)
	}
	for _, holder := range r.Holders {
		add(holder.Node)
	}
	return index, names
}

// rates takes each link as measured, from a round trip on, and each node's uplink and downlink as its best link.
func (r *restoration) rates(fetch *replicate.Fetch, names []string) {
	fetch.LinkBytesPerSecond, fetch.StartSeconds = r.bandwidths(names), r.starts(names)
	fetch.EgressBytesPerSecond, fetch.IngressBytesPerSecond = make([]float64, len(names)), make([]float64, len(names))
	for from, row := range fetch.LinkBytesPerSecond {
		for to, rate := range row {
			fetch.EgressBytesPerSecond[from] = max(fetch.EgressBytesPerSecond[from], rate)
			fetch.IngressBytesPerSecond[to] = max(fetch.IngressBytesPerSecond[to], rate)
		}
	}
}

// spareTheHub takes away the ways through the hub by which a node needs nothing that it could not have directly.
func (r *restoration) spareTheHub(fetch *replicate.Fetch, names []string) {
	index := make(map[string]int, len(names))
	for i, name := range names {
		index[name] = i
	}
	relayed, needed := map[linkOf]bool{}, map[linkOf]bool{}
	for _, pair := range r.Unreachable {
		a, hasA := index[pair.A]
		b, hasB := index[pair.B]
		if hasA && hasB {
			relayed[linkOf{a, b}], relayed[linkOf{b, a}] = true, true
		}
	}
	for _, need := range fetch.Needs {
		holders := fetch.Holders[need.Layer]
		direct := func(from int) bool {
			return !relayed[linkOf{from, need.Node}] && fetch.LinkBytesPerSecond[from][need.Node] > 0
		}
		if slices.ContainsFunc(holders, direct) {
			continue
		}
		for _, from := range holders {
			needed[linkOf{from, need.Node}] = true
		}
	}
	for link := range relayed {
		if !needed[link] {
			fetch.LinkBytesPerSecond[link.from][link.to] = 0
		}
	}
}

// spareDoubts takes away the ways on which units did not arrive as they were offered, where a node can have all from others. A node that
// cannot takes each unit from one holder alone, the one with which that happened least often: so it is known whose units they were.
func (r *restoration) spareDoubts(fetch *replicate.Fetch, names []string) {
	index := make(map[string]int, len(names))
	for i, name := range names {
		index[name] = i
	}
	doubts, needed := map[linkOf]int{}, map[linkOf]bool{}
	for _, doubt := range r.Doubts {
		for to, name := range names {
			if from, known := index[doubt.From]; known && (doubt.To == "" || doubt.To == name) {
				doubts[linkOf{from, to}] += doubt.Times
			}
		}
	}
	if len(doubts) == 0 {
		return
	}
	for _, need := range fetch.Needs {
		least := linkOf{fetch.Holders[need.Layer][0], need.Node}
		for _, from := range fetch.Holders[need.Layer] {
			if way := (linkOf{from, need.Node}); doubts[way] < doubts[least] {
				least = way
			}
		}
		needed[least] = true
	}
	for way := range doubts {
		if !needed[way] {
			fetch.LinkBytesPerSecond[way.from][way.to] = 0
		}
	}
}

// linkOf is a way between two of the numbered nodes.
type linkOf struct{ from, to int }

func (r *restoration) transfers(fetch replicate.Fetch, fetched replicate.Fetched, names []string) {
	r.plan.Migration.ShardBytes = fetch.ShardBytes
	measured := r.measured()
	for i, need := range fetch.Needs {
		transfer := events.Transfer{Unit: need.Layer, To: names[need.Node], Bytes: r.Units[need.Layer]}
		for _, source := range fetched.Sources[i] {
			transfer.Sources = append(transfer.Sources, events.Source{
				Node: names[source.Node], Shards: events.Range{First: int(source.First), End: int(source.End)},
				BytesPerSecond: measured(way{names[source.Node], transfer.To}),
			})
		}
		r.plan.Migration.Transfers = append(r.plan.Migration.Transfers, transfer)
	}
	r.plan.Predicted.TransitionSeconds = fetched.Seconds
}
