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
}

// Completed tells that a step was completed after so many seconds. It comes before the step's Boundary. The first
// step of a plan says how long training stood for it.
func (m *Machine) Completed(now time.Time, step uint64, seconds float64) []Action {
	m.done = step
	stall, usual, first := m.pace.note(now, seconds)
	if first && m.plan != nil {
		activated := m.speaker.First(now, m.plan.digest+m.incarnation, events.PlanActivated, m.settings.Node, &events.Activation{
			Node: m.settings.Node, Generation: m.generation(), Step: step,
			StallSeconds: stall, StallSteps: stall / max(usual, 1e-9), StepSeconds: usual,
		})
		activated.Cause, activated.Traceparent = m.plan.cause, m.plan.traceparent
		m.do(Say{activated})
	}
	return m.act()
}

// Profiled returns what tells how fast the node is beside the job's layer profile.
func (m *Machine) Profiled(now time.Time, step uint64, speedFactor float64) events.Event {
	return m.speaker.First(now, fmt.Sprintf("%s-%d", m.incarnation, step), events.NodeProfiled, m.settings.Node,
		&events.Profile{Node: m.settings.Node, SpeedFactor: speedFactor, Step: step})
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
	if first = p.pending != 0; !first && !p.completed.IsZero() {
		p.longest = max(p.longest, now.Sub(p.completed).Seconds())
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
	sorted := slices.Sorted(slices.Values(p.seconds))
	return sorted[len(sorted)/2]
}
