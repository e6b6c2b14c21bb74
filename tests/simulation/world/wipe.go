package world

import (
	"slices"
	"time"

	"github.com/reknit/reknit/tests/simulation/stream"
)

// wipe has the hub come back with an empty store, as one whose disk was lost does. Services end for it, and are started again. Agents
// find it
// out within the half second in which they look for their server, and ask for a place again. The log cannot know of a plan
// that nobody who trains under it can tell in time: then nothing is done.
func (w *World) wipe() {
	if w.hub.State() != stream.Up || w.ended || !slices.ContainsFunc(w.nodes, (*node).tellsOfThePlan) {
		return
	}
	w.look()
	w.wiped = true
	w.hub.wipe(w.hubTime())
	for _, name := range serviceNames {
		for _, i := range slices.Clone(w.services[name].running) {
			i.crash()
		}
	}
	for _, n := range w.nodes {
		for _, p := range n.processes() {
			p.later(w.jitter(connectAgain), p.findWiped)
		}
	}
}

// tellsOfThePlan reports whether a node trains under the newest plan, and reaches the hub.
func (n *node) tellsOfThePlan() bool {
	p := n.process
	return p != nil && !p.paused && !p.hung && p.generation > 0 && p.generation == p.World.generation() && p.online(n.name) && p.hears(n.name)
}

// findWiped has a process see that the log is another one, once it reaches the hub.
func (p *process) findWiped() {
	if !p.online(p.node.name) || !p.hears(p.node.name) {
		p.later(connectAgain, p.findWiped)
		return
	}
	for _, r := range p.readers {
		r.follower.Begin()
	}
	p.asked = 0
	p.do(p.agent.Forgotten("the log is another one"))
}

// wipe empties the hub. The judge's log goes on behind what was said before.
func (h *hub) wipe(now time.Time) {
	h.Server.Wipe()
	h.made = now
	for _, s := range []*stream.Stream{h.Events, h.Plans} {
		h.before[s] += h.heard[s]
		h.heard[s] = 0
	}
}
