package events

import "fmt"

// Join asks for a place in training. The same node with another incarnation is a restarted process: it holds
// nothing any more.
type Join struct {
	Node        string `json:"node"`
	Incarnation string `json:"incarnation"` // drawn anew at each start of the process
	Address     string `json:"address"`     // host:port where other trainers reach its data plane
	// ShardAddress is host:port of the node's own shard store, a NATS server; without one its shards go through the hub's.
	ShardAddress string `json:"shardAddress,omitempty"`
	PreCopies    bool   `json:"preCopies,omitempty"` // it can give and take layers while training goes on, as PreCopyRequest tells
	MemoryBytes  int64  `json:"memoryBytes"`         // what training may use
	Job          Job    `json:"job"`                 // what it came to train; must equal the cluster's
}

// Job is what is trained. Every member carries the same one.
type Job struct {
	Digest      string         `json:"digest"`      // of all that determines the result: model, data, seed
	Layers      []LayerProfile `json:"layers"`      // in order
	GlobalBatch int            `json:"globalBatch"` // samples a step, whatever the plan
	MicroBatch  int            `json:"microBatch"`  // samples a micro-batch; divides the global batch
	Pipelines   Bounds         `json:"pipelines"`   // data-parallel degree; zero leaves it to the planner
	Stages      Bounds         `json:"stages"`      // pipeline length; zero leaves it to the planner
	// OptimizerPartitions is into how many each layer's optimizer state is cut, of which a pipeline keeps some (ZeRO); zero: every
	// holder of a layer keeps all of it.
	OptimizerPartitions int `json:"optimizerPartitions,omitempty"`
}

// Bounds is an inclusive range; a zero end is open.
type Bounds struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// LayerProfile is the cost of one layer for one micro-batch.
type LayerProfile struct {
	ParameterBytes  int64   `json:"parameterBytes"`
	OptimizerBytes  int64   `json:"optimizerBytes"`
	GradientBytes   int64   `json:"gradientBytes"`
	ActivationBytes int64   `json:"activationBytes"` // kept from forward to backward
	OutputBytes     int64   `json:"outputBytes"`     // sent to the next stage
	ForwardSeconds  float64 `json:"forwardSeconds"`
	BackwardSeconds float64 `json:"backwardSeconds"`
}

// StateBytes returns what moves when the layer moves: parameters and optimizer state.
func (l LayerProfile) StateBytes() int64 { return l.ParameterBytes + l.OptimizerBytes }

// Leave asks to go. Training must not need the node after the deadline; zero is no deadline.
type Leave struct {
	Node            string  `json:"node"`
	Reason          string  `json:"reason"`
	DeadlineSeconds float64 `json:"deadlineSeconds"`
}

// Refusal answers a request that cannot be granted, or ends a membership.
type Refusal struct {
	Node string `json:"node"` // who asked
	// What is refused: the kind of the change, or "membership" for a node that was given up.
	Refused     string `json:"refused"`
	Incarnation string `json:"incarnation,omitempty"` // of the node, where its membership ends or does not begin
	Reason      string `json:"reason"`
	// Astray tells that what the node holds is not what the other holders of its units hold: none of it may be claimed.
	Astray bool `json:"astray,omitempty"`
}

// RefusedMembership is what a node is refused that was given up: it may ask to join again.
const RefusedMembership = "membership"

func (j *Join) Validate() error {
	var c check
	c.token("node", j.Node)
	c.token("incarnation", j.Incarnation)
	c.that(j.Address != "" && len(j.Address) <= 256, "address", "host:port", j.Address)
	c.that(len(j.ShardAddress) <= 256, "shardAddress", "host:port", j.ShardAddress)
	c.atLeast("memoryBytes", j.MemoryBytes, 1)
	c.nested("job", j.Job.validate())
	return c.err
}

func (j *Job) validate() error {
	var c check
	c.digest("digest", j.Digest)
	c.that(len(j.Layers) >= 1 && len(j.Layers) <= MostUnits, "layers", fmt.Sprintf("1 to %d layers", MostUnits), len(j.Layers))
	c.atLeast("globalBatch", int64(j.GlobalBatch), 1)
	c.atLeast("microBatch", int64(j.MicroBatch), 1)
	if c.err == nil {
		c.that(j.GlobalBatch%j.MicroBatch == 0, "microBatch", "a divisor of globalBatch", j.MicroBatch)
	}
	c.bounds("pipelines", j.Pipelines)
	c.bounds("stages", j.Stages)
	c.each(len(j.Layers), "layers", func(i int) error { return j.Layers[i].validate() })
	if c.err == nil {
		c.err = j.validatePartitions()
	}
	return c.err
}

func (l LayerProfile) validate() error {
	var c check
	c.layerBytes("parameterBytes", l.ParameterBytes)
	c.layerBytes("optimizerBytes", l.OptimizerBytes)
	c.layerBytes("gradientBytes", l.GradientBytes)
	c.layerBytes("activationBytes", l.ActivationBytes)
	c.layerBytes("outputBytes", l.OutputBytes)
	c.amount("forwardSeconds", l.ForwardSeconds)
	c.amount("backwardSeconds", l.BackwardSeconds)
	return c.err
}

func (l *Leave) Validate() error {
	var c check
	c.token("node", l.Node)
	c.reason(l.Reason)
	c.amount("deadlineSeconds", l.DeadlineSeconds)
	return c.err
}

func (r *Refusal) Validate() error {
	var c check
	c.token("node", r.Node)
	c.that(r.Refused == RefusedMembership || changeKinds[r.Refused], "refused", "membership or a kind of change", r.Refused)
	c.reason(r.Reason)
	return c.err
}
