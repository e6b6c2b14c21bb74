package events

// BrokenStep says that a node's step cannot end, though everybody may live: a collective broke that cannot be resumed,
// or timed out. The node stands still until a plan comes for which all gave up their step.
type BrokenStep struct {
	Node        string `json:"node"`
	Incarnation string `json:"incarnation"`
	Generation  uint64 `json:"generation"` // of the plan under which the step was begun
	Step        uint64 `json:"step"`       // completed steps: the one that broke comes after so many
	Reason      string `json:"reason"`
}

// Activation is said by each node after its first step under a plan.
type Activation struct {
	Node       string `json:"node"`
	Generation uint64 `json:"generation"`
	Step       uint64 `json:"step"` // completed steps
	// StallSeconds is the time from the last step completed under the old plan to the first one under the new, less
	// one usual step.
	StallSeconds float64 `json:"stallSeconds"`
	StallSteps   float64 `json:"stallSteps"`  // the stall in usual steps
	StepSeconds  float64 `json:"stepSeconds"` // a usual step: the median of the last ones
}

// Digests are the digests of the layers a node holds at a step.
type Digests struct {
	Node        string       `json:"node"`
	Incarnation string       `json:"incarnation,omitempty"` // of the process that trained them; left out by agents of before
	Generation  uint64       `json:"generation"`
	Step        uint64       `json:"step"`
	Final       bool         `json:"final"` // training is complete for this node, which may tell so without units
	Units       []UnitDigest `json:"units"`
}

// JobEnd says that the job is done, because all who train under the plan in force have told that training is complete for
// them. It is said once; who leaves, dies or falls silent afterwards is no loss.
type JobEnd struct {
	Generation uint64   `json:"generation"` // of the plan in force
	Step       uint64   `json:"step"`       // completed steps
	Nodes      []string `json:"nodes"`      // that made the last step, in the order of their names
	// Digest is that of the model: of its units' digests, each ended by a newline. It is left out where not all units' were
	// told, or holders of one told different ones.
	Digest string `json:"digest,omitempty"`
	// Differ are the units of which holders told different digests: they ended with different models.
	Differ []Range `json:"differ,omitempty"`
}

// UnitDigest names the content of a layer's state.
type UnitDigest struct {
	Unit   int    `json:"unit"`
	Digest string `json:"digest"`
}

// Divergence says that replicas of a layer differ at one step, where they must be equal to the bit.
type Divergence struct {
	Generation uint64    `json:"generation"`
	Step       uint64    `json:"step"`
	Unit       int       `json:"unit"`
	Replicas   []Replica `json:"replicas"`
	Digest     string    `json:"digest,omitempty"`   // what more than half of the replicas hold; empty where none has that many
	Minority   []string  `json:"minority,omitempty"` // nodes that hold something else: they are restored
}

// Replica is a node's copy of a layer.
type Replica struct {
	Node   string `json:"node"`
	Digest string `json:"digest"`
}

// Quarantine keeps a message that was refused.
type Quarantine struct {
	// malformed, oversized, unknown-version, wrong-cluster, wrong-source, unsigned, invalid, unreadable or poison
	Reason  string `json:"reason"`
	Detail  string `json:"detail"`  // names the field and what was expected
	Subject string `json:"subject"` // on which it came
	Excerpt []byte `json:"excerpt"` // its first bytes, at most QuarantineBytes
	Bytes   int    `json:"bytes"`   // its whole length
}

// QuarantineBytes is how much of a refused message is kept in its record: as long as that is in the log, so is the
// message.
const QuarantineBytes = 1 << 10

// Lease says which instance of a service acts for the cluster.
type Lease struct {
	Service  string `json:"service"`
	Instance string `json:"instance"`
}

func (b *BrokenStep) Validate() error {
	var c check
	c.token("node", b.Node)
	c.token("incarnation", b.Incarnation)
	c.atLeast("generation", int64(b.Generation), 1)
	c.reason(b.Reason)
	return c.err
}

func (a *Activation) Validate() error {
	var c check
	c.token("node", a.Node)
	c.atLeast("generation", int64(a.Generation), 1)
	c.amount("stallSeconds", a.StallSeconds)
	c.amount("stallSteps", a.StallSteps)
	c.amount("stepSeconds", a.StepSeconds)
	return c.err
}

func (d *Digests) Validate() error {
	var c check
	c.token("node", d.Node)
	if d.Incarnation != "" {
		c.token("incarnation", d.Incarnation)
	}
	c.each(len(d.Units), "units", func(i int) error {
		var c check
		c.unit(d.Units[i].Unit)
		c.digest("digest", d.Units[i].Digest)
		return c.err
	})
	return c.err
}

func (j *JobEnd) Validate() error {
	var c check
	c.atLeast("generation", int64(j.Generation), 1)
	c.that(len(j.Nodes) > 0, "nodes", "one at least", len(j.Nodes))
	c.each(len(j.Nodes), "nodes", func(i int) error {
		var c check
		c.token("node", j.Nodes[i])
		return c.err
	})
	if j.Digest != "" {
		c.digest("digest", j.Digest)
	}
	c.each(len(j.Differ), "differ", func(i int) error {
		var c check
		c.units(j.Differ[i])
		return c.err
	})
	return c.err
}

func (d *Divergence) Validate() error {
	var c check
	c.atLeast("generation", int64(d.Generation), 1)
	c.unit(d.Unit)
	c.that(len(d.Replicas) >= 2, "replicas", "at least 2", len(d.Replicas))
	c.each(len(d.Replicas), "replicas", func(i int) error {
		var c check
		c.token("node", d.Replicas[i].Node)
		c.digest("digest", d.Replicas[i].Digest)
		return c.err
	})
	return c.err
}

func (q *Quarantine) Validate() error {
	var c check
	c.that(q.Reason != "", "reason", "why the message was refused", `""`)
	c.that(len(q.Excerpt) <= QuarantineBytes, "excerpt", "at most 1 KiB", len(q.Excerpt))
	return c.err
}

func (l *Lease) Validate() error {
	var c check
	c.token("service", l.Service)
	c.token("instance", l.Instance)
	return c.err
}
