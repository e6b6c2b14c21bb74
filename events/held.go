package events

import "fmt"

// HeldStep is a step in which trainers ended one after the other. It is given to nobody before a user says what becomes of it.
type HeldStep struct {
	Hold    int      `json:"hold" is:"min=1"`                 // which of the cluster's held steps it is, counted from one on
	Step    uint64   `json:"step"`                            // the one after so many completed steps
	Samples Samples  `json:"samples"`                         // that it would train
	Died    []string `json:"died" is:"count=1..8,each=token"` // nodes whose trainers ended in it, the first of them
}

// MostDied is how many nodes a held step names.
const MostDied = 8

// Samples are some in a row of the endless run of the data.
type Samples struct {
	First uint64 `json:"first"` // position
	Count int    `json:"count" is:"min=1"`
}

// End returns the position behind the last.
func (s Samples) End() uint64 { return s.First + uint64(s.Count) }

func (s Samples) String() string { return fmt.Sprintf("samples %d to %d", s.First, s.End()-1) }

// ReleaseRequest asks that a held step is tried again, or that its samples are passed over. It names the hold, so that one that comes twice
// or late has no effect on another one.
type ReleaseRequest struct {
	Hold   int    `json:"hold" is:"min=1"`
	Step   uint64 `json:"step"`
	Skip   bool   `json:"skip"` // its samples are trained in no step
	Reason string `json:"reason" is:"reason"`
}

// ReleaseRefusal tells that a step is not released.
type ReleaseRefusal struct {
	Hold   int    `json:"hold" is:"min=1"`
	Step   uint64 `json:"step"`
	Reason string `json:"reason" is:"reason"`
}

// Release says that a step is held no longer.
type Release struct {
	Hold    int     `json:"hold" is:"min=1"`
	Step    uint64  `json:"step"`
	Samples Samples `json:"samples"` // that it would have trained
	Skip    bool    `json:"skip"`    // they are trained in no step: the plan that goes on from it says so (data.skipped)
	Reason  string  `json:"reason" is:"reason"`
}

// String says what becomes of the step, and who asked.
func (r Release) String() string {
	says := fmt.Sprintf("step %d is tried again, with %v", r.Step, r.Samples)
	if r.Skip {
		says = fmt.Sprintf("%v are passed over: step %d trains what comes behind them", r.Samples, r.Step)
	}
	return fmt.Sprintf("%s (%s)", says, r.Reason)
}

func (r *ReleaseRequest) Validate() error { return within(r).err }

func (r *ReleaseRefusal) Validate() error { return within(r).err }

func (r *Release) Validate() error { return within(r).err }
