package machine

import (
	"cmp"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/profile"
)

// took is how long a node took for a micro-batch in some layers.
type took struct {
	Seconds float64      `json:"seconds"` // zero: it has not told
	Layers  events.Range `json:"layers"`
}

// profiled hears what a node measured. Its layers' figures count under the plan in force, and if they tell of all its layers.
func (m *Machine) profiled(told events.Profile) {
	known := m.state.known(told.Node)
	if known == nil {
		return
	}
	known.SpeedFactor = told.SpeedFactor
	if told.PeakBytes > 0 {
		known.OtherBytes = told.OtherBytes
	}
	if m.state.Plan == nil || told.Generation != m.state.generation() {
		return
	}
	stage, trains := m.state.Plan.Holds(told.Node)
	if !trains {
		return
	}
	known.Took = took{cmp.Or(told.MicroBatchSeconds, m.state.Job.MicroBatchSeconds(stage)/told.SpeedFactor), stage}
	if told.FirstLayer == stage.First && len(told.Layers) == stage.Count() {
		m.state.Costs.Take(told.Node, stage.First, costsOf(told.Layers, known.MemoryBytes))
	}
}

// costsOf are the costs that a node with some memory tells. Activations that it has no room for were not measured.
func costsOf(layers []events.LayerCost, memory int64) []profile.Cost {
	costs := make([]profile.Cost, len(layers))
	room := memory
	for _, layer := range layers {
		room = max(-1, room-layer.ActivationBytes)
	}
	for i, layer := range layers {
		costs[i] = profile.Cost{ForwardSeconds: layer.ForwardSeconds, BackwardSeconds: layer.BackwardSeconds}
		if room >= 0 {
			costs[i].ActivationBytes = layer.ActivationBytes
		}
	}
	return costs
}

// paced hears how long a step of the plan in force takes.
func (m *Machine) paced(pace events.Pace) {
	if plan := m.state.Plan; plan != nil && pace.Generation == plan.Generation && plan.Paced(pace.Node) {
		m.state.Measured.Take(pace.Node, pace.StepSeconds, pace.ComputeSeconds)
		m.agenda.heeds = true
		return
	}
}

// measuredJob is the job with what nodes measured in the place of what it declares.
func (m *Machine) measuredJob() events.Job {
	job := *m.state.Job
	if len(m.state.Costs) == 0 {
		return job
	}
	declared := make([]profile.Cost, len(job.Layers))
	for i, layer := range job.Layers {
		declared[i] = profile.Cost{ForwardSeconds: layer.ForwardSeconds, BackwardSeconds: layer.BackwardSeconds,
			ActivationBytes: layer.ActivationBytes}
	}
	job.Layers = slices.Clone(job.Layers)
	for i, cost := range m.state.Costs.All(declared) {
		layer := &job.Layers[i]
		layer.ForwardSeconds, layer.BackwardSeconds, layer.ActivationBytes = cost.ForwardSeconds, cost.BackwardSeconds, cost.ActivationBytes
	}
	return job
}

// speeds are the nodes' speeds beside what the layers of a measured job say. A node that has not told is as fast as the median
// of those that have; if no layer was measured, as it or its join said.
func (m *Machine) speeds(job *events.Job, nodes []*member) []float64 {
	speeds, told := make([]float64, len(nodes)), []float64{}
	for i, node := range nodes {
		switch {
		case len(m.state.Costs) == 0:
			speeds[i] = node.SpeedFactor
		case node.Took.Seconds > 0:
			profile := events.Profile{MicroBatchSeconds: node.Took.Seconds}
			speeds[i] = profile.Speed(job, node.Took.Layers)
			told = append(told, speeds[i])
		}
	}
	usual := profile.Median(told)
	if usual == 0 {
		usual = 1
	}
	for i, speed := range speeds {
		if speed == 0 || len(told) > 0 && speed < usual*usualSpeeds && speed > usual/usualSpeeds {
			speeds[i] = usual
		}
	}
	return speeds
}

// usualSpeeds is by how much a node's speed may differ from the median and counts as that: what is measured scatters, and to move
// layers for less is not worth it. services/agent/machine/speed tells of no lesser change either.
const usualSpeeds = 1.5
