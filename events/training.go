package events

import "fmt"

// BrokenStep says that a node's step cannot end, though everybody may live: a collective broke that cannot be resumed,
// or timed out. The node stands still until a plan comes for which all gave up their step.
type BrokenStep struct {
	Node        string `json:"node" is:"token"`
	Incarnation string `json:"incarnation" is:"token"`
	Generation  uint64 `json:"generation" is:"min=1"` // of the plan under which the step was begun
	Step        uint64 `json:"step"`                  // completed steps: the one that broke comes after so many
	Reason      string `json:"reason" is:"reason"`
	// Outvoted are nodes that would apply other things than most, by what this node saw of all: with other settings, say.
	Outvoted []string `json:"outvoted,omitempty" is:"count=0..256,each=token"`
	Tied     bool     `json:"tied,omitempty"` // nodes would apply different things, and no side is the majority
}

// StepDelay says that others have waited for a node in their step for longer than three usual steps and 2 s take, though its
// heartbeats come. It is said once of a node in a step, and nothing is done about it: the node may evaluate, or hang. A script that
// knows nothing of its agent has no steps: it is said of each of its rests that is longer than usual.
type StepDelay struct {
	Node        string `json:"node" is:"token"`
	Incarnation string `json:"incarnation" is:"token"`
	Generation  uint64 `json:"generation" is:"min=1"` // of the plan under which they train
	Step        uint64 `json:"step"`                  // completed steps of those who wait
	By          string `json:"by" is:"token"`         // who waits longest; the node itself where its agent sees that its script rests
	// Phase is what the node does meanwhile, as in its heartbeats, or between: it is told to train, and its script does something else. It
	// is left out where its agent does not know.
	Phase         string  `json:"phase,omitempty" is:"one=computing|between"`
	WaitedSeconds float64 `json:"waitedSeconds" is:"min=0,max=1e9"`
	UsualSeconds  float64 `json:"usualSeconds" is:"min=0,max=1e9"` // of a step
	Reason        string  `json:"reason" is:"reason"`              // all of that in words
}

// Activation is said by each node after its first step under a plan.
type Activation struct {
	Node       string `json:"node" is:"token"`
	Generation uint64 `json:"generation" is:"min=1"`
	Step       uint64 `json:"step"` // completed steps
	// StallSeconds is the time from the last step completed under the old plan to the first one under the new, less
	// one usual step.
	StallSeconds float64 `json:"stallSeconds" is:"min=0,max=1e9"`
	StallSteps   float64 `json:"stallSteps" is:"min=0,max=1e30"` // the stall in usual steps
	StepSeconds  float64 `json:"stepSeconds" is:"min=0,max=1e9"` // a usual step: the median of the last ones
	// LongestSeconds is the longest time between the ends of two steps of one plan so far, evaluations and saved files included. A
	// node that says it is busy is waited for as its members measured. Left out: not known.
	LongestSeconds float64 `json:"longestSeconds,omitempty" is:"min=0,max=1e9"`
}

// Digests are the digests of the layers a node holds at a step.
type Digests struct {
	Node        string       `json:"node" is:"token"`
	Incarnation string       `json:"incarnation,omitempty" is:"token"` // of the process that trained them; left out by agents of before
	Generation  uint64       `json:"generation"`
	Step        uint64       `json:"step"`
	Final       bool         `json:"final"` // training is complete for this node, which may tell so without units
	Units       []UnitDigest `json:"units"`
}

// JobEnd says that the job is done, because all who train under the plan in force have told that training is complete for
// them. It is told again once a day, with another id and the time of the first. A node that leaves, dies or falls silent afterwards is no
// loss.
type JobEnd struct {
	Generation uint64   `json:"generation" is:"min=1"`         // of the plan in force
	Step       uint64   `json:"step"`                          // completed steps
	Nodes      []string `json:"nodes" is:"count=1,each=token"` // that made the last step, in the order of their names
	// Digest is that of the model: of its units' digests, each ended by a newline. It is left out where not all units' were
	// told, or holders of one told different ones.
	Digest string `json:"digest,omitempty" is:"digest"`
	// Differ are the units of which holders told different digests: they ended with different models.
	Differ []Range `json:"differ,omitempty" is:"each=units"`
}

// StopRequest asks that training stops after a step that all make, with a snapshot of it, to go on from it another time.
type StopRequest struct {
	Reason string `json:"reason" is:"reason"`
}

// StopRefusal tells that training does not stop, and goes on as it was.
type StopRefusal struct {
	Reason string `json:"reason" is:"reason"`
}

// JobStop says that training has stopped after a step of which a snapshot is complete. All processes end, and later joiners
// go on from there. Scripts that know nothing of their agents (Job.Unchanged) go on from their own checkpoints.
type JobStop struct {
	Generation uint64 `json:"generation" is:"min=1"`               // of the plan in force
	Step       uint64 `json:"step"`                                // completed steps
	Tier       string `json:"tier,omitempty" is:"one=disk|remote"` // that has the snapshot; left out: scripts keep their state
	Plan       string `json:"plan" is:"digest"`                    // digest of the plan in force, by which the snapshot is found
	Reason     string `json:"reason" is:"count=0..256"`            // of who asked for it, or of the first node that left
	// Behind are nodes that did not tell in time that they made the step: what their processes end with may be of the step before.
	Behind []string `json:"behind,omitempty" is:"count=0..4096,each=token"`
}

// String tells where training stopped, and from where it goes on.
func (j *JobStop) String() string {
	if j.Tier == "" {
		return "training has stopped, and the scripts keep their own state (--unchanged): they go on from their own checkpoints once " +
			"they are started again by the names that their nodes had"
	}
	return fmt.Sprintf("training has stopped after step %d, of which a snapshot is complete (%s): it goes on from there once the same "+
		"scripts are started again", j.Step, j.Tier)
}

// ResetRequest asks that training begins anew at its first step. Nobody may train then.
type ResetRequest struct {
	Reason string `json:"reason" is:"reason"`
	// Snapshots tells that training is to go on from the newest snapshot of it, where joiners can read one whole: longer, say.
	Snapshots bool `json:"snapshots,omitempty"`
}

// ResetRefusal tells that training does not begin anew: somebody trains, or nothing was trained.
type ResetRefusal struct {
	Reason string `json:"reason" is:"reason"`
}

// JobReset says that what was trained is given up. It is told again once a day until there is a plan, with another id and the time of the
// first. The next plan is of the next generation, begins at step 0, and its job is that of the
// first node to join. No snapshot counts that was taken before, unless that was asked for.
type JobReset struct {
	Generation uint64 `json:"generation" is:"min=1"` // of the plan in force, under which nobody trains any more
	Reason     string `json:"reason" is:"reason"`    // of who asked for it
	// Snapshots tells that training goes on from the newest snapshot of it instead, where joiners can read one whole.
	Snapshots bool   `json:"snapshots,omitempty"`
	Step      uint64 `json:"step,omitempty"` // completed ones that are given up, as far as anybody told; left out: none, or nobody knows
	// Silent are nodes that had a place and of which nobody knows that they have ended, 64 at most: they may live, and what they train is
	// given up.
	Silent []string `json:"silent,omitempty" is:"count=0..64,each=token"`
}

// MostSilent is how many nodes a reset names.
const MostSilent = 64

// UnitDigest names the content of a layer's state.
type UnitDigest struct {
	Unit   int    `json:"unit" is:"max=4095"`
	Digest string `json:"digest" is:"digest"`
}

// Divergence says that replicas of a layer differ at one step, where they must be equal to the bit.
type Divergence struct {
	Generation uint64    `json:"generation" is:"min=1"`
	Step       uint64    `json:"step"`
	Unit       int       `json:"unit" is:"max=4095"`
	Replicas   []Replica `json:"replicas" is:"count=2"`
	Digest     string    `json:"digest,omitempty"`                 // what more than half of the replicas hold; empty where none has that many
	Minority   []string  `json:"minority,omitempty"`               // nodes that hold something else: they are restored
	Silent     []string  `json:"silent,omitempty" is:"each=token"` // holders that said nothing of the step, while others spoke of a later one
}

// Replica is a node's copy of a layer.
type Replica struct {
	Node   string `json:"node" is:"token"`
	Digest string `json:"digest" is:"digest"`
}

// Quarantine keeps a message that was refused.
type Quarantine struct {
	// malformed, oversized, unknown-version, wrong-cluster, wrong-source, unsigned, stale, repeated, invalid, unreadable or poison
	Reason  string `json:"reason" is:"count=1"`
	Detail  string `json:"detail"`                     // names the field and what was expected
	Subject string `json:"subject"`                    // on which it came
	Excerpt []byte `json:"excerpt" is:"count=0..1024"` // its first bytes, at most QuarantineBytes
	Bytes   int    `json:"bytes"`                      // its whole length
}

// QuarantineBytes is how much of a refused message is kept in its record: as long as that is in the log, so is the
// message.
const QuarantineBytes = 1 << 10

// Lease says which instance of a service acts for the cluster.
type Lease struct {
	Service  string `json:"service" is:"token"`
	Instance string `json:"instance" is:"token"`
}

func (b *BrokenStep) Validate() error { return within(b).err }

func (d *StepDelay) Validate() error { return within(d).err }

func (a *Activation) Validate() error { return within(a).err }

func (d *Digests) Validate() error { return within(d).err }

func (j *JobEnd) Validate() error {
	c := within(j)
	c.ranges("differ", j.Differ)
	return c.err
}

func (s *StopRequest) Validate() error { return within(s).err }

func (s *StopRefusal) Validate() error { return within(s).err }

func (r *ResetRequest) Validate() error { return within(r).err }

func (r *ResetRefusal) Validate() error { return within(r).err }

func (r *JobReset) Validate() error { return within(r).err }

func (j *JobStop) Validate() error { return within(j).err }

func (d *Divergence) Validate() error { return within(d).err }

func (q *Quarantine) Validate() error { return within(q).err }

func (l *Lease) Validate() error { return within(l).err }
