package events

import (
	"fmt"
	"math"
	"slices"
)

// Job is what is trained. Every member carries the same one.
type Job struct {
	Digest string `json:"digest" is:"digest"` // of all that determines the result, equal whenever a process joins: model, data, settings
	// FirstState is the digest of the state with which training is to begin, as this process made or loaded it. It must be equal
	// until there is a first plan. Later joiners take the others' state. Left out: Digest says it, or nobody compares it.
	FirstState string `json:"firstState,omitempty" is:"digest"`
	// Steps is after how many training ends. Left out: nobody knows, or it has no end.
	Steps uint64 `json:"steps,omitempty"`
	// Kind tells how nodes share the work: pipeline, data-parallel or sharded; left out: pipeline.
	Kind   string         `json:"kind,omitempty" is:"one=pipeline|data-parallel|sharded"`
	Layers []LayerProfile `json:"layers" is:"count=1..4096"` // in order
	// Tied are runs of layers that stay in one stage, for they share tensors: an embedding that is the head as well
	// ties all layers.
	Tied []Range `json:"tied,omitempty"`
	// GlobalBatch is the samples of a step, whatever the plan. With a batchRule it is the batch for which the
	// learning rate is meant.
	GlobalBatch int        `json:"globalBatch" is:"min=1"`
	MicroBatch  int        `json:"microBatch" is:"min=1"` // samples a micro-batch; divides the global batch
	BatchRule   *BatchRule `json:"batchRule,omitempty"`
	Pipelines   Bounds     `json:"pipelines"` // data-parallel degree; zero leaves it to the planner
	Stages      Bounds     `json:"stages"`    // pipeline length; zero leaves it to the planner
	// OptimizerPartitions is into how many each layer's optimizer state is cut, of which a pipeline keeps some
	// (ZeRO); zero: every holder of a layer keeps all of it.
	OptimizerPartitions int `json:"optimizerPartitions,omitempty" is:"max=64"`
	// Replicas tells what holders of one unit have at one step: equal bytes, or bytes that are only alike, as on
	// mixed hardware. Left out: equal. Alike ones are never compared, and a unit moves from one holder.
	Replicas string `json:"replicas,omitempty" is:"one=equal|alike"`
	// Data tells whose samples a node trains: those of the data that all share, at the plan's positions, or its local
	// ones, which stay with it. Left out: shared.
	Data string `json:"data,omitempty" is:"one=shared|local"`
}

// MostMicroBatches is how many a step may have, for the planner's CPU time grows with them. A first plan of 48 equal layers for 64
// nodes of five speeds and memory sizes takes 0.4 s of it with 4,096 micro-batches and 2.1 s with 65,536; for 256, 0.6 s and 2.7 s.
const MostMicroBatches = 1 << 16

const (
	// Pipelined jobs are cut into pipelines of stages; several pipelines train on different samples.
	Pipelined = "pipeline"
	// DataParallel jobs have the whole model at every active node: each is a pipeline of one stage, and nobody is a
	// spare.
	DataParallel = "data-parallel"
	// Sharded jobs spread the state over a group of nodes that train the same micro-batches together (FSDP), and
	// have several groups (HSDP). A group is a pipeline, and its stages are the shards.
	Sharded = "sharded"

	// EqualReplicas are equal to the bit, or one of them is wrong.
	EqualReplicas = "equal"
	// AlikeReplicas differ as much as hardware rounds.
	AlikeReplicas = "alike"

	// SharedData can be read by every node.
	SharedData = "shared"
	// LocalData stays with its node, joins and leaves with it, and counts by how many samples there are.
	LocalData = "local"
)

// BatchRule lets the global batch follow the nodes, and the learning rate the batch.
type BatchRule struct {
	SamplesPerNode int    `json:"samplesPerNode" is:"min=1,max=1073741824"` // of a step, for each active node; a multiple of microBatch
	LearningRate   string `json:"learningRate" is:"one=linear|sqrt"`        // scales with the batch over the job's globalBatch: linear, or sqrt
	WarmUpSteps    int    `json:"warmUpSteps" is:"max=1073741824"`          // over which it goes to another scale; 0: at once
}

const (
	linear = "linear"
	sqrt   = "sqrt"
)

// BatchOf returns the samples of a step with so many active nodes, and what the learning rate is multiplied by.
func (j *Job) BatchOf(nodes int) (globalBatch int, learningRateScale float64) {
	if j.BatchRule == nil {
		return j.GlobalBatch, 1
	}
	globalBatch = nodes * j.BatchRule.SamplesPerNode
	learningRateScale = float64(globalBatch) / float64(j.GlobalBatch)
	if j.BatchRule.LearningRate == sqrt {
		learningRateScale = math.Sqrt(learningRateScale)
	}
	return globalBatch, learningRateScale
}

// IsTimed reports whether the job says how long its layers take.
func (j *Job) IsTimed() bool {
	return slices.ContainsFunc(j.Layers, func(layer LayerProfile) bool { return layer.ForwardSeconds+layer.BackwardSeconds > 0 })
}

// Unchanged reports whether the scripts of the job know nothing of their agents (reknit agent run --unchanged). They keep the state
// themselves, in their own checkpoints, and nobody knows their steps. Agents hold a byte in its place, the same at each step.
func (j *Job) Unchanged() bool {
	return j.Kind == DataParallel && len(j.Layers) == 1 && j.Layers[0].StateBytes() == 1
}

// MicroBatchSeconds returns how long a micro-batch is said to take on a node that trains some layers under a plan: those of
// its stage or, where the job is no pipeline, all. All layers take a second together, each as long, if the job says nothing.
func (j *Job) MicroBatchSeconds(stage Range) float64 {
	if j.Kind == DataParallel || j.Kind == Sharded {
		stage = Range{First: 0, End: len(j.Layers)}
	}
	if !j.IsTimed() {
		return float64(stage.Count()) / float64(len(j.Layers))
	}
	seconds := 0.0
	for _, layer := range j.Layers[stage.First:stage.End] {
		seconds += layer.ForwardSeconds + layer.BackwardSeconds
	}
	return seconds
}

// Bounds is an inclusive range; a zero end is open.
type Bounds struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// LayerProfile is the cost of one layer for one micro-batch. A job may leave all seconds out: all layers together count as
// one second then, each as long, until nodes tell what they measured (node.profiled).
type LayerProfile struct {
	ParameterBytes  int64   `json:"parameterBytes" is:"max=281474976710656"`
	OptimizerBytes  int64   `json:"optimizerBytes" is:"max=281474976710656"`
	GradientBytes   int64   `json:"gradientBytes" is:"max=281474976710656"`
	ActivationBytes int64   `json:"activationBytes" is:"max=281474976710656"` // kept from forward to backward
	OutputBytes     int64   `json:"outputBytes" is:"max=281474976710656"`     // sent to the next stage
	ForwardSeconds  float64 `json:"forwardSeconds,omitempty" is:"min=0,max=1e6"`
	BackwardSeconds float64 `json:"backwardSeconds,omitempty" is:"min=0,max=1e6"`
}

// StateBytes returns what moves when the layer moves: parameters and optimizer state.
func (l LayerProfile) StateBytes() int64 { return l.ParameterBytes + l.OptimizerBytes }

// LeastNodes returns how many nodes a plan needs at least.
func (j *Job) LeastNodes() int { return max(1, j.Pipelines.Min) * max(1, j.Stages.Min) }

// Validate names the first field that is wrong and what was expected.
func (j *Job) Validate() error {
	c := within(j)
	c.nested("", j.rules())
	return c.err
}

// rules checks what the tags of a job's fields cannot say.
func (j *Job) rules() error {
	const rule = "job"
	var c check
	if j.MicroBatch < 1 || j.GlobalBatch < 1 {
		return nil // its limits say so
	}
	c.rule(rule, j.GlobalBatch%j.MicroBatch == 0, "microBatch", "a divisor of globalBatch", j.MicroBatch)
	c.microBatches("globalBatch", j.GlobalBatch, j.MicroBatch)
	c.bounds("pipelines", j.Pipelines)
	c.bounds("stages", j.Stages)
	// a plan of fewer nodes would be waited for without end
	c.rule(rule, j.Stages.Min <= len(j.Layers), "stages", fmt.Sprintf("a min of at most the %d layers", len(j.Layers)), j.Stages)
	micro := j.GlobalBatch / j.MicroBatch
	c.rule(rule, j.BatchRule != nil || j.Pipelines.Min <= micro, "pipelines",
		fmt.Sprintf("a min of at most the %d micro-batches", micro), j.Pipelines)
	for i, layer := range j.Layers {
		c.rule(rule, layer.StateBytes() >= 1, fmt.Sprintf("layers[%d].parameterBytes", i),
			"state to move, 1 byte at least: a layer without belongs to its neighbour", layer.ParameterBytes)
	}
	c.partitions(j)
	if j.Kind == DataParallel {
		c.rule(rule, j.Stages.Min <= 1, "stages", "one at most of a data-parallel job", j.Stages)
		c.rule(rule, j.Pipelines.Max == 0, "pipelines", "no max of a data-parallel job: every node is one", j.Pipelines)
	}
	c.rule(rule, j.Kind != Sharded || j.OptimizerPartitions == 0, "optimizerPartitions",
		"none of a sharded job: stages are its shards", j.OptimizerPartitions)
	c.rule(rule, j.Data != LocalData || j.Kind == DataParallel, "data", "local of a data-parallel job only", j.Data)
	c.tied(j.Tied, len(j.Layers))
	if j.BatchRule != nil {
		c.rule(rule, j.BatchRule.SamplesPerNode%j.MicroBatch == 0, "batchRule.samplesPerNode",
			fmt.Sprintf("a multiple of microBatch %d", j.MicroBatch), j.BatchRule.SamplesPerNode)
		c.microBatches("batchRule.samplesPerNode", j.BatchRule.SamplesPerNode, j.MicroBatch)
	}
	return c.err
}

// microBatches checks how many micro-batches some samples are.
func (c *check) microBatches(field string, samples, microBatch int) {
	c.rule("job", samples/microBatch <= MostMicroBatches, field,
		fmt.Sprintf("at most %d micro-batches of %d samples", MostMicroBatches, microBatch), samples/microBatch)
}

// tied checks runs of layers.
func (c *check) tied(runs []Range, layers int) {
	next := 0
	for i, run := range runs {
		c.rule("job", run.First >= next && run.Count() >= 2 && run.End <= layers, fmt.Sprintf("tied[%d]", i),
			fmt.Sprintf("two layers or more within %d to %d, after the run before", next, layers), run)
		next = run.End
	}
}
