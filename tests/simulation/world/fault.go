package world

import (
	"fmt"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/tests/simulation/loop"
	"github.com/reknit/reknit/tests/simulation/stream"
)

// Fault is one thing that is done to a world, as a person would write it: "kill n2 for 10s".
type Fault struct {
	At    time.Duration
	Words string
}

func (f Fault) String() string { return fmt.Sprintf("%s %s", f.At, f.Words) }

// Verb returns the words of a fault that are no arguments, as "cut from hub".
func (f Fault) Verb() string {
	for _, v := range verbs {
		if _, ok := v.parse(f.Words); ok {
			return strings.Join(v.own(), " ")
		}
	}
	return f.Words
}

// verbs says what each fault does. An upper-case word of the form is an argument. "for TIME" at the end is when it is
// over.
var verbs = []verb{
	{"start NODE", func(w *World, a args) { w.launch(a.node(w)) }},
	{"return NODE", func(w *World, a args) { n := a.node(w); n.gone = false; w.launch(n) }},
	{"kill NODE", func(w *World, a args) { w.kill(a.node(w)); a.after(w, func() { w.launch(a.node(w)) }) }},
	{"kill holders of UNIT", func(w *World, a args) { w.killHolders(int(a.number("UNIT"))) }},
	{"bucket away", func(w *World, a args) {
		w.bucket.away = true
		a.after(w, func() { w.bucket.away = false })
	}},
	{"disk of NODE is full", func(w *World, a args) {
		d := a.node(w).disk
		d.full = true
		a.after(w, func() { d.full = false })
	}},
	{"disk of NODE is read-only", func(w *World, a args) {
		d := a.node(w).disk
		d.readOnly = true
		a.after(w, func() { d.readOnly = false })
	}},
	{"disk of NODE takes SECONDS", func(w *World, a args) {
		d := a.node(w).disk
		d.takes = a.seconds()
		a.after(w, func() { d.takes = 0 })
	}},
	{"disk of NODE tears", func(w *World, a args) { w.tear(a.node(w)) }},
	{"pause NODE", func(w *World, a args) { w.pause(a.node(w)); a.after(w, func() { w.resume(a.node(w)) }) }},
	{"start second NODE", func(w *World, a args) {
		if first := w.startSecond(a.node(w)); first != nil {
			a.after(w, first.resume)
		}
	}},
	{"hang NODE", func(w *World, a args) { w.hang(a.node(w)); a.after(w, func() { w.unhang(a.node(w)) }) }},
	{"hang NODE between steps", func(w *World, a args) { // its script does something else, as its agent sees
		n := a.node(w)
		n.between = true
		w.hang(n)
		a.after(w, func() { w.unhang(n) })
	}},
	{"slow NODE FACTOR", func(w *World, a args) {
		n := a.node(w)
		n.slowness = a.number("FACTOR")
		a.after(w, func() { n.slowness = 1 })
	}},
	{"state of NODE takes SECONDS", func(w *World, a args) {
		n := a.node(w)
		n.storing = a.seconds()
		a.after(w, func() { n.storing = 0 })
	}},
	{"kernel of NODE takes SECONDS", func(w *World, a args) {
		n := a.node(w)
		n.kernel = a.seconds()
		a.after(w, func() { n.kernel = 0 })
	}},
	{"update of NODE takes SECONDS", func(w *World, a args) {
		n := a.node(w)
		n.updates = a.seconds()
		a.after(w, func() { n.updates = 0 })
	}},
	{"break NODE", func(w *World, a args) {
		n := a.node(w)
		if a["TIME"] != "" {
			n.breaks = 1
		}
		w.breakStep(n)
		a.after(w, func() { n.breaks = 0 })
	}},
	{"break NODE each COUNT", func(w *World, a args) {
		n := a.node(w)
		n.breaks = int(a.number("COUNT"))
		a.after(w, func() { n.breaks = 0 })
	}},
	{"exit NODE", func(w *World, a args) { w.exit(a.node(w)); a.after(w, func() { w.launch(a.node(w)) }) }},
	{"restart NODE TIMES", func(w *World, a args) { w.crashLoop(a.node(w), int(a.number("TIMES"))) }},
	{"consent of NODE NAMES", func(w *World, a args) { a.node(w).consents.Allow = a["NAMES"] }},
	{"script of NODE ends", func(w *World, a args) {
		restart, err := time.ParseDuration(a["TIME"])
		if err != nil {
			restart = startsAgain
		}
		w.scriptEnds(a.node(w), restart)
	}},
	{"script of NODE rests SECONDS", func(w *World, a args) {
		n := a.node(w)
		n.rests, n.rested = true, w.now-a.seconds()
		a.after(w, func() { n.rests = false })
	}},
	{"script of NODE is gone", func(w *World, a args) {
		if n := a.node(w); w.endScript(n) {
			w.standIn(n, scriptTime)
		}
	}},
	{"scripts end COUNT steps on", func(w *World, a args) {
		w.makeDeadly(uint64(a.number("COUNT")), true)
		a.after(w, func() { w.deadly = nil })
	}},
	{"sample COUNT steps on is bad", func(w *World, a args) {
		w.makeDeadly(uint64(a.number("COUNT")), false)
		a.after(w, func() { w.deadly = nil })
	}},
	{"rename NODE TIMES", func(w *World, a args) { w.renamed(a.node(w), int(a.number("TIMES"))) }},
	{"withhold NODE KIND", func(w *World, a args) {
		n := a.node(w)
		w.withheld, n.silent = true, events.Kind(a["KIND"])
		a.after(w, func() { n.silent = "" })
	}},
	{"retry step", func(w *World, _ args) { w.release(false) }},
	{"skip step", func(w *World, _ args) { w.release(true) }},
	{"stop", func(w *World, a args) {
		w.ask(events.StopRequested, &events.StopRequest{Reason: "moved"})
		a.after(w, w.startStopped)
	}},
	{"begin anew", func(w *World, _ args) { w.askReset(false) }},
	{"begin anew from snapshots", func(w *World, _ args) { w.askReset(true) }},
	{"all end", func(w *World, a args) { w.allEnd(); a.after(w, w.startAll) }},
	{"all leave", func(w *World, a args) {
		for _, n := range w.nodes {
			w.after(w.jitter(time.Second), func() { w.leave(n, 30*time.Second) })
		}
		a.after(w, w.startStopped)
	}},
	{"leave NODE", func(w *World, a args) { w.leave(a.node(w), 0) }},
	{"leave NODE within SECONDS", func(w *World, a args) { w.leave(a.node(w), a.seconds()) }},
	{"spoil NODE", func(w *World, a args) { w.spoil(a.node(w)) }},
	{"cut NODE from hub", func(w *World, a args) {
		n := a["NODE"]
		w.noHub[n] = true
		a.after(w, func() { delete(w.noHub, n) })
	}},
	{"reset NODE", func(w *World, a args) {
		n := a.node(w)
		w.noHub[n.name], w.dropped[n.name] = true, true
		w.resetPeers(n)
		a.after(w, func() { delete(w.noHub, n.name); delete(w.dropped, n.name) })
	}},
	{"mute NODE", func(w *World, a args) { black(w, w.mute, a) }},
	{"deafen NODE", func(w *World, a args) { black(w, w.deaf, a) }},
	{"herd TIMES", func(w *World, a args) {
		for range int(a.number("TIMES")) {
			w.after(w.jitter(time.Second), w.AddNode().launcher(w))
		}
	}},
	{"uplink of SITE fails", func(w *World, a args) { w.fail(w.cutOff, a) }},
	{"switch of SITE fails", func(w *World, a args) { w.fail(w.without, a) }},
	{"power of SITE fails", (*World).powerFails},
	{"cut NODE from peers", func(w *World, a args) {
		n := a["NODE"]
		w.noPeers[n] = true
		a.after(w, func() { delete(w.noPeers, n) })
	}},
	{"cut NODE PEER", func(w *World, a args) {
		pair := events.PairOf(a["NODE"], a["PEER"])
		w.cut[pair] = true
		a.after(w, func() { delete(w.cut, pair) })
	}},
	{"link NODE PEER FACTOR", func(w *World, a args) {
		pair := events.PairOf(a["NODE"], a["PEER"])
		w.slow[pair] = a.number("FACTOR")
		a.after(w, func() { delete(w.slow, pair) })
	}},
	{"links scatter SHARE", func(w *World, a args) {
		w.scatter = a.number("SHARE")
		a.after(w, func() { w.scatter = 0 })
	}},
	{"links of NODE read FACTOR", func(w *World, a args) {
		n := a.node(w)
		n.reads = a.number("FACTOR")
		a.after(w, func() { n.reads = 1 })
	}},
	{"lie NODE KIND FIELD HOW", func(w *World, a args) {
		w.lies, a.node(w).lies = true, &lie{events.Kind(a["KIND"]), strings.Split(a["FIELD"], "."), a["HOW"]}
		a.after(w, func() { a.node(w).lies = nil })
	}},
	{"blurt NODE KIND", func(w *World, a args) {
		n := a.node(w)
		w.lies, n.blurts = true, events.Kind(a["KIND"])
		if n.process != nil {
			n.process.blurt(n.blurts)
		}
		a.after(w, func() { n.blurts = "" })
	}},
	{"again KIND", func(w *World, a args) { w.again(events.Kind(a["KIND"])) }},
	{"disconnect NODE PEER", func(w *World, a args) { w.askLink(events.DisconnectRequested, a["NODE"], a["PEER"]) }},
	{"connect NODE PEER", func(w *World, a args) { w.askLink(events.ConnectRequested, a["NODE"], a["PEER"]) }},
	{"hub away", func(w *World, a args) { w.hubIs(stream.Down); a.after(w, w.hubIsBack) }},
	{"hub electing", func(w *World, a args) { w.hubIs(stream.Electing); a.after(w, w.hubIsBack) }},
	{"hub isolated", func(w *World, a args) { w.hubIs(stream.Isolated); a.after(w, w.hubIsBack) }},
	{"requests lost SHARE", func(w *World, a args) { w.odds(a, stream.Lost) }},
	{"answers lost SHARE", func(w *World, a args) { w.odds(a, stream.Unheard) }},
	{"replicas lag SHARE", func(w *World, a args) { w.odds(a, stream.Lagging) }},
	{"full STORE", func(w *World, a args) {
		bound := w.hub.stores()[a["STORE"]]
		bound(1)
		a.after(w, func() { bound(0) })
	}},
	{"wipe store", func(w *World, _ args) { w.wipe() }},
	{"back up store", func(w *World, _ args) { w.backUp() }},
	{"restore store", func(w *World, _ args) { w.restore() }},
	{"accept log", func(w *World, _ args) { w.accepts = true }},
	{"trim log", func(w *World, _ args) { w.trim() }},
	{"trim plans", func(w *World, _ args) { w.trimPlans() }},
	{"drop payloads", func(w *World, _ args) { w.dropPayloads() }},
	{"clock jumps SECONDS", func(w *World, a args) { w.hub.skew += a.seconds() }},
	{"upgrade SERVICE", func(w *World, a args) { w.services[a["SERVICE"]].exchange(false) }},
	{"downgrade SERVICE", func(w *World, a args) { w.services[a["SERVICE"]].exchange(true) }},
	{"upgrade NODE", func(w *World, a args) { w.exchange(a.node(w), false) }},
	{"downgrade NODE", func(w *World, a args) { w.exchange(a.node(w), true) }},
	{"crash SERVICE", func(w *World, a args) {
		if i := w.services[a["SERVICE"]].last(); i != nil {
			i.crash()
		}
	}},
	{"crash SERVICE before POINT COUNT", func(w *World, a args) {
		at := loop.Point(strings.ReplaceAll(a["POINT"], "-", " "))
		w.services[a["SERVICE"]].dies = death{at, int(a.number("COUNT"))}
	}},
	{"pause SERVICE", func(w *World, a args) { w.pauseService(a, false) }},
	{"depose SERVICE", func(w *World, a args) { w.pauseService(a, true) }},
}

// Do does something to the world now. Words that no verb has are an error.
func (w *World) Do(words string) error {
	for _, v := range verbs {
		if a, ok := v.parse(words); ok {
			w.tell("FAULT", "%s", words)
			w.faults++
			v.do(w, a)
			return nil
		}
	}
	return fmt.Errorf("fault %q: expected one of\n%s\nwhere %s are numbers", words, nearest(words), strings.Join(numbers, ", "))
}

func (w *World) hubIs(state stream.State) {
	if w.hub.State() == stream.Up {
		w.hub.Become(state)
	}
}

// hubIsBack ends what the hub was in: what waited in process is stored, or some of it never existed.
func (w *World) hubIsBack() {
	if w.hub.State() == stream.Isolated && w.random.IntN(2) == 0 {
		w.hub.Elect(w.random.IntN(3))
	} else {
		w.hub.Heal()
	}
	w.look()
	w.wake()
}

// black ends one direction of a node's way to the hub.
func black(w *World, hole map[string]bool, a args) {
	n := a["NODE"]
	hole[n] = true
	w.after(staleAfter, func() {
		if w.mute[n] || w.deaf[n] {
			w.stale[n] = true
		}
	})
	a.after(w, func() {
		delete(hole, n)
		if !w.mute[n] && !w.deaf[n] {
			delete(w.stale, n)
		}
	})
}

func (w *World) odds(a args, fate stream.Fate) {
	w.hub.odds[fate] = a.number("SHARE")
	a.after(w, func() { delete(w.hub.odds, fate) })
}

func (w *World) launch(n *node) {
	n.standDown()
	if n.process == nil && !n.gone {
		n.launch(w)
	}
}

func (w *World) kill(n *node) {
	n.left = nil
	if n.process != nil {
		n.process.kill()
	}
}

func (w *World) exit(n *node) {
	if n.process != nil && n.process.stands == nil {
		n.process.exit()
	}
}

func (w *World) pause(n *node) {
	if n.process != nil {
		n.process.freeze()
	}
}

func (w *World) resume(n *node) {
	if n.process != nil && n.process.paused {
		n.process.resume()
	}
}

// crashLoop starts and kills a node again and again, and leaves it running.
func (w *World) crashLoop(n *node, times int) {
	w.kill(n)
	w.launch(n)
	if times > 1 {
		w.after(1500*time.Millisecond, func() { w.crashLoop(n, times-1) })
	}
}

func (w *World) leave(n *node, deadline time.Duration) {
	if n.process != nil && !n.process.paused && n.process.stands == nil {
		n.process.do(n.process.agent.Leave(w.time(), "asked by the script", deadline))
	}
}

// again stores the first event of a kind once more, as an operator does who plays a log back.
func (w *World) again(kind events.Kind) {
	for _, event := range w.hub.log[w.hub.Events] {
		if event.Kind != kind {
			continue
		}
		stored, err := w.hub.Events.Get(event.Sequence, stream.Answered)
		if err != nil {
			return
		}
		stored.ID = ""                                                         // it is no repeat to the hub
		_, _ = w.hub.Events.Publish(w.hubTime(), stored, nil, stream.Answered) // a hub that is away stores nothing
		w.look()
		return
	}
}

// startStopped starts the nodes that have ended because training stopped.
func (w *World) startStopped() {
	for _, n := range w.nodes {
		if n.process == nil && n.gone {
			n.gone = false
			w.launch(n)
		}
	}
}

func (w *World) askLink(kind events.Kind, from, to string) {
	w.requests++
	event := events.Speaker{Source: "/user", Cluster: cluster}.First(w.time(), fmt.Sprint(w.requests), kind,
		from+"-"+to, &events.LinkRequest{From: from, To: to})
	w.publish(event)
}

// pauseService stops an instance for a while; deposed, another takes its place meanwhile and it wakes to find out.
func (w *World) pauseService(a args, deposed bool) {
	i := w.services[a["SERVICE"]].last()
	if i == nil {
		return
	}
	i.paused = true
	if deposed {
		i.start()
	}
	a.after(w, i.resume)
}
