package detect

import "math"

// Finding is what a witness finds who tries a silent node on the path that training uses. The hub's path and this one
// have little in common but the node.
type Finding int

const (
	Reached     Finding = iota // the node answers: its way to the hub is at fault
	Stalled                    // its host accepts connections, and nobody answers on them
	Unreachable                // no connection came about in time
)

// FreshSeconds is for how long a finding counts. Witnesses take two.
const FreshSeconds = 5

// found is what a witness found, and when.
type found struct {
	finding Finding
	at      float64
}

// Found takes what a witness found who tried a node.
func (d *Detector) Found(now float64, name, witness string, finding Finding) {
	n := d.nodes[name]
	if n == nil || n.state != Suspected {
		return
	}
	if n.findings == nil {
		n.findings = map[string]found{}
	}
	n.findings[witness] = found{finding, now}
	switch {
	case finding == Stalled && n.reached == nil:
		n.stalled = true
	case finding == Reached && n.reached == nil:
		n.reached = &now
	}
}

// answerSeconds is how long witnesses take to answer.
const answerSeconds = 2

// Defer takes that witnesses of a silent node are yet to be asked, for others come first. It is not lost before they had
// time to answer.
func (d *Detector) Defer(now float64, name string) {
	if n := d.nodes[name]; n != nil {
		n.deferred = now + answerSeconds
	}
}

// limit is the silence after which a node is lost, by what its witnesses found: the sign of most life counts. Silence
// alone decides if they find nothing, or if there are none.
func (d *Detector) limit(now float64, n *node) float64 {
	best := Unreachable
	for _, f := range n.findings {
		if now-f.at <= FreshSeconds {
			best = min(best, f.finding)
		}
	}
	switch best {
	case Reached:
		return max(n.timeout, d.settings.CutOffSeconds)
	case Stalled:
		return max(n.timeout, d.patience())
	}
	return n.timeout
}

// A stalled process is waited for for so many times the longest stall that ended by itself. One stall may be a chance, a laptop that was
// closed or a debugger: it teaches half as long again. Hosts that are shared have it happen again.
const (
	oneStall      = 1.5
	eachStall     = 0.5 // more for each further one
	manyStalls    = 3
	stallHalfLife = 86400 // seconds after which what was learnt counts for half
)

// stalls reports whether a silent node stalls. A node that is reached stalls no more, and beats at once: one that
// witnesses reach for longer than two heartbeats is cut off.
func (n *node) stalls(now float64, settings Settings) bool {
	return n.stalled && (n.reached == nil || now-*n.reached <= 2*settings.PulseSeconds)
}

// learnStall takes a stall that was over after so many seconds. On a host of its own a process never stalls for seconds, and one that does
// is best done without at once. Processes on shared hosts do, and go on. A silence for which no patience would suffice teaches none.
func (d *Detector) learnStall(seconds float64) {
	if seconds <= d.settings.StalledSeconds {
		d.stall, d.stalls = max(d.stall, seconds), min(d.stalls+1, mostStalls)
	}
}

const mostStalls = 100 // are counted: a day later they are still many, and a week later few

// age has what was learnt of stalls count for less as time passes.
func (d *Detector) age(seconds float64) {
	left := math.Exp2(-seconds / stallHalfLife)
	d.stall, d.stalls = d.stall*left, d.stalls*left
}

// patience is for how long a stalled process is waited for.
func (d *Detector) patience() float64 {
	times := min(oneStall+eachStall*max(0, d.stalls-1), manyStalls)
	return min(times*d.stall, d.settings.StalledSeconds)
}

// given is a node that was given up while it was stalled.
type given struct {
	incarnation string
	heard       float64
}

// returned learns from the heartbeat of a process that was given up for a stall that it came out of.
func (d *Detector) returned(now float64, signal Signal) {
	if g, ok := d.given[signal.Node]; ok && g.incarnation == signal.Incarnation {
		d.learnStall(now - g.heard)
		delete(d.given, signal.Node)
	}
}
