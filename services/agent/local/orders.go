package local

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/internal/host"
)

// Joining is the body of join: what a trainer is to be a member with. README.md says what each field means.
type Joining struct {
	Units       []int64         `json:"units"`
	Digest      string          `json:"digest"`
	FirstState  string          `json:"firstState"` // any text that is equal where first states are; empty: digest says it
	Batch       int             `json:"batch"`
	MicroBatch  int             `json:"microBatch"`
	State       string          `json:"state"`
	Lazy        bool            `json:"lazy"`
	TotalSteps  uint64          `json:"totalSteps"`
	MemoryBytes int64           `json:"memoryBytes"`
	Samples     int64           `json:"samples"`
	Node        string          `json:"node"`
	Job         json.RawMessage `json:"job"`
	Dir         string          `json:"dir"`
	Mistaken    string          `json:"mistaken"` // what its client found wrong with the trainer, which does not join, nor is started again
}

// Joined answers a join.
type Joined struct {
	Session string `json:"session"`
	Node    string `json:"node"`
	Dir     string `json:"dir"`
}

// Report is the body of next: how the order before went.
type Report struct {
	Order  uint64 `json:"order"` // its id; 0 before the first
	Done   uint64 `json:"done"`
	Ready  bool   `json:"ready"`
	Broken string `json:"broken"`

	// Outvoted are nodes that would have applied other things than most, and Tied says that there is no majority.
	Outvoted []string `json:"outvoted"`
	Tied     bool     `json:"tied"`

	Seconds float64 `json:"seconds"`
	Loss    float64 `json:"loss"`
	Error   string  `json:"error"`

	// LossNotFinite says that the loss is no number or infinite, which JSON cannot.
	LossNotFinite bool `json:"lossNotFinite"`

	// MicroBatches were passed forward and backward in the step, in so many ComputeSeconds without waiting for others.
	MicroBatches   int     `json:"microBatches"`
	ComputeSeconds float64 `json:"computeSeconds"`

	// Layers are what a micro-batch took in each layer of this trainer, and PeakBytes and OtherBytes are of its memory, as in
	// node.profiled: once measured.
	Layers     []events.LayerCost `json:"layers"`
	PeakBytes  int64              `json:"peakBytes"`
	OtherBytes int64              `json:"otherBytes"`
}

// validate names the field that is not as expected.
func (r *Report) validate() error {
	measured := events.Profile{Node: "n", SpeedFactor: 1, Layers: r.Layers, PeakBytes: r.PeakBytes, OtherBytes: r.OtherBytes}
	if err := measured.Validate(); err != nil {
		return err
	}
	broken := events.BrokenStep{Node: "n", Incarnation: "n", Generation: 1, Reason: "-", Outvoted: r.Outvoted, Tied: r.Tied}
	if err := broken.Validate(); err != nil {
		return err
	}
	pace := events.Pace{Node: "n", Generation: 1, StepSeconds: 1, Steps: 1, ComputeSeconds: r.ComputeSeconds}
	return pace.Validate()
}

// Order is what a trainer does next. Which fields are set follows from its kind.
type Order struct {
	Order  string `json:"order"`
	ID     uint64 `json:"id"`
	Reason string `json:"reason,omitempty"` // of left

	Step  uint64 `json:"step,omitempty"`  // of apply, give and adopt
	Units []int  `json:"units,omitempty"` // of give
	Took  []int  `json:"took,omitempty"`  // of adopt

	*Training // of step
}

// The kinds of orders.
const (
	orderStep     = "step"
	orderApply    = "apply"
	orderGive     = "give"
	orderAdopt    = "adopt"
	orderFinished = "finished"
	orderLeft     = "left"
)

// Training is this trainer's part of a step.
type Training struct {
	Index             uint64       `json:"index"`
	Generation        uint64       `json:"generation"`
	Switched          bool         `json:"switched"`
	Resume            uint64       `json:"resume"`
	Rank              int          `json:"rank"`
	World             int          `json:"world"`
	Nodes             []string     `json:"nodes"`
	Samples           [][2]int     `json:"samples"`
	Batch             int          `json:"batch"`
	MicroBatch        int          `json:"microBatch"`
	Consumed          uint64       `json:"consumed"`
	LearningRateScale float64      `json:"learningRateScale"`
	Weight            float64      `json:"weight"`
	Plan              *events.Plan `json:"plan,omitempty"`
}

// trainingOf returns a node's part of the step after so many completed ones.
func trainingOf(plan *events.Plan, node string, index uint64, switched bool) *Training {
	training := &Training{
		Index: index, Generation: plan.Generation, Switched: switched, Resume: plan.ResumeStep,
		Batch: plan.Data.GlobalBatch, MicroBatch: plan.Data.MicroBatch, LearningRateScale: plan.ScaleAt(index),
		Consumed: plan.SamplesAt(index),
		Samples:  samplesOf(plan, node), Weight: plan.WeightOf(node),
	}
	training.Nodes = plan.Ranks()
	training.Rank = slices.Index(training.Nodes, node)
	training.World = len(training.Nodes)
	if switched {
		training.Plan = plan
	}
	return training
}

// samplesOf returns which samples of a step's global batch a node trains.
func samplesOf(plan *events.Plan, node string) [][2]int {
	samples := [][2]int{}
	for _, run := range plan.SamplesOf(node) {
		samples = append(samples, [2]int{run.First, run.End})
	}
	return samples
}

const (
	stateMapped = "mapped"
	stateCopied = "copied"
)

// complete fills in what was left out, and names the field that is not as expected. The node keeps so many copies of its
// state in memory for snapshots.
func (j *Joining) complete(copies int) (events.Job, error) {
	if j.Mistaken != "" {
		return events.Job{}, errors.New(events.Brief(j.Mistaken))
	}
	if len(j.Units) == 0 {
		return events.Job{}, errors.New("units: expected the bytes of one at least")
	}
	var bytes int64
	for i, unit := range j.Units {
		if unit < 1 {
			return events.Job{}, fmt.Errorf("units[%d]: expected at least 1 byte, got %d", i, unit)
		}
		bytes += unit
	}
	if j.State == "" {
		j.State = stateMapped
	}
	if j.State != stateMapped && j.State != stateCopied {
		return events.Job{}, fmt.Errorf("state: expected %s or %s, got %.40q", stateMapped, stateCopied, j.State)
	}
	if j.MemoryBytes == 0 {
		j.MemoryBytes = host.MemoryBytes()
	}
	if j.MemoryBytes == 0 { // what there is is not known: parameters, two moments, a gradient, as much again, and snapshots
		j.MemoryBytes = int64(8+copies) * bytes
	}
	return j.job()
}

// job returns what the cluster is told: of a job that says nothing else, a layer a unit.
func (j *Joining) job() (events.Job, error) {
	var job events.Job
	if len(j.Job) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(j.Job))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&job); err != nil {
			return job, fmt.Errorf("job: %w", events.Named("job", err))
		}
	}
	job.Digest, job.Steps, job.GlobalBatch, job.MicroBatch = events.Digest([]byte(j.Digest)), j.TotalSteps, j.Batch, j.MicroBatch
	if j.FirstState != "" {
		job.FirstState = events.Digest([]byte(j.FirstState))
	}
	if len(job.Layers) == 0 { // how long they take nobody has to guess
		for _, unit := range j.Units {
			job.Layers = append(job.Layers, events.LayerProfile{
				ParameterBytes: unit - 2*(unit/3), OptimizerBytes: 2 * (unit / 3), GradientBytes: unit / 3, // Adam's
			})
		}
	}
	if units := job.Units(); units != len(j.Units) { // counted: who says nonsense has nothing made for it
		return job, fmt.Errorf("units: expected %d, as job.layers says, got %d", units, len(j.Units))
	}
	return job, nil
}
