package events

// Profile is what a node measured while training.
type Profile struct {
	Node string `json:"node" is:"token"`
	// SpeedFactor is measured over declared speed of the node's layers: 2 means twice as fast as the job says.
	SpeedFactor float64 `json:"speedFactor" is:"min=1e-9,max=1e9"`
	Step        uint64  `json:"step"`
	// Generation is that of the plan under which it was measured; zero: not known.
	Generation uint64 `json:"generation,omitempty"`
	// MicroBatchSeconds is how long a micro-batch took in all layers of the node; zero: as speedFactor says.
	MicroBatchSeconds float64 `json:"microBatchSeconds,omitempty" is:"min=0,max=1e9"`
	// FirstLayer is the number of the first of Layers.
	FirstLayer int `json:"firstLayer,omitempty" is:"max=4096"`
	// Layers are what a micro-batch took in each layer that the node trained, one after the other. Left out: not measured, or
	// as told before.
	Layers []LayerCost `json:"layers,omitempty" is:"count=0..4096"`
	// PeakBytes is the most memory that the node had in use, and OtherBytes is how much of it is neither state nor gradients
	// nor activations of Layers; zero: not measured.
	PeakBytes  int64 `json:"peakBytes,omitempty" is:"max=281474976710656"`
	OtherBytes int64 `json:"otherBytes,omitempty" is:"max=281474976710656"`
}

// LayerCost is what a node measured of one layer, for one micro-batch.
type LayerCost struct {
	ForwardSeconds  float64 `json:"forwardSeconds" is:"min=0,max=1e6"`
	BackwardSeconds float64 `json:"backwardSeconds" is:"min=0,max=1e6"`
	ActivationBytes int64   `json:"activationBytes,omitempty" is:"max=281474976710656"` // kept from forward to backward; zero: not measured
}

// Pace is how long the steps of a plan take, as a node saw that trains under it. Steps end for all at one time, so that
// the first few nodes of a plan tell it for all (Plan.Paced).
type Pace struct {
	Node       string `json:"node" is:"token"`
	Generation uint64 `json:"generation" is:"min=1"`
	Step       uint64 `json:"step"`
	// StepSeconds is the median of the last steps, and Steps is how many there were.
	StepSeconds float64 `json:"stepSeconds" is:"min=1e-9,max=1e6"`
	Steps       int     `json:"steps" is:"min=1"`
	// ComputeSeconds is how long the node passed micro-batches forward and backward in such a step, without what it waited for
	// others: the median, too; zero: not known.
	ComputeSeconds float64 `json:"computeSeconds,omitempty" is:"min=0,max=1e6"`
	// Processors is how many the node's host has; zero: not known.
	Processors int `json:"processors,omitempty"`
}

// MostPacers is how many nodes tell how long the steps of a plan take: of three one may lie or err.
const MostPacers = 3

// MostWitnesses is how many nodes tell what one layer takes: of five two may lie or err.
const MostWitnesses = 5

func (p *Profile) Validate() error {
	c := within(p)
	c.rule("profile", p.OtherBytes <= p.PeakBytes, "otherBytes", "at most peakBytes", p.OtherBytes)
	return c.err
}

// The bounds of what is believed of a node's speed.
const slowestSpeed, fastestSpeed = 1e-9, 1e9

// Speed returns how fast a node is that trains some layers, beside what a job says of them.
func (p *Profile) Speed(job *Job, stage Range) float64 {
	if p.MicroBatchSeconds == 0 || stage.Count() == 0 || stage.End > len(job.Layers) {
		return p.SpeedFactor
	}
	return min(max(job.MicroBatchSeconds(stage)/p.MicroBatchSeconds, slowestSpeed), fastestSpeed)
}

func (p *Pace) Validate() error { return within(p).err }

// Paced reports whether a node is one of the first MostPacers that train under the plan, which tell how long its steps take.
func (p *Plan) Paced(node string) bool {
	count := 0
	for _, pipeline := range p.Pipelines {
		for _, stage := range pipeline.Stages {
			if _, lives := p.Member(stage.Node); !lives {
				continue // others stand in for it
			}
			if stage.Node == node {
				return true
			}
			if count++; count == MostPacers {
				return false
			}
		}
	}
	return false
}

// Witnesses reports whether a node is one of the first MostWitnesses that train its first layer: they tell what layers take.
// O(nodes).
func (p *Plan) Witnesses(node string) bool {
	own, trains := p.Holds(node)
	before := 0
	for _, pipeline := range p.Pipelines {
		for _, stage := range pipeline.Stages {
			if stage.Node == node {
				return trains && before < MostWitnesses
			}
			if stage.Layers.First <= own.First && own.First < stage.Layers.End {
				before++
			}
		}
	}
	return false
}
