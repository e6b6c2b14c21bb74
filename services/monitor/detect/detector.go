// Package detect decides who is alive: numbers in, verdicts out. Times are seconds of one clock that never goes back.
//
// A detector that only counts missed heartbeats must choose between slow and wrong. This one is fast where there is
// evidence and patient where there is only silence:
//
//   - Silence. Heartbeats arrive at intervals with a mean and a spread that differ from node to node and from hour to
//     hour, so the timeout is learned: mean + pause + Sigmas times the standard deviation of the last intervals. The
//     pause is for what is not in the intervals yet, a garbage collection or a retransmission. Half-way, without the
//     pause, the node is suspected, which costs nothing but a probe. (Akka's and Cassandra's phi detector is the same
//     rule on a logarithmic scale: Sigmas 5.6 is phi 8.)
//   - Evidence. When a process is killed, its kernel resets its connections at once: a peer on the data plane sees a
//     reset, and the hub has no subscriber any more. The two paths have little in common but the process, so together
//     no timeout is waited for. A router that starts anew looks alike: the node is done without, and what it holds may
//     come back. Either alone is a link or a connection that broke, and tells nothing.
//   - Correlated silence. When more than half of the nodes fall silent within one timeout, the likelier explanation is
//     this detector or the hub (Kubernetes' rule for zones, at 55 %). Time then stands still for everybody, for as long
//     as a hub needs to come back; after that the silence is taken for what it is.
//   - Witnesses. Others try a suspected node on the path that training uses. A process whose host accepts connections
//     is stalled, and waited for according to the stalls that ended by themselves before. One that answers is cut off
//     from the hub, and trains. One that nobody reaches is lost when its silence says so.
//   - Sites. The same rule for the nodes of one site: its silence is the site's, and its nodes are excused for as long as
//     most cuts of a way to the hub last. Silence that was excused as that of most nodes is not excused again.
//   - Batches. Nodes that fell silent at once are told at once: a verdict waits for those that are about to follow.
//   - Own lateness. When the detector itself was not run for a while, heartbeats waited in a queue. The delay is not held against
//     anybody (Lifeguard's local health).
//   - Incarnations. A restarted process is another one. Its heartbeats say nothing about the one that joined.
package detect

import (
	"maps"
	"math"
	"slices"
)

// Settings are the detector's numbers, in seconds where nothing else is said.
type Settings struct {
	PulseSeconds      float64 // between two heartbeats, before any is heard
	TickSeconds       float64 // between two calls of Tick
	PauseSeconds      float64 // a silence no interval has shown yet, and that is still no failure
	Sigmas            float64 // standard deviations above the mean that an interval may take
	SigmaSeconds      float64 // the least standard deviation: a calm hour proves nothing about the next
	FloorSeconds      float64 // least timeout
	CapSeconds        float64 // greatest timeout
	ResetSeconds      float64 // for how long a peer's report of a reset is evidence
	CorrelatedShare   float64 // of all nodes, silent at once, above which the detector suspects itself
	CorrelatedNodes   int     // and at least so many
	CorrelatedSeconds float64 // for so long
	SiteSeconds       float64 // for so long a silent site is waited for
	StalledSeconds    float64 // for so long a stalled process is waited for at most
	CutOffSeconds     float64 // for so long a node that answers others is waited for
	BatchSeconds      float64 // a verdict waits so long for others that are about to follow
}

// Defaults find a silent node lost after 4.4 s at two heartbeats a second.
func Defaults() Settings {
	return Settings{
		PulseSeconds: 0.5, TickSeconds: 0.1,
		PauseSeconds: 2.5, Sigmas: 5.6, SigmaSeconds: 0.25, FloorSeconds: 2, CapSeconds: 10,
		ResetSeconds:    5,
		CorrelatedShare: 0.55, CorrelatedNodes: 3, CorrelatedSeconds: 15,
		SiteSeconds: 60, StalledSeconds: 30, CutOffSeconds: 60, BatchSeconds: 1,
	}
}

const (
	window        = 64 // intervals that the timeout is learned from
	clipIntervals = 3  // an interval counts as at most so many usual ones: an outage must not widen the timeout long
	lateTicks     = 2  // a tick that comes after so many periods is late
)

// State is what is thought of a node.
type State int

const (
	Green State = iota
	Suspected
	Lost // the detector has forgotten it
)

// Verdict is a change of state.
type Verdict struct {
	Node          string // empty where it is about a site
	State         State
	SilentSeconds float64 // since the last heartbeat or answer
	WaitedSeconds float64 // that others waited for its trainer, which hangs
	Evidence      bool    // a reset and nobody at the hub, rather than silent for longer than the timeout
	Stalled       bool    // a witness found that its host accepts connections
	StallSeconds  float64 // of the longest stall that ended by itself, because of which a stalled node was waited for longer; zero: it was not
	Site          Site    // that is silent as a whole; of a lost node, where it stood
}

// Watched is an incarnation of a node, and what is thought of it at first.
type Watched struct {
	Node, Incarnation string
	Site              string // where it stands; empty: nobody said
	Number            uint64 // heartbeats up to this one are old
	State             State
}

// Signal is a heartbeat.
type Signal struct {
	Node, Incarnation string
	Number            uint64 // counts up within an incarnation
}

// Detector watches nodes. Its methods take the time at which they are called.
type Detector struct {
	settings   Settings
	nodes      map[string]*node
	last       float64 // tick
	ticked     bool
	correlated float64 // seconds for which correlated silence has been excused
	sites      map[string]*site
	stall      float64          // seconds that the longest stall which ended by itself still counts for
	stalls     float64          // that ended so, as far as they still count
	given      map[string]given // by node: those that were given up while they were stalled, and may yet teach something
}

type node struct {
	incarnation string
	site        string
	number      uint64
	state       State
	pulsed      bool      // heard a heartbeat, so that the next makes an interval
	started     bool      // the grace of a node nothing was heard of yet has begun
	heard       float64   // when the last sign of life came
	pulse       float64   // when the last heartbeat came
	excused     float64   // seconds of the silence that are not the node's
	intervals   []float64 // the last ones, a ring
	count       int
	timeout     float64
	reset       float64 // when a peer last reported a reset
	wasReset    bool
	believed    bool             // its silence was excused as that of most nodes, for as long as it is to be
	findings    map[string]found // by witness, since it is suspected
	stalled     bool             // a witness found so since then, before any reached it
	reached     *float64         // since when witnesses reach it; nil while none did
	deferred    float64          // until when its witnesses have time to answer
}

// New returns a detector that watches nobody and goes on with what another knew.
func New(settings Settings, memory Memory) *Detector {
	d := &Detector{
		settings: settings, nodes: map[string]*node{}, sites: map[string]*site{}, given: map[string]given{},
		stall: memory.StallSeconds, stalls: memory.Stalls,
	}
	for name, excused := range memory.Sites {
		d.sites[name] = &site{Site: Site{Name: name}, suspected: true, excused: excused}
	}
	return d
}

// Watch begins to watch an incarnation of a node, in place of any other. It has a full timeout from the next Tick on.
func (d *Detector) Watch(w Watched) {
	n := &node{incarnation: w.Incarnation, site: w.Site, number: w.Number, state: w.State}
	n.timeout = d.settings.timeout([]float64{d.settings.PulseSeconds})
	d.nodes[w.Node] = n
	delete(d.given, w.Node)
}

// Forget ends watching a node.
func (d *Detector) Forget(name string) { delete(d.nodes, name) }

// Watched returns the number of nodes watched.
func (d *Detector) Watched() int { return len(d.nodes) }

// Incarnation returns the incarnation that is watched; ok is false for a node that is not.
func (d *Detector) Incarnation(name string) (incarnation string, ok bool) {
	if n := d.nodes[name]; n != nil {
		return n.incarnation, true
	}
	return "", false
}

// State returns what is thought of a node: Lost for one that is not watched.
func (d *Detector) State(name string) State {
	if n := d.nodes[name]; n != nil {
		return n.state
	}
	return Lost
}

// Signal takes a heartbeat. It reports whether the heartbeat is a new one of the watched incarnation, and whether it
// clears a suspicion.
func (d *Detector) Signal(now float64, signal Signal) (counted, cleared bool) {
	n := d.nodes[signal.Node]
	if n == nil || n.incarnation != signal.Incarnation {
		d.returned(now, signal)
		return false, false
	}
	if signal.Number <= n.number {
		return false, false
	}
	if n.stalls(now, d.settings) {
		d.learnStall(n.overdue(now))
	}
	if n.pulsed {
		n.learn(now-n.pulse, d.settings)
	}
	cleared = n.state == Suspected
	n.number, n.state, n.pulsed, n.pulse = signal.Number, Green, true, now
	n.findings, n.stalled, n.reached, n.deferred = nil, false, nil, 0
	n.alive(now)
	return true, cleared
}

// Answered takes an answer to a probe: a sign of life that defers the loss. It does not clear a suspicion, because a
// node that answers but sends no heartbeats is not well.
func (d *Detector) Answered(now float64, name string) {
	if n := d.nodes[name]; n != nil {
		n.alive(now)
	}
}

// Reset takes a peer's report that a node reset or refused its connection.
func (d *Detector) Reset(now float64, name string) {
	if n := d.nodes[name]; n != nil {
		n.reset, n.wasReset = now, true
	}
}

// Gone takes the hub's word that nobody answers for the node any more. With a recent reset the node is lost.
func (d *Detector) Gone(now float64, name string) (Verdict, bool) {
	n := d.nodes[name]
	if n == nil || !n.wasReset || now-n.reset > d.settings.ResetSeconds {
		return Verdict{}, false
	}
	delete(d.nodes, name)
	return Verdict{Node: name, State: Lost, SilentSeconds: n.silence(now), Evidence: true}, true
}

// Tick tells the detector the time and returns what changed by silence alone, in the order of the names. O(n).
func (d *Detector) Tick(now float64) []Verdict {
	passed := d.settings.TickSeconds
	if d.ticked {
		passed = max(0, now-d.last)
	}
	d.last, d.ticked = now, true
	d.age(passed)
	late := 0.0
	if passed > lateTicks*d.settings.TickSeconds {
		late = passed - d.settings.TickSeconds
	}
	for _, n := range d.nodes {
		n.excuse(now, late)
	}
	if d.suspectsItself(now, passed) {
		for _, n := range d.nodes {
			n.excuse(now, passed-late)
		}
		return nil
	}
	d.count(now)
	return append(d.excuseSites(now, passed-late), d.judgeAll(now)...)
}

// judgeAll returns the verdicts on nodes, in the order of the names. Losses wait for those that are about to follow, so
// that what fell silent at once is one change.
func (d *Detector) judgeAll(now float64) []Verdict {
	var suspected, lost []string
	longest, follow := 0.0, false
	for name, n := range d.nodes {
		overdue := n.overdue(now)
		if n.state == Green && overdue > d.settings.suspicion(n) {
			suspected = append(suspected, name)
		}
		if n.state == Green || overdue <= d.settings.suspicion(n) {
			continue
		}
		switch beyond := overdue - d.limit(now, n); {
		case beyond > 0 && now < n.deferred:
			follow = true
		case beyond > 0:
			lost, longest = append(lost, name), max(longest, beyond)
		case beyond > -d.settings.BatchSeconds:
			follow = true
		}
	}
	if follow && longest < d.settings.BatchSeconds {
		lost = nil
	}
	return append(d.suspect(now, suspected), d.lose(now, lost)...)
}

func (d *Detector) suspect(now float64, names []string) (verdicts []Verdict) {
	for _, name := range slices.Sorted(slices.Values(names)) {
		n := d.nodes[name]
		n.state = Suspected
		verdicts = append(verdicts, Verdict{Node: name, State: Suspected, SilentSeconds: n.silence(now)})
	}
	return verdicts
}

func (d *Detector) lose(now float64, names []string) (verdicts []Verdict) {
	teachesNothing := func(_ string, g given) bool { return now-g.heard > d.settings.StalledSeconds } // see learnStall
	maps.DeleteFunc(d.given, teachesNothing)
	for _, name := range slices.Sorted(slices.Values(names)) {
		n := d.nodes[name]
		verdict := Verdict{Node: name, State: Lost, SilentSeconds: n.silence(now), Stalled: n.stalls(now, d.settings)}
		if s := d.sites[n.site]; s != nil && s.suspected {
			verdict.Site = s.Site
		}
		if verdict.Stalled {
			d.given[name] = given{n.incarnation, n.heard}
		}
		if verdict.Stalled && d.patience() > n.timeout {
			verdict.StallSeconds = d.stall
		}
		delete(d.nodes, name)
		verdicts = append(verdicts, verdict)
	}
	return verdicts
}

// suspectsItself reports whether so many nodes are silent at once that the fault is likelier here or in the hub, and
// that has not gone on for too long to be believed.
func (d *Detector) suspectsItself(now, passed float64) bool {
	var silent []*node
	for _, n := range d.nodes {
		if n.overdue(now) > d.settings.suspicion(n) {
			silent = append(silent, n)
		}
	}
	if !d.settings.most(len(silent), len(d.nodes)) {
		d.correlated = 0
		return false
	}
	d.correlated += passed
	if d.correlated <= d.settings.CorrelatedSeconds {
		return true
	}
	for _, n := range silent {
		n.believed = true
	}
	return false
}

// most reports whether so many silent nodes of all are too many to be at fault themselves.
func (s Settings) most(silent, all int) bool {
	return silent >= s.CorrelatedNodes && float64(silent) > s.CorrelatedShare*float64(all)
}

// suspicion is the silence after which a node is suspected.
func (s Settings) suspicion(n *node) float64 { return max(n.timeout-s.PauseSeconds, 0) }

// timeout returns the silence after which a node with these last intervals is lost.
func (s Settings) timeout(intervals []float64) float64 {
	mean := 0.0
	for _, interval := range intervals {
		mean += interval
	}
	mean /= float64(len(intervals))
	variance := 0.0
	for _, interval := range intervals {
		variance += (interval - mean) * (interval - mean)
	}
	sigma := max(math.Sqrt(variance/float64(len(intervals))), s.SigmaSeconds)
	return min(max(mean+s.PauseSeconds+s.Sigmas*sigma, s.FloorSeconds), s.CapSeconds)
}

func (n *node) learn(interval float64, settings Settings) {
	interval = min(max(interval, 0), clipIntervals*settings.PulseSeconds)
	if len(n.intervals) < window {
		n.intervals = append(n.intervals, interval)
	} else {
		n.intervals[n.count%window] = interval
	}
	n.count++
	n.timeout = settings.timeout(n.intervals)
}

func (n *node) alive(now float64) {
	n.heard, n.excused, n.started, n.believed = max(n.heard, now), 0, true, false
}

// excuse takes seconds from the node's silence. A node nothing was heard of yet begins its grace here.
func (n *node) excuse(now, seconds float64) {
	if !n.started {
		n.alive(now)
	}
	n.excused = min(n.excused+seconds, max(0, now-n.heard))
}

func (n *node) silence(now float64) float64 {
	if !n.started {
		return 0
	}
	return max(0, now-n.heard)
}

func (n *node) overdue(now float64) float64 { return n.silence(now) - n.excused }
