package detect

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// Progress is how far a trainer is, by its heartbeat.
type Progress struct {
	Generation  uint64  // of the plan
	Step        uint64  // completed steps
	StepSeconds float64 // of the last of them
	Phase       Phase
}

// Phase is what a trainer does in its step.
type Phase int

const (
	Unknown   Phase = iota // or it is in no step
	Computing              // it keeps others waiting
	Waiting                // for others
	Between                // neither, though it was told to train
)

// Hang is a trainer that computes, and does not get on, while others wait for it in its step or in the next.
type Hang struct {
	Node, By      string // who waits longest
	WaitedSeconds float64
	LimitSeconds  float64
}

// A trainer hangs where others have waited for it for so many of their longest steps under the plan, and a pause for a cold file or a
// garbage collection. They begin to wait when a step of theirs should be over, and heartbeats tell of it a second later: with both, a hang
// is found within three steps and two seconds. The first steps of a plan build connections and may compile: they are measured by the first
// steps of the last plans, with a longer pause, and by nothing before there were any. Each plan whose first steps are known halves that
// pause, for what they may have to build shows in them. Builds that only one trainer needs for the first time, such as those of a new
// shape, do not show in them. A trainer that has made no step yet has the whole pause beside: it may compile what the others have long had.
// A trainer that hangs in a first step is found, too: where each node of a thousand fails once a day, a plan has few other steps. Waiting
// is what tells a hang from an evaluation, a slow file or a pause that all trainers have at once. A trainer that is a step behind those who
// wait applies the sums of that step. It has the whole pause beside: it may save a file, and the step may be one of the first.
const (
	hangSteps  = 2
	hangSlack  = 1.5 // seconds
	firstSlack = 30
	knownSteps = 3
	knownPlans = 8
)

// mostGap is how many seconds between two heartbeats count at most. A longer gap means that heartbeats were lost, or that
// the monitor stood still: nobody told what the trainer did meanwhile.
const mostGap = 1.0

// Hangs finds trainers that hang, among those that work under one plan. It is fed with heartbeats.
type Hangs struct {
	nodes    map[string]*course
	verdicts map[string]verdicts // by node
	first    map[uint64]float64  // by generation of the last plans: seconds of the longest of its first steps
	now      float64             // when the last heartbeat came
}

// verdicts are those on a node. Each makes the next one wait twice as long, for it may have been a long pause, and counts
// for a day: all wait as long as the next one does, and no trainer is to hold them the longer the older the cluster is.
// They wait for mostSeconds at most, unless their steps alone allow more: NCCL gives a sum up after as long (PyTorch's default).
type verdicts struct {
	count int
	last  float64 // when it was said
}

const (
	mostVerdicts   = 4096 // nodes that are remembered for them
	mostSeconds    = 600
	verdictSeconds = 86400
)

// counts returns how many verdicts on a node still count.
func (h *Hangs) counts(node string) int {
	on := h.verdicts[node]
	return max(0, on.count-int((h.now-on.last)/verdictSeconds))
}

// note counts a verdict on a node.
func (h *Hangs) note(node string) {
	on := verdicts{count: h.counts(node) + 1, last: h.now}
	maps.DeleteFunc(h.verdicts, func(node string, _ verdicts) bool { return h.counts(node) == 0 })
	if len(h.verdicts) >= mostVerdicts {
		clear(h.verdicts)
	}
	h.verdicts[node] = on
}

// course is how a trainer got on under one plan.
type course struct {
	told    Progress
	since   float64 // it has been in its phase of its step
	heard   float64 // when the last heartbeat came
	steps   int     // completed under this plan, that were heard of
	longest float64 // seconds of these, but the first
	trained bool    // made a step under an earlier plan
	delayed bool    // it was named in this step for others who wait
}

// NewHangs returns one that knows of no trainer.
func NewHangs() *Hangs {
	return &Hangs{nodes: map[string]*course{}, verdicts: map[string]verdicts{}, first: map[uint64]float64{}}
}

// Pulse takes a heartbeat.
func (h *Hangs) Pulse(now float64, node string, told Progress) {
	h.now = max(h.now, now)
	known := h.nodes[node]
	switch {
	case known == nil || known.told.Generation != told.Generation:
		h.nodes[node] = &course{told: told, since: now, heard: now, trained: known != nil && known.hasTrained()}
		return
	case known.told.Step != told.Step:
		if known.steps <= knownSteps {
			h.noteFirst(told)
		}
		if known.steps > 0 {
			known.longest = max(known.longest, told.StepSeconds)
		}
		known.steps, known.since, known.delayed = known.steps+1, now, false
	case known.told.Phase != told.Phase:
		known.since = now
	default:
		known.since += max(0, now-known.heard-mostGap)
	}
	known.told, known.heard = told, now
}

// noteFirst takes how long one of the first steps of a plan took.
func (h *Hangs) noteFirst(told Progress) {
	h.first[told.Generation] = max(h.first[told.Generation], told.StepSeconds)
	if len(h.first) > knownPlans {
		delete(h.first, slices.Min(slices.Collect(maps.Keys(h.first))))
	}
}

// limit returns for how long one that waits may wait for another in its step, where anything tells.
func (h *Hangs) limit(waiting *course) (seconds float64, isKnown bool) {
	if waiting.steps > knownSteps {
		return hangSteps*waiting.longest + hangSlack, true
	}
	longest := 0.0
	for _, seconds := range h.first {
		longest = max(longest, seconds)
	}
	slack := firstSlack / math.Exp2(float64(len(h.first)-1))
	return hangSteps*longest + max(slack, hangSlack), longest > 0
}

// allowed returns for how long others who have a limit may wait for a trainer.
func (h *Hangs) allowed(node string, limit float64, isBehind bool) float64 {
	if isBehind || !h.nodes[node].hasTrained() {
		limit += firstSlack
	}
	return min(limit*math.Exp2(float64(h.counts(node))), max(limit, mostSeconds))
}

// Forget ends the watch over a node.
func (h *Hangs) Forget(node string) { delete(h.nodes, node) }

// Find returns who hangs, by the heartbeats so far, one at a time: for the others time begins anew, for what one of them does to the rest
// may end with it. Nobody hangs if more trainers keep others waiting than wait: something else is slow then. O(n).
func (h *Hangs) Find() (hang Hang, found bool) {
	var hangs []Hang
	for _, step := range h.steps() {
		if step.by == "" || len(step.computing)+len(step.behind) > step.waiting {
			continue
		}
		hangs = append(hangs, h.hanging(step, step.computing, false)...)
		hangs = append(hangs, h.hanging(step, step.behind, true)...)
	}
	if len(hangs) == 0 {
		return Hang{}, false
	}
	hang = slices.MinFunc(hangs, func(a, b Hang) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(b.WaitedSeconds, a.WaitedSeconds), cmp.Compare(a.By, b.By))
	})
	h.note(hang.Node)
	for _, known := range h.nodes {
		known.since = known.heard
	}
	return hang, true
}

// hanging returns those of some nodes for whom others have waited in a step for longer than is allowed.
func (h *Hangs) hanging(step *inStep, nodes []string, areBehind bool) (hangs []Hang) {
	for _, node := range nodes {
		limit := h.allowed(node, step.limit, areBehind)
		if waited := min(step.waited, h.nodes[node].spent()); waited > limit {
			hangs = append(hangs, Hang{Node: node, By: step.by, WaitedSeconds: waited, LimitSeconds: limit})
		}
	}
	return hangs
}

// place is a step of a plan.
type place struct{ generation, step uint64 }

func (p place) compare(other place) int {
	return cmp.Or(cmp.Compare(p.generation, other.generation), cmp.Compare(p.step, other.step))
}

func (c *course) at() place { return place{c.told.Generation, c.told.Step} }

// spent is for how long a trainer has told that it is in its phase. Time in which no heartbeat was heard does not
// count.
func (c *course) spent() float64 { return c.heard - c.since }

// hasTrained reports whether a trainer was heard to complete a step.
func (c *course) hasTrained() bool { return c.trained || c.steps > 0 }

// inStep are those in one step, and those whom they may wait for.
type inStep struct {
	computing []string
	behind    []string // computing in the step before
	waiting   int
	by        string  // who waits longest of those whose steps are known; empty for nobody
	waited    float64 // seconds
	limit     float64 // seconds that would be long
}

// steps returns the steps in which somebody computes or waits. Nobody has a step to wait in before the first plan, whatever heartbeats say.
func (h *Hangs) steps() map[place]*inStep {
	steps := map[place]*inStep{}
	for node, known := range h.nodes {
		if known.told.Phase != Computing && known.told.Phase != Waiting || known.told.Generation == 0 {
			continue
		}
		step := steps[known.at()]
		if step == nil {
			step = &inStep{}
			steps[known.at()] = step
		}
		if known.told.Phase == Computing {
			step.computing = append(step.computing, node)
			continue
		}
		step.waiting++
		limit, isKnown := h.limit(known)
		if !isKnown {
			continue
		}
		step.limit = max(step.limit, limit)
		if spent := known.spent(); step.by == "" || spent > step.waited || spent == step.waited && node < step.by {
			step.by, step.waited = node, spent
		}
	}
	for node, known := range h.nodes {
		next := place{known.told.Generation, known.told.Step + 1}
		if step := steps[next]; step != nil && known.told.Phase == Computing {
			step.behind = append(step.behind, node)
		}
	}
	return steps
}
