package events

// Start says that layers begin to move while training goes on. Receivers ask the givers for them and for what each step
// changes in them, on FollowSubject.
type Start struct {
	Negotiation string `json:"negotiation"`
	Plan        Plan   `json:"plan"` // as it will be; its resume step is not known yet
}

// Followed says that a receiver has what it can have before all stop.
type Followed struct {
	Negotiation string  `json:"negotiation"`
	Node        string  `json:"node"`
	Step        uint64  `json:"step"`             // completed steps that its layers contain
	Behind      uint64  `json:"behind"`           // steps that its givers had completed beyond that, when it last asked
	Bytes       int64   `json:"bytes"`            // that came
	Seconds     float64 `json:"seconds"`          // since the start
	Reason      string  `json:"reason,omitempty"` // why it does not follow: its layers come where all stand
}

// Follow is a request on FollowSubject: a receiver asks a giver for the layers that it is to have of it.
type Follow struct {
	Negotiation string `json:"negotiation"`
	To          string `json:"to"`              // the receiver
	Step        uint64 `json:"step"`            // completed steps
	Whole       bool   `json:"whole,omitempty"` // the layers at that step; else what the step before it changed in them
}

// Following is the answer to Follow. The giver waits for the step for a second; without layers it has not come to it yet.
type Following struct {
	Newest uint64          `json:"newest"`         // completed steps of the giver
	Gone   bool            `json:"gone,omitempty"` // the giver does not have that step, and will not
	Layers []FollowedLayer `json:"layers"`
}

// FollowedLayer is the manifest of a layer, or of what a step changed in it.
type FollowedLayer struct {
	Layer int    `json:"layer"` // a row of the state, where that is partitioned
	Bytes int64  `json:"bytes"` // in all
	Parts []Part `json:"parts"` // those that this giver puts into its store, or the hub's
}

func (s *Start) Validate() error {
	var c check
	c.token("negotiation", s.Negotiation)
	c.nested("plan", s.Plan.Validate())
	return c.err
}

func (f *Followed) Validate() error {
	var c check
	c.token("negotiation", f.Negotiation)
	c.token("node", f.Node)
	c.atLeast("bytes", f.Bytes, 0)
	c.amount("seconds", f.Seconds)
	c.reason(f.Reason)
	return c.err
}

func (f *Following) Validate() error {
	var c check
	c.each(len(f.Layers), "layers", func(i int) error {
		var c check
		c.atLeast("layer", int64(f.Layers[i].Layer), 0)
		c.atLeast("bytes", f.Layers[i].Bytes, 1)
		c.parts(f.Layers[i].Parts, f.Layers[i].Bytes)
		return c.err
	})
	return c.err
}
