package view

import (
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
)

const (
	keptMinutes = 15
	window      = 3 * time.Second // over which throughput is an average, or four steps where those take longer
)

// progress is how training got on in the last minutes.
type progress struct {
	step        uint64 // the highest that a heartbeat told
	loss        float64
	diverged    uint64    // the first step since which the loss is not finite; zero: it is
	rose        time.Time // when a heartbeat told of another step last
	stepSeconds float64   // of the last heartbeat that told of it
	marks       []mark    // one a second, the oldest first
}

// mark is a second of it.
type mark struct {
	second int64
	step   uint64
	loss   float64
	rate   float64 // samples a second
}

// Point is a second for readers: its number since 1970, completed steps, loss, samples a second.
type Point [4]float64

func (p *progress) hear(pulse events.Pulse, now time.Time) {
	if pulse.Step < p.step && p.step-pulse.Step < 1000 { // a straggler; a snapshot or another job goes back further
		return
	}
	if pulse.Step != p.step || p.rose.IsZero() {
		p.rose = now
	}
	p.step, p.stepSeconds = pulse.Step, pulse.StepSeconds
	switch {
	case pulse.LossNotFinite:
		if since := overlay.DivergedSince(pulse); p.diverged == 0 || since < p.diverged {
			p.diverged = since
		}
	case pulse.Loss > 0:
		p.loss, p.diverged = pulse.Loss, 0
	}
}

// look notes the second that it is.
func (p *progress) look(plan *events.Plan, now time.Time) {
	second := now.Unix()
	if plan == nil || len(p.marks) > 0 && p.marks[len(p.marks)-1].second >= second {
		return
	}
	p.marks = append(p.marks, mark{second: second, step: p.step, loss: p.loss})
	last := &p.marks[len(p.marks)-1]
	last.rate = p.stepsPerSecond() * float64(plan.Data.GlobalBatch)
	for p.marks[0].second <= second-keptMinutes*60 {
		p.marks = p.marks[1:]
	}
}

// stepsPerSecond is that of the window that ends now.
func (p *progress) stepsPerSecond() float64 {
	last := p.marks[len(p.marks)-1]
	seconds := max(window.Seconds(), 4*p.stepSeconds)
	first := last
	for i := len(p.marks) - 2; i >= 0 && float64(last.second-p.marks[i].second) <= seconds; i-- {
		if p.marks[i].step == 0 { // nothing was heard yet
			break
		}
		first = p.marks[i]
	}
	if first.second == last.second || last.step < first.step { // it went back
		return 0
	}
	return float64(last.step-first.step) / float64(last.second-first.second)
}

// late tells for how long no step was made, where that is longer than usual; empty where it is not.
func (p *progress) late(now time.Time) string {
	if p.rose.IsZero() {
		return ""
	}
	return overlay.SaysLate(now.Sub(p.rose), p.stepSeconds)
}

func (p *progress) rate() float64 {
	if len(p.marks) == 0 {
		return 0
	}
	return p.marks[len(p.marks)-1].rate
}

// minutes returns the points by minute.
func (p *progress) minutes() map[int64][]Point {
	minutes := map[int64][]Point{}
	for _, m := range p.marks {
		minutes[m.second/60] = append(minutes[m.second/60], Point{float64(m.second), float64(m.step), m.loss, m.rate})
	}
	return minutes
}
