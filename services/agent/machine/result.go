package machine

import "github.com/reknit/reknit/events"

// Result is how a task ended.
type Result interface{ task() Task }

type (
	// Measured ends Measure.
	Measured struct {
		Task         Task
		Measurements []events.Measurement
		Unreached    map[string]string // by peer: why its link could not be measured
	}

	// Told ends Tell: holdings, or claims where they were asked for.
	Told struct {
		Task      Task
		Holdings  []events.Holding
		Claims    []events.Claim
		Snapshots []events.Snapshot // that can be read, the newest first
	}

	// Adopted ends Adopt.
	Adopted struct{ Task Task }

	// CaughtUp ends PreCopy: the receiver has what it can have while training goes on.
	CaughtUp struct {
		Task    Task
		Step    uint64  // completed steps that its units contain
		Behind  uint64  // steps that its givers had completed beyond that
		Bytes   int64   // that came
		Seconds float64 // since PreCopy
		Reason  string  // why no pre-copy is made; empty where one is
	}

	// Exported ends Export: the unit's manifest. Failed follows if the unit's parts cannot be stored after that.
	Exported struct {
		Task   Task
		Digest string
		Bytes  int64
		Parts  []events.Part
	}

	// Fetched ends Fetch: the unit was verified and imported.
	Fetched struct {
		Task    Task
		Seconds float64           // since Open
		Sources []events.Received // of all that came in this exchange so far
	}

	// Failed ends a task that cannot be done.
	Failed struct {
		Task   Task
		Reason string
		Hub    bool     // the hub is at fault, and not this node
		Givers []string // by whose offer or bytes what came is not what was offered: one of them may be at fault
	}
)

func (r Measured) task() Task { return r.Task }
func (r Told) task() Task     { return r.Task }
func (r Adopted) task() Task  { return r.Task }
func (r CaughtUp) task() Task { return r.Task }
func (r Exported) task() Task { return r.Task }
func (r Fetched) task() Task  { return r.Task }
func (r Failed) task() Task   { return r.Task }
