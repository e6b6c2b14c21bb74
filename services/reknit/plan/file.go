package plan

// file is what a cluster's file may say. Sizes, rates and times carry their units.
type file struct {
	Cluster             string         `key:"cluster"`
	Nodes               []fileNode     `key:"nodes"`
	Links               *fileLinks     `key:"links,optional"`
	Model               fileModel      `key:"model"`
	GlobalBatch         int            `key:"globalBatch"`
	MicroBatch          int            `key:"microBatch"`
	Pipelines           fileBounds     `key:"pipelines,optional"`
	Stages              fileBounds     `key:"stages,optional"`
	TimeBetweenFailures span           `key:"timeBetweenFailures"` // of any node
	MinReplicas         *int           `key:"minReplicas,optional"`
	SwitchTime          *span          `key:"switchTime,optional"`
	Current             []filePipeline `key:"current,optional"`
	Failed              []string       `key:"failed,optional"`
	Leaving             []string       `key:"leaving,optional"`
	Joining             []string       `key:"joining,optional"`
}

type fileNode struct {
	Node   string   `key:"node"`
	Memory size     `key:"memory"`
	Speed  *float64 `key:"speed,optional"` // of a node on which the model's times were measured: 1
}

type fileLinks struct {
	Default      *fileQuality `key:"default,optional"`
	Measured     []fileLink   `key:"measured,optional"`
	Disconnected [][]string   `key:"disconnected,optional"`
}

type fileQuality struct {
	RoundTrip span `key:"roundTrip"`
	Bandwidth rate `key:"bandwidth"`
}

// fileLink is measured between two nodes, or from one to the other only.
type fileLink struct {
	Between   []string `key:"between,optional"`
	From      string   `key:"from,optional"`
	To        string   `key:"to,optional"`
	RoundTrip span     `key:"roundTrip"`
	Bandwidth rate     `key:"bandwidth"`
}

// fileModel is so many layers of one profile, or a list of profiles.
type fileModel struct {
	Layers   int           `key:"layers,optional"`
	Profile  *fileProfile  `key:"profile,optional"`
	Profiles []fileProfile `key:"profiles,optional"`
}

// fileProfile is what a layer costs for one micro-batch.
type fileProfile struct {
	Parameters  size `key:"parameters"`
	Optimizer   size `key:"optimizer"`
	Gradients   size `key:"gradients"`
	Activations size `key:"activations"`
	Output      size `key:"output"`
	Forward     span `key:"forward"`
	Backward    span `key:"backward"`
}

type fileBounds struct {
	Min int `key:"min,optional"`
	Max int `key:"max,optional"`
}

type filePipeline struct {
	MicroBatches int         `key:"microBatches"`
	Stages       []fileStage `key:"stages"`
}

type fileStage struct {
	Node   string    `key:"node"`
	Layers fileRange `key:"layers"`
}

// fileRange is half-open, as in a plan document.
type fileRange struct {
	First int `key:"first"`
	End   int `key:"end"`
}
