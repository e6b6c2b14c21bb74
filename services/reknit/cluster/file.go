package cluster

// File is what a cluster's file says. Sizes, rates and times carry their units.
type File struct {
	Cluster             string     `key:"cluster"`
	Nodes               []Node     `key:"nodes"`
	Links               *Links     `key:"links,optional"`
	Model               Model      `key:"model"`
	GlobalBatch         int        `key:"globalBatch"`
	MicroBatch          int        `key:"microBatch"`
	Kind                string     `key:"kind,optional"`
	Replicas            string     `key:"replicas,optional"`
	Tied                []Range    `key:"tied,optional"`
	BatchRule           *BatchRule `key:"batchRule,optional"`
	Pipelines           Bounds     `key:"pipelines,optional"`
	Stages              Bounds     `key:"stages,optional"`
	TimeBetweenFailures Span       `key:"timeBetweenFailures"`      // of any node
	TimeUntilReturn     Span       `key:"timeUntilReturn,optional"` // of the failed nodes
	MinReplicas         *int       `key:"minReplicas,optional"`
	SwitchTime          *Span      `key:"switchTime,optional"`
	Slowdown            *float64   `key:"slowdown,optional"`
	Restart             *Span      `key:"restart,optional"` // what moves state pays for besides its transfer
	Current             []Pipeline `key:"current,optional"`
	Failed              []string   `key:"failed,optional"`
	Leaving             []string   `key:"leaving,optional"`
	Joining             []string   `key:"joining,optional"`
}

// BatchRule lets the batch follow the nodes.
type BatchRule struct {
	SamplesPerNode int    `key:"samplesPerNode"`
	LearningRate   string `key:"learningRate"`
	WarmUpSteps    int    `key:"warmUpSteps,optional"`
}

// Node is a machine that trains.
type Node struct {
	Node   string   `key:"node"`
	Memory Size     `key:"memory"`
	Speed  *float64 `key:"speed,optional"` // of a node on which the model's times were measured: 1
	Site   string   `key:"site,optional"`
}

// Links is what is known of the network.
type Links struct {
	Default      *Quality   `key:"default,optional"`
	Measured     []Link     `key:"measured,optional"`
	Disconnected [][]string `key:"disconnected,optional"`
}

// Quality is how good a link is in one direction.
type Quality struct {
	RoundTrip   Span     `key:"roundTrip"`
	Bandwidth   Rate     `key:"bandwidth"`
	Uncertainty *float64 `key:"uncertainty,optional"` // share by which either may be off; exact where left out
}

// Link is measured between two nodes, or from one to the other only.
type Link struct {
	Between     []string `key:"between,optional"`
	From        string   `key:"from,optional"`
	To          string   `key:"to,optional"`
	RoundTrip   Span     `key:"roundTrip"`
	Bandwidth   Rate     `key:"bandwidth"`
	Uncertainty *float64 `key:"uncertainty,optional"`
}

// Model is so many layers of one profile, or a list of profiles.
type Model struct {
	Layers              int       `key:"layers,optional"`
	Profile             *Profile  `key:"profile,optional"`
	Profiles            []Profile `key:"profiles,optional"`
	OptimizerPartitions int       `key:"optimizerPartitions,optional"` // of each layer's optimizer state; 0: whole
}

// Profile is what a layer costs for one micro-batch.
type Profile struct {
	Parameters  Size  `key:"parameters"`
	Optimizer   Size  `key:"optimizer"`
	Gradients   Size  `key:"gradients"`
	Activations Size  `key:"activations"`
	Output      Size  `key:"output"`
	Forward     *Span `key:"forward,optional"` // both times of all layers, or none
	Backward    *Span `key:"backward,optional"`
}

// Bounds are open where 0.
type Bounds struct {
	Min int `key:"min,optional"`
	Max int `key:"max,optional"`
}

// Pipeline is a chain of stages that train its micro-batches.
type Pipeline struct {
	MicroBatches int     `key:"microBatches"`
	Stages       []Stage `key:"stages"`
	Partitions   []int   `key:"partitions,optional"` // of the optimizer state, that its nodes keep
}

// Stage is a node and the layers it trains.
type Stage struct {
	Node   string `key:"node"`
	Layers Range  `key:"layers"`
}

// Range is half-open, as in a plan document.
type Range struct {
	First int `key:"first"`
	End   int `key:"end"`
}
