package main

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/tests/bench/monitor/wan"
)

// kinds are the failures that are made, one after the other, in the order of the table.
var kinds = []string{"process", "hang", "host", "link", "site"}

const (
	faultEvery   = 120.0 // seconds from one failure to the next
	faultLasts   = 100.0 // until all is as before: longer than any detector here takes
	keepAlive    = 5.0   // after which a peer misses who is silent on its connection (services/agent/links)
	watchedPeers = 3     // to each side of the ring, that have a connection to a node
)

// fault is a failure under way.
type fault struct {
	kind  string
	at    float64
	nodes []*node // that are to be found
	left  int     // of them
}

// strike makes the failures, each kind in turn.
func (w *world) strike(turn int) {
	n := w.nodes[w.random.IntN(len(w.nodes))]
	f := &fault{kind: kinds[turn%len(kinds)], at: w.now, nodes: []*node{n}, left: 1}
	w.fault = f
	switch f.kind {
	case "process":
		n.dead = true
		w.resets(n)
	case "hang":
		f.at = w.training.hang(w.now, n.index)
	case "host":
		n.dark = true
	case "link":
		w.breakLink(n)
	case "site":
		f.nodes = w.nodes[wan.SiteOf(n.index)*wan.NodesOfASite:][:wan.NodesOfASite]
		f.left = len(f.nodes)
		for _, n := range f.nodes {
			n.dark = true
		}
	}
	if f.kind != "link" && f.kind != "hang" {
		w.training.stop(w.now)
	}
	w.at(w.now+faultLasts, w.mend)
	w.at(w.now+faultEvery, func() { w.strike(turn + 1) })
}

// peers are the nodes that have a connection to a node.
func (w *world) peers(n *node) (peers []*node) {
	for step := 1; step <= watchedPeers; step++ {
		for _, side := range []int{step, len(w.nodes) - step} {
			peers = append(peers, w.nodes[(n.index+side)%len(w.nodes)])
		}
	}
	return peers
}

// resets has the peers of a killed process see that their connections are reset.
func (w *world) resets(n *node) {
	for _, peer := range w.peers(n) {
		if long, reached := w.Between(w.random, n.index, peer.index, w.now); reached && !w.stalled(peer) {
			w.at(w.now+long/2, func() { w.send(peer, events.Suspicion{Node: n.name, Refused: true, Reason: "reset"}) })
		}
	}
}

// breakLink cuts the connection to a peer, which both ends miss by its keep-alive.
func (w *world) breakLink(n *node) {
	peer := w.peers(n)[0]
	w.broken = events.PairOf(n.name, peer.name)
	for _, end := range [][2]*node{{n, peer}, {peer, n}} {
		w.at(w.now+keepAlive, func() { w.send(end[0], events.Suspicion{Node: end[1].name, Reason: "silent"}) })
	}
}

// lost takes the verdict on a node.
func (w *world) lost(n *node) {
	n.lost = true
	f := w.fault
	if f == nil || !slices.Contains(f.nodes, n) || f.kind == "link" {
		w.ours.falsely(w.now, n.index)
		return
	}
	if f.left--; f.left == 0 {
		w.ours.after(f.kind, w.now-f.at)
		w.training.resume(w.now)
	}
}

func (w *world) linkLost() {
	if f := w.fault; f != nil && f.kind == "link" && f.left > 0 {
		f.left--
		w.ours.after("link", w.now-f.at)
	}
}

// mend ends the failure, and notes when detectors of the field found it, or were to find it.
func (w *world) mend() {
	f := w.fault
	w.fault, w.broken = nil, events.Pair{}
	if f.kind == "process" || f.kind == "host" || f.kind == "site" {
		for _, other := range w.others {
			other.failedAll(f)
		}
	}
	if f.left > 0 {
		w.ours.after(f.kind, math.Inf(1))
	}
	w.training.resume(w.now)
	for _, n := range f.nodes {
		if f.kind != "link" {
			w.rejoin(n)
		}
	}
}

// training is that of all nodes in steps of one length. A node computes for most of its step, and waits for the others.
type training struct {
	generation uint64
	began      float64 // its first step
	steps      uint64  // before that
	stopped    float64 // when its step stopped to end; zero while it goes on
	hung       int     // the node that hangs, or -1
}

const (
	stepSeconds  = 2.0
	leastCompute = 0.7 // of a step; the slowest computes all of it
)

// tell is the step of a node, and what it does in it.
func (t *training) tell(now float64, node int) (step uint64, phase string) {
	at := now
	if t.stopped > 0 {
		at = min(now, t.stopped)
	}
	whole, _ := math.Modf((at - t.began) / stepSeconds)
	step = t.steps + uint64(max(0, whole))
	computes := stepSeconds * (leastCompute + (1-leastCompute)*float64(node%7)/7)
	if now-t.began-whole*stepSeconds < computes || t.stopped > 0 && node == t.hung {
		return step, events.PhaseComputing
	}
	return step, events.PhaseWaiting
}

// stop has the step under way not end.
func (t *training) stop(now float64) { t.stopped, t.hung = now, -1 }

// hang has a node hang where it computes next, and returns when.
func (t *training) hang(now float64, node int) float64 {
	if _, phase := t.tell(now, node); phase == events.PhaseWaiting {
		whole, _ := math.Modf((now - t.began) / stepSeconds)
		now = t.began + (whole+1)*stepSeconds
	}
	t.stopped, t.hung = now, node
	return now
}

// resume has training go on, under another plan.
func (t *training) resume(now float64) {
	if t.stopped == 0 {
		return
	}
	t.steps, _ = t.tell(t.stopped, 0)
	t.generation, t.began, t.stopped, t.hung = t.generation+1, now, 0, -1
}

// failedAll notes when a detector had found all nodes of a failure.
func (b *baseline) failedAll(f *fault) {
	latest := 0.0
	for _, n := range f.nodes {
		latest = max(latest, b.heard[n.index]+b.timeout(&b.learned[n.index])-f.at)
		b.heard[n.index] = 0
	}
	b.after(f.kind, latest)
}

// row is a line of the table of latencies.
func (f *found) row() (columns []string) {
	for _, kind := range kinds {
		columns = append(columns, f.quantiles(kind))
	}
	return columns
}

// counts tells how often each kind of failure was made.
func (f *found) counts() (counts []string) {
	for _, kind := range slices.Sorted(maps.Keys(f.latencies)) {
		counts = append(counts, fmt.Sprint(len(f.latencies[kind]), " ", kind))
	}
	return counts
}
