package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/tests/simulation/stream"
)

// wipe has the hub come back with an empty store, as one whose disk was lost does. Services end for it, and are started again. Agents
// find it out within the half second in which they look for their server, and ask for a place again; agents that keep what a script left
// ask with the next one. The log cannot know of a plan that nobody who trains under it can tell in time: then nothing is done.
func (w *World) wipe() {
	if w.hub.State() != stream.Up || w.ended || !slices.ContainsFunc(w.nodes, w.tellsOfThePlan) {
		return
	}
	w.look()
	w.isAnother()
	w.hub.wipe(w.hubTime())
	w.replaced((*stream.Follower).Begin)
}

// backUp keeps what the hub has stored.
func (w *World) backUp() {
	if w.hub.State() == stream.Up {
		w.look()
		w.hub.backup = w.hub.BackUp()
	}
}

// restore has the hub come back with what it had stored when it was backed up. All find out as after a wipe, and read what comes from then
// on.
func (w *World) restore() {
	if w.hub.backup == nil || w.hub.State() != stream.Up || w.ended || !slices.ContainsFunc(w.nodes, w.tellsOfThePlan) {
		return
	}
	w.look()
	w.isAnother()
	w.hub.restore()
	w.replaced((*stream.Follower).End)
}

// isAnother has the judge know that the next log is another one.
func (w *World) isAnother() {
	w.wiped, w.isNew, w.begins, w.stopped, w.toldOf, w.missed = true, true, false, false, 0, map[string]time.Duration{}
	for tier := range w.told {
		w.untold[tier] = true
	}
	w.hub.forgetHalf()
}

// replaced has all see that the log is another one. Their readers go on where a follower is put.
func (w *World) replaced(put func(*stream.Follower)) {
	for _, name := range serviceNames {
		for _, i := range slices.Clone(w.services[name].running) {
			i.crash()
		}
	}
	for _, n := range w.nodes {
		for _, p := range n.processes() {
			p.later(w.jitter(connectAgain), func() { p.findReplaced(put) })
		}
	}
}

// acceptOlder has a user accept the log, some seconds after the cluster has held for it.
func (w *World) acceptOlder(event events.Event) {
	if hold, err := events.Open[events.Hold](event); err != nil || !strings.HasPrefix(hold.Reason, events.OlderLog) {
		return
	}
	w.after(w.jitter(10*time.Second), func() {
		w.requests++
		w.publish(events.Speaker{Source: "/user", Cluster: cluster}.First(w.time(), fmt.Sprint("accept-", w.requests), events.LogAccepted,
			cluster, &events.Acceptance{Reason: "the disk is gone"}))
	})
}

// tellsOfThePlan reports whether a node trains under the newest plan and reaches the hub, or its agent keeps what was trained under it.
func (w *World) tellsOfThePlan(n *node) bool {
	p := n.process
	return n.left != nil && n.left.generation == w.generation() || p != nil && !p.paused && !p.hung && p.generation > 0 && p.generation == w.generation() && p.online(n.name) && p.hears(n.name)
}

// findReplaced has a process see that the log is another one, once it reaches the hub.
func (p *process) findReplaced(put func(*stream.Follower)) {
	if !p.online(p.node.name) || !p.hears(p.node.name) {
		p.later(connectAgain, func() { p.findReplaced(put) })
		return
	}
	for _, r := range p.readers {
		put(r.follower)
	}
	p.asked = 0
	p.do(p.agent.Forgotten("the log is another one"))
}

// isKnown reports whether a process or an agent lives that has what was trained under the plan of a generation, or a later one.
func (w *World) isKnown(generation uint64) bool {
	return slices.ContainsFunc(w.nodes, func(n *node) bool {
		return n.left.trained() >= generation || slices.ContainsFunc(n.processes(), func(p *process) bool {
			return max(p.claimable, p.generation) >= generation
		})
	})
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

// forgetHalf has the judge forget what was half stored when the store went, for nobody has the rest, nor has any log: a commitment without
// its plan, and an abort without the opening that it says follows.
func (h *hub) forgetHalf() {
	opened := map[string]bool{} // by cause
	for _, event := range h.log[h.Events] {
		opened[event.Cause] = opened[event.Cause] || event.Kind == events.NegotiationOpened
	}
	isHalf := func(event events.Event) bool {
		switch payload, err := event.Read(); payload := payload.(type) {
		case *events.Commitment:
			return err == nil && payload.Generation > h.lost+uint64(len(h.plans()))
		case *events.Abort:
			return err == nil && payload.Superseded && !opened[event.Cause]
		}
		return false
	}
	var log []events.Event
	forgotten := uint64(0)
	for _, event := range h.log[h.Events] {
		if isHalf(event) {
			forgotten++
			continue
		}
		event.Sequence -= forgotten
		log = append(log, event)
	}
	h.log[h.Events], h.before[h.Events] = log, h.before[h.Events]-forgotten
}

// restore puts back what was backed up. The judge's log goes on behind what was said before.
func (h *hub) restore() {
	h.Server.Restore(h.backup)
	for _, s := range []*stream.Stream{h.Events, h.Plans} {
		ends := s.Ends()
		h.before[s] += h.heard[s] - ends
		h.heard[s] = ends
	}
}

// withWipes has the hub lose its store in every sixth seed, and in some of them twice. It draws by itself, so that what else a seed does is
// the same without. It is not drawn beside a reset, of which nobody tells an empty log.
func withWipes(seed uint64, faults []Fault) []Fault {
	isReset := func(fault Fault) bool { return strings.HasPrefix(fault.Words, "begin anew") }
	r := rand.New(rand.NewPCG(seed, 47))
	if r.IntN(6) > 0 || slices.ContainsFunc(faults, isReset) {
		return faults
	}
	for range 1 + r.IntN(4)/3 {
		at := firstFault + time.Duration(r.Int64N(int64(lastFault-firstFault)))
		faults = append(faults, Fault{At: at.Truncate(time.Millisecond), Words: "wipe store"})
	}
	return faults
}
