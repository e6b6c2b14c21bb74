package speed

import "github.com/reknit/reknit/events"

// Profiler makes of what one node measures under one plan after the other what is worth telling.
type Profiler struct {
	Meter
	Layers
	job        *events.Job
	generation uint64
	stage      events.Range
	witness    bool
	unheard    bool // no layer was told under the plan yet
	peak       int64
	other      int64
}

// Switch begins anew under a plan, in which a node trains a job.
func (p *Profiler) Switch(plan *events.Plan, job *events.Job, node string) {
	p.stage, _ = plan.Holds(node)
	p.job, p.generation, p.witness, p.unheard = job, plan.Generation, plan.Witnesses(node), true
	p.Meter.Switch()
	p.Layers.Switch(p.stage)
}

// Step notes a completed step. It returns a profile when there is news: a speed that changed, or what layers took in the first
// steps under the plan, where the node is among those that tell it.
func (p *Profiler) Step(step uint64) (told events.Profile, news bool) {
	factor, news := p.Meter.Step()
	if factor == 0 {
		return told, false
	}
	told = p.profile(step, p.job.MicroBatchSeconds(p.stage)/factor)
	if costs := p.Costs(); p.unheard && p.witness && costs != nil && p.News(p.stage.First, costs) {
		told.FirstLayer, told.Layers, news = p.stage.First, costs, true
	}
	p.unheard = false
	return told, news
}

// Measured takes what the trainer itself measured of its layers, and of its memory where that is not zero. It returns a profile
// when there is news. O(layers).
func (p *Profiler) Measured(step uint64, costs []events.LayerCost, peakBytes, otherBytes int64) (told events.Profile, news bool) {
	seconds := 0.0
	for _, cost := range costs {
		seconds += cost.ForwardSeconds + cost.BackwardSeconds
	}
	if len(costs) != p.stage.Count() || seconds == 0 {
		return told, false
	}
	p.unheard = false
	told = p.profile(step, seconds)
	if p.witness && p.News(p.stage.First, costs) {
		told.FirstLayer, told.Layers, news = p.stage.First, costs, true
	}
	if differ(float64(peakBytes), float64(p.peak)) || differ(float64(otherBytes), float64(p.other)) {
		p.peak, p.other, news = peakBytes, otherBytes, true
	}
	told.PeakBytes, told.OtherBytes = p.peak, p.other
	return told, news
}

func (p *Profiler) profile(step uint64, microBatchSeconds float64) events.Profile {
	told := events.Profile{Step: step, Generation: p.generation, MicroBatchSeconds: microBatchSeconds, SpeedFactor: 1}
	told.SpeedFactor = told.Speed(p.job, p.stage)
	return told
}
