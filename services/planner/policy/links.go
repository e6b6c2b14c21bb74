package policy

import (
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/place"
)

// Link is a measured link in one direction, of nodes by their index.
type Link struct {
	From, To       int
	LatencySeconds float64
	BytesPerSecond float64
	Unsure         bool // it was probed once
}

func (n Network) usual() Link {
	return Link{LatencySeconds: n.LatencySeconds, BytesPerSecond: n.BytesPerSecond}
}

// hasFaster reports whether any link transfers a micro-batch, or a byte of a layer, faster than the usual one.
func (n Network) hasFaster() bool {
	return slices.ContainsFunc(n.Links, func(l Link) bool {
		return l.BytesPerSecond > n.BytesPerSecond || n.transferSeconds(l) < n.TransferSeconds
	})
}

// transferSeconds of a micro-batch between two stages.
func (n Network) transferSeconds(l Link) float64 {
	return l.LatencySeconds + float64(n.ActivationBytes)/l.BytesPerSecond
}

// wires finds the links between nodes by name, where nodes or links differ; it is empty where all are alike.
type wires struct {
	network Network
	node    map[string]int
	unusual map[[2]int]Link
	sites   map[[2]int]Link // of links that nobody measured, by sites
}

func (s Situation) wires() wires {
	w := wires{network: s.Network}
	if s.Speed == nil && len(s.Network.Links)+len(s.Network.SiteLinks) == 0 {
		return w
	}
	w.node, w.unusual = make(map[string]int, len(s.Nodes)), make(map[[2]int]Link, len(s.Network.Links))
	for i, node := range s.Nodes {
		w.node[node] = i
	}
	for _, link := range s.Network.Links {
		w.unusual[[2]int{link.From, link.To}] = link
	}
	w.sites = make(map[[2]int]Link, len(s.Network.SiteLinks))
	for _, link := range s.Network.SiteLinks {
		w.sites[[2]int{link.From, link.To}] = link
	}
	return w
}

// link is an unusual link as it was measured or as others between its sites are taken for, and false where it is as usual.
func (w wires) link(from, to int) (Link, bool) {
	link, found := w.unusual[[2]int{from, to}]
	if !found && len(w.sites) > 0 {
		link, found = w.sites[[2]int{w.network.Sites[from], w.network.Sites[to]}]
	}
	return link, found
}

// between returns an unusual link, and false where it is as usual or one of the nodes is lost.
func (w wires) between(from, to string) (Link, bool) {
	a, known := w.node[from]
	b, both := w.node[to]
	link, found := w.unusual[[2]int{a, b}]
	return link, known && both && found
}

// usual is the links as if all were so.
func (w wires) usual() wires {
	w.unusual = nil
	return w
}

// both averages the two directions, as DT-FM does.
func (w wires) both(a, b int) Link {
	there, back := w.network.usual(), w.network.usual()
	if link, ok := w.unusual[[2]int{a, b}]; ok {
		there = link
	}
	if link, ok := w.unusual[[2]int{b, a}]; ok {
		back = link
	}
	return Link{
		From: a, To: b, LatencySeconds: (there.LatencySeconds + back.LatencySeconds) / 2,
		BytesPerSecond: (there.BytesPerSecond + back.BytesPerSecond) / 2,
	}
}

// pipeline is a pipeline as the cost model sees it: each stage as fast as its node, each edge as its link.
func (s Situation) pipeline(w wires, p Pipeline) estimate.Pipeline {
	stages := make([]estimate.Range, len(p.Stages))
	for st, stage := range p.Stages {
		stages[st] = stage.Layers
	}
	timed := estimate.OfLayers(s.Layers, stages, p.MicroBatches, s.Network.TransferSeconds)
	for st, stage := range p.Stages {
		if node, alive := w.node[stage.Node]; alive && s.Speed != nil {
			timed.ForwardSeconds[st] /= s.Speed[node]
			timed.BackwardSeconds[st] /= s.Speed[node]
		}
		if st == 0 || len(w.unusual) == 0 {
			continue
		}
		before := p.Stages[st-1].Node
		timed.ForwardTransferSeconds = w.onEdge(timed.ForwardTransferSeconds, st-1, len(stages)-1, before, stage.Node)
		timed.BackwardTransferSeconds = w.onEdge(timed.BackwardTransferSeconds, st-1, len(stages)-1, stage.Node, before)
	}
	return timed
}

// onEdge puts an unusual link's time into the transfers, which are shared and free where nil.
func (w wires) onEdge(seconds []float64, edge, edges int, from, to string) []float64 {
	link, unusual := w.between(from, to)
	if !unusual {
		return seconds
	}
	if seconds == nil {
		seconds = make([]float64, edges)
	}
	seconds = slices.Clone(seconds)
	seconds[edge] = w.network.transferSeconds(link)
	return seconds
}

// stepSeconds is the time of the slowest pipeline, of the all-reduces, and of the pairs without a direct link.
func (s Situation) stepSeconds(w wires, pipelines []Pipeline) float64 {
	if s.Kind == DataParallel {
		return s.overlappedSeconds(w, pipelines)
	}
	slowest, plain := 0.0, s.Speed == nil && len(w.unusual) == 0
	for p, pipeline := range pipelines {
		if plain && p > 0 && pipeline.equal(pipelines[p-1]) {
			continue
		}
		slowest = max(slowest, s.pipelineSeconds(w, pipeline))
	}
	return slowest + s.syncSeconds(w, pipelines) + s.dearSeconds(pipelines)
}

// equal reports whether two pipelines train the same layers on as many micro-batches.
func (p Pipeline) equal(other Pipeline) bool {
	return p.MicroBatches == other.MicroBatches &&
		slices.EqualFunc(p.Stages, other.Stages, func(a, b Stage) bool { return a.Layers == b.Layers })
}

// syncSeconds is the time of the all-reduces of a step: the device with most to reduce sets it (restorer's rounds reach
// that bound for contiguous stages). Each holder of a layer sends its part of the gradients to every other and back
// (DT-FM eq. 2), which on equal links is what a ring takes.
func (s Situation) syncSeconds(w wires, pipelines []Pipeline) float64 {
	if len(pipelines) < 2 || s.Network.BytesPerSecond <= 0 {
		return 0
	}
	more := s.unusualSyncSeconds(w, pipelines)
	slowest := 0.0
	for _, pipeline := range pipelines {
		for _, stage := range pipeline.Stages {
			bytes := sum(s.GradientBytes[stage.Layers.First:stage.Layers.End])
			usual := estimate.RingSeconds(bytes, len(pipelines), s.Network.BytesPerSecond, s.Network.LatencySeconds)
			slowest = max(slowest, usual+more[stage.Node])
		}
	}
	return slowest
}

// unusualSyncSeconds is what nodes' unusual links add to the time of usual ones, or take from it.
func (s Situation) unusualSyncSeconds(w wires, pipelines []Pipeline) map[string]float64 {
	if len(s.Network.Links) == 0 {
		return nil
	}
	places, more := seats(pipelines), map[string]float64{}
	for _, link := range s.Network.Links {
		_, back := w.unusual[[2]int{link.To, link.From}]
		a, b := s.Nodes[link.From], s.Nodes[link.To]
		one, seated := places[a]
		other, too := places[b]
		if back && link.To < link.From || !seated || !too || one.Pipeline == other.Pipeline {
			continue // counted with the other direction, or nothing to reduce
		}
		seconds := s.exchangeSeconds(w.both(link.From, link.To), one, other, len(pipelines)) -
			s.exchangeSeconds(s.Network.usual(), one, other, len(pipelines))
		more[a] += seconds
		more[b] += seconds
	}
	return more
}

// exchangeSeconds is what two holders of some layers exchange of them, there and back.
func (s Situation) exchangeSeconds(link Link, one, other place.Place, holders int) float64 {
	first, end := max(one.Layers.First, other.Layers.First), min(one.Layers.End, other.Layers.End)
	if first >= end {
		return 0
	}
	return 2 * (link.LatencySeconds + float64(sum(s.GradientBytes[first:end]))/float64(holders)/link.BytesPerSecond)
}

// seats are the places of nodes by name.
func seats(pipelines []Pipeline) map[string]place.Place {
	places := map[string]place.Place{}
	for p, pipeline := range pipelines {
		for st, stage := range pipeline.Stages {
			places[stage.Node] = place.Place{Pipeline: p, Stage: st, Layers: stage.Layers}
		}
	}
	return places
}
