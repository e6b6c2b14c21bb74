package events

import "fmt"

// PreCopyStart says that layers begin to move while training goes on. Receivers ask the givers for them and for what
// each step changes in them, on PreCopySubject.
type PreCopyStart struct {
	Negotiation string `json:"negotiation" is:"token"`
	Plan        Plan   `json:"plan"` // as it will be; its resume step is not known yet
}

// CaughtUp says that a receiver has what it can have before all stop.
type CaughtUp struct {
	Negotiation string  `json:"negotiation" is:"token"`
	Node        string  `json:"node" is:"token"`
	Step        uint64  `json:"step"`                         // completed steps that its layers contain
	Behind      uint64  `json:"behind"`                       // steps that its givers had completed beyond that, when it last asked
	Bytes       int64   `json:"bytes"`                        // that came
	Seconds     float64 `json:"seconds" is:"min=0,max=1e9"`   // since the start
	Reason      string  `json:"reason,omitempty" is:"reason"` // why it does not catch up: its units move while all are paused
}

// PreCopyRequest is a request on PreCopySubject: a receiver asks a giver for the layers that it is to have of it.
type PreCopyRequest struct {
	Negotiation string `json:"negotiation"`
	To          string `json:"to"`              // the receiver
	Step        uint64 `json:"step"`            // completed steps
	Whole       bool   `json:"whole,omitempty"` // the layers at that step; else what the step before it changed in them
}

// PreCopyReply is the answer to PreCopyRequest. The giver waits for the step for a second; without layers it has not
// come to it yet.
type PreCopyReply struct {
	Newest uint64      `json:"newest"`         // completed steps of the giver
	Gone   bool        `json:"gone,omitempty"` // the giver does not have that step, and will not
	Units  []PreCopied `json:"units"`
}

// PreCopied is the manifest of a unit, or of what a step changed in it.
type PreCopied struct {
	Unit  int    `json:"unit" is:"max=4095"`
	Bytes int64  `json:"bytes" is:"min=1"` // in all
	Parts []Part `json:"parts"`            // those that this giver puts into its own store
}

func (s *PreCopyStart) Validate() error {
	c := within(s)
	c.nested("plan", s.Plan.rules())
	return c.err
}

func (f *CaughtUp) Validate() error { return within(f).err }

func (f *PreCopyReply) Validate() error {
	c := within(f)
	for i, unit := range f.Units {
		c.parts(fmt.Sprintf("units[%d].parts", i), unit.Parts, unit.Bytes)
	}
	return c.err
}
