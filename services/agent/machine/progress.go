package machine

import (
	"fmt"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
)

const medianSteps = 20 // a usual step is the median of so many

// pace knows how long a step usually takes, and so how long a stall was.
type pace struct {
	seconds   []float64 // of the last steps
	completed time.Time // the last step
	longest   float64   // seconds between the ends of two steps of one plan, so far
	pending   uint64    // generation whose first step is awaited; zero for none
	between   average   // seconds from one completed step of the plan to the next
}

// average is that of the last numbers, of which the older ones count less and less.
type average struct {
	value float64
	count int
}

const lastPaces = 1000 // steps that count: an evaluation each few hundred is to be in it

func (a *average) add(number float64) {
	a.count = min(a.count+1, lastPaces)
	a.value += (number - a.value) / float64(a.count)
}

// Computed tells how long the trainer passed micro-batches in the step that it is about to complete.
func (m *Machine) Computed(seconds float64) { m.computed = seconds }

// Loss tells whether that of the step which the trainer is about to complete is finite. One that this node does not know counts as
// finite. From the first one that is not no snapshot is taken until one is again. It reports whether this step is that first one.
func (m *Machine) Loss(step uint64, finite bool) (diverges bool) {
	diverges = !finite && m.diverged == 0
	switch {
	case finite:
		m.diverged = 0
	case diverges:
		m.diverged = step
	}
	return diverges
}

// Completed tells that a step was completed after so many seconds. It comes before the step's Boundary. The first
// step of a plan says how long training stood for it.
func (m *Machine) Completed(now time.Time, step uint64, seconds float64) []Action {
	m.done, m.counts = step, nil // the trainer's state has dropped what it does not train
	stall, usual, first := m.pace.note(now, seconds)
	if first && m.plan != nil {
		activated := m.speaker.First(now, m.plan.digest+m.incarnation, events.PlanActivated, m.settings.Node, &events.Activation{
			Node: m.settings.Node, Generation: m.generation(), Step: step,
			StallSeconds: stall, StallSteps: stall / max(usual, 1e-9), StepSeconds: usual,
			LongestSeconds: m.pace.longest,
		})
		activated.Cause, activated.Traceparent = m.plan.cause, m.plan.traceparent
		m.do(Say{activated})
	}
	if m.plan != nil && m.plan.plan.Paced(m.settings.Node) {
		m.tellPace(now, seconds)
	}
	m.computed = 0
	return m.act()
}

// tellPace says how long the steps of the plan in force take, once they are measured and where that is news.
func (m *Machine) tellPace(now time.Time, seconds float64) {
	usual, news := m.steps.note(m.generation(), seconds, m.computed)
	if !news {
		return
	}
	m.do(Say{m.speaker.First(now, fmt.Sprintf("pace-%s-%d-%d", m.incarnation, m.generation(), m.done), events.PlanMeasured,
		m.settings.Node, &events.Pace{
			Node: m.settings.Node, Generation: m.generation(), Step: m.done, StepSeconds: usual, Steps: m.steps.counted,
			ComputeSeconds: m.steps.usualPasses, Processors: m.settings.Processors,
		})})
}

// Profiled returns what tells what the node measured. Its name is filled in.
func (m *Machine) Profiled(now time.Time, profile events.Profile) events.Event {
	profile.Node = m.settings.Node
	return m.speaker.First(now, fmt.Sprintf("%s-%d", m.incarnation, profile.Step), events.NodeProfiled, m.settings.Node, &profile)
}

const (
	warmSteps  = 7    // of a plan are not counted: the first two compile, and warm caches, and layers are measured in the next five
	firstSteps = 5    // that are counted of a plan, before how long one takes is told
	mostSteps  = 1000 // that are kept of a look, all over it
	longLook   = 60   // seconds, after which a look ends if it has seen so many steps as the first one
	exactNews  = 1.03 // by how much steps take more or less than was told, for it to be told again, until a look was long
	paceNews   = 1.1  // and from then on
)

// steps knows how long the steps of a plan take. It tells so after the first few, and looks again when there are twice as many, until it
// has looked for long: a processor that others use, too, may be half as fast for some seconds. From then on each look is a long one, at
// new steps.
type steps struct {
	generation uint64
	warm       int
	seconds    []float64
	passes     []float64 // seconds of each that the node computed; 0: not told
	lasted     float64   // seconds: the look so far
	seen       int       // steps of it
	stride     int       // of which each so-manieth is kept
	window     int       // steps of a look that is not long
	wasLong    bool      // a look before
	told       float64   // seconds; zero: nothing was
	counted    int       // of the last look
	// usualPasses is the median of passes, of the last look.
	usualPasses float64
}

// note takes a completed step of a plan, and its passes. It returns the median of those that it looked at where that is news.
func (s *steps) note(generation uint64, seconds, passes float64) (usual float64, news bool) {
	if s.generation != generation {
		*s = steps{generation: generation, window: firstSteps, stride: 1}
	}
	if s.warm++; s.warm <= warmSteps {
		return 0, false
	}
	s.keep(seconds, passes)
	isLong := s.lasted >= longLook && s.seen >= firstSteps
	if s.seen != s.window && !isLong {
		return 0, false
	}
	usual, s.usualPasses, s.counted = median(s.seconds), median(s.passes), s.seen
	news = s.isNews(usual)
	if s.window *= 2; news {
		s.told = usual
	}
	if isLong {
		s.seconds, s.passes, s.lasted, s.seen, s.stride = s.seconds[:0], s.passes[:0], 0, 0, 1
		s.window, s.wasLong = 0, true
	}
	return usual, news
}

// keep takes a step into the look. Once so many are kept as may be, every other one is dropped, and of the steps to come.
func (s *steps) keep(seconds, passes float64) {
	if s.seen%s.stride == 0 {
		s.seconds, s.passes = append(s.seconds, seconds), append(s.passes, passes)
	}
	s.seen, s.lasted = s.seen+1, s.lasted+seconds
	if len(s.seconds) < mostSteps {
		return
	}
	for kept := range mostSteps / 2 {
		s.seconds[kept], s.passes[kept] = s.seconds[2*kept], s.passes[2*kept]
	}
	s.seconds, s.passes, s.stride = s.seconds[:mostSteps/2], s.passes[:mostSteps/2], 2*s.stride
}

// isNews reports whether steps differ from what was told.
func (s *steps) isNews(usual float64) bool {
	times := exactNews
	if s.wasLong {
		times = paceNews
	}
	return usual > 0 && (usual >= s.told*times || usual <= s.told/times)
}

// note takes a completed step, and returns the stall before it where it is the first of a generation.
func (p *pace) note(now time.Time, seconds float64) (stall, usual float64, first bool) {
	usual = p.usual()
	if usual == 0 {
		usual = seconds
	}
	if !p.completed.IsZero() {
		stall = max(0, now.Sub(p.completed).Seconds()-usual)
	}
	switch first = p.pending != 0; {
	case first:
		p.between = average{} // other nodes train, and perhaps other layers
	case !p.completed.IsZero():
		between := now.Sub(p.completed).Seconds()
		p.longest = max(p.longest, between)
		p.between.add(between)
	}
	p.completed, p.pending = now, 0
	p.seconds = append(p.seconds, seconds)
	p.seconds = p.seconds[max(0, len(p.seconds)-medianSteps):]
	return stall, usual, first
}

func (p *pace) usual() float64 {
	if len(p.seconds) == 0 {
		return 0
	}
	return median(p.seconds)
}

func median(seconds []float64) float64 { return slices.Sorted(slices.Values(seconds))[len(seconds)/2] }
