package events

import (
	"fmt"
	"slices"
)

// PlanRequest holds everything a planner must know: the planner keeps nothing between two requests.
type PlanRequest struct {
	Negotiation string   `json:"negotiation" is:"token"`
	Cluster     string   `json:"cluster" is:"token"`
	Generation  uint64   `json:"generation" is:"min=1"`
	Changes     []Change `json:"changes"`
	Nodes       []Device `json:"nodes"` // who will be there: joiners included, leavers and lost nodes not
	Job         Job      `json:"job"`
	Links       []Link   `json:"links"`             // all that are known, or those that are not as usual
	Usual       *Usual   `json:"usual,omitempty"`   // of many links: what those are taken for that are not listed
	Current     *Plan    `json:"current,omitempty"` // the plan in force: who trains what, and not how it came about
	// SecondsBetweenFailures is the expected time to the next failure anywhere in the cluster.
	SecondsBetweenFailures float64 `json:"secondsBetweenFailures" is:"min=0,max=1e9"`
	// SecondsUntilReturn is when the lost nodes of the plan in force are expected back; zero: not known, or waited for
	// already.
	SecondsUntilReturn float64 `json:"secondsUntilReturn,omitempty" is:"min=0,max=1e9"`
	// The last changes' cost besides their transfers, from the commit to the first step under the plan: those that moved
	// nothing, and those that moved state; zero: there was none.
	SwitchSeconds  float64 `json:"switchSeconds,omitempty" is:"min=0,max=1e9"`
	RestartSeconds float64 `json:"restartSeconds,omitempty" is:"min=0,max=1e9"`
	// CurrentStepSeconds is how long a step of the plan in force takes, as the first few of its nodes measured; zero: not known.
	CurrentStepSeconds float64 `json:"currentStepSeconds,omitempty" is:"min=0,max=1e9"`
	// CurrentLeastSeconds is how long one would take in which the time beside passes is the least that it was under the plan; zero: not
	// known. A plan that loses a node expects no more: what came later may be of that node or its links.
	CurrentLeastSeconds float64 `json:"currentLeastSeconds,omitempty" is:"min=0,max=1e9"`
	// CurrentComputeRatio is how many times as long as layers and speeds of this request say passes take in those steps, as the
	// median of those nodes measured; zero: not known. A step's time beyond them is no part of any pass.
	CurrentComputeRatio float64 `json:"currentComputeRatio,omitempty" is:"min=0,max=1e9"`
}

// PolicyReply is what a policy plug-in answers to a PlanRequest. Everything else that it says is ignored.
type PolicyReply struct {
	Negotiation string     `json:"negotiation"`
	Plan        PolicyPlan `json:"plan"`
}

// PolicyPlan is the part of a plan that a plug-in decides: who trains which layers and how many micro-batches.
type PolicyPlan struct {
	Pipelines []Pipeline      `json:"pipelines"`
	Predicted PolicyPredicted `json:"predicted,omitzero"`
}

// PolicyPredicted is what a plug-in expects of its plan. It counts for nothing, and is quoted where it was far off.
type PolicyPredicted struct {
	StepSeconds float64 `json:"stepSeconds"`
}

// Deferral says that no plan is as good as waiting until the lost nodes are back.
type Deferral struct {
	Negotiation string      `json:"negotiation" is:"token"`
	Reason      string      `json:"reason" is:"reason"`
	Seconds     float64     `json:"seconds" is:"min=0,max=1e9"` // to wait at most; then a plan without the lost nodes is asked for
	Considered  []Candidate `json:"considered"`                 // best first: waiting itself, and the plans
}

// Device is a node as the planner sees it.
type Device struct {
	Member
	MemoryBytes int64 `json:"memoryBytes" is:"min=1"` // what training may use of it, without otherBytes
	// OtherBytes is what the node needs beside what the job's layers say, as it measured (node.profiled).
	OtherBytes  int64   `json:"otherBytes,omitempty" is:"max=281474976710656"`
	StateCopies int     `json:"stateCopies,omitempty" is:"max=1000"` // of the units it trains, that it keeps in memory beside them
	SpeedFactor float64 `json:"speedFactor" is:"min=1e-9,max=1e9"`   // relative to the job's layer profile; 1 where nothing was measured
	Samples     int64   `json:"samples,omitempty"`                   // of its local data
}

// Link is a link between two nodes in one direction.
type Link struct {
	Measurement
	Disconnected bool `json:"disconnected,omitempty"` // on purpose: never used
	Lost         bool `json:"lost,omitempty"`
}

// Proposal is the planner's answer. Its plan names a node for every place; nodes of one class may still trade
// places without changing the predicted step time.
type Proposal struct {
	Negotiation string     `json:"negotiation" is:"token"`
	Plan        Plan       `json:"plan"`
	Classes     [][]string `json:"classes"` // nodes with equal links, memory and speed
}

// RestorationRequest asks who becomes whom and what moves from whom.
type RestorationRequest struct {
	Negotiation string   `json:"negotiation" is:"token"`
	Proposal    Proposal `json:"proposal"`
	Holders     []Holder `json:"holders"` // of the version that the plan takes over
	// Snapshot tells that the holders have that version in a snapshot: they read what they need themselves, too.
	Snapshot    bool    `json:"snapshot,omitempty"`
	Units       []int64 `json:"units"`               // bytes of each
	Gradients   []int64 `json:"gradients,omitempty"` // bytes of gradient of each layer; left out: as many as of state
	Links       []Link  `json:"links"`
	Usual       *Usual  `json:"usual,omitempty"` // of any number of links
	Unreachable []Pair  `json:"unreachable,omitempty"`
	Current     *Plan   `json:"current,omitempty"` // as in a request for a plan
	// Doubts are between whom units did not arrive as they were offered: each takes them from others, where there are others.
	Doubts []Doubt `json:"doubts,omitempty" is:"count=0..4096"`
}

// Doubt is how often units did not arrive from a node as they should since the last commit. It does not say whose fault that is.
type Doubt struct {
	From  string `json:"from" is:"token"`
	To    string `json:"to,omitempty" is:"token"` // who could not verify them; left out: it did not offer them, or other bytes than others
	Times int    `json:"times" is:"min=1"`
}

// MostDoubts is how many ways a request may say are in doubt.
const MostDoubts = 4096

// Holder is a node and the layers it can give.
type Holder struct {
	Node  string  `json:"node"`
	Units []Range `json:"units"`
}

// Restoration is the plan with nodes, transfers and rounds filled in, and what it costs.
type Restoration struct {
	Negotiation string `json:"negotiation" is:"token"`
	Plan        Plan   `json:"plan"`
	BytesMoved  int64  `json:"bytesMoved"`
	// NaiveBytes is what a restart would move: every place reads all of its layers anew.
	NaiveBytes int64 `json:"naiveBytes"`
}

// Offer is the manifest of one layer at one source: it precedes any receiver's read.
type Offer struct {
	Negotiation string `json:"negotiation" is:"token"`
	Node        string `json:"node" is:"token"`
	Unit        int    `json:"unit" is:"max=4095"`
	Step        uint64 `json:"step"`
	Digest      string `json:"digest" is:"digest"` // of the whole layer
	Bytes       int64  `json:"bytes" is:"min=1"`   // of the whole layer
	Parts       []Part `json:"parts"`              // those this source puts into its store, or the hub's: what it was asked to give at least
}

// Part is a range of a layer's bytes, stored under its digest.
type Part struct {
	Digest string `json:"digest" is:"digest"`
	First  int64  `json:"first"`
	End    int64  `json:"end"`
}

// ViaHub is a request on ShardSubject: a receiver cannot reach the store of a node that is to give it something.
type ViaHub struct {
	Negotiation string `json:"negotiation"`
	To          string `json:"to"`            // the receiver
	Key         string `json:"key,omitempty"` // with which parts for it are sealed, 32 bytes in base64; empty on an open installation
}

// Receipt says that a node read back and verified every layer it was to receive.
type Receipt struct {
	Negotiation string         `json:"negotiation" is:"token"`
	Node        string         `json:"node" is:"token"`
	Units       []ReceivedUnit `json:"units"`
	Seconds     float64        `json:"seconds" is:"min=0,max=1e9"` // from the stop step to the last verified byte
	Sources     []Received     `json:"sources,omitempty"`
}

// Received is what came from one source.
type Received struct {
	From           string  `json:"from"` // a node; empty: the hub
	Bytes          int64   `json:"bytes"`
	BytesPerSecond float64 `json:"bytesPerSecond" is:"min=0,max=1e18"` // while something was asked of it
	// StartSeconds is from when it was asked first until its first byte came: the round trip, and what it was at until then. Left out:
	// not measured.
	StartSeconds float64 `json:"startSeconds,omitempty" is:"min=0,max=1e9"`
}

// ReceivedUnit is a verified layer.
type ReceivedUnit struct {
	Unit   int    `json:"unit" is:"max=4095"`
	Step   uint64 `json:"step"`
	Digest string `json:"digest" is:"digest"`
	Bytes  int64  `json:"bytes"`
}

// Completion says that every receiver holds what it needs.
type Completion struct {
	Negotiation string  `json:"negotiation" is:"token"`
	Bytes       int64   `json:"bytes"`
	Seconds     float64 `json:"seconds" is:"min=0,max=1e9"` // of the slowest receiver
}

func (r *PlanRequest) Validate() error {
	c := within(r)
	c.nested("job", r.Job.rules())
	for i, link := range r.Links {
		c.ends(fmt.Sprintf("links[%d]", i), link.From, link.To)
	}
	c.usual(r.Usual)
	if r.Current != nil {
		c.nested("current", r.Current.rules())
	}
	return c.err
}

// LosesNode reports whether a node that trains under the plan in force will not be there. O(nodes).
func (r *PlanRequest) LosesNode() bool {
	if r.Current == nil {
		return false
	}
	there := make(map[string]bool, len(r.Nodes))
	for _, node := range r.Nodes {
		there[node.Node] = true
	}
	for node := range r.Current.HoldsOfAll() {
		if _, trained := r.Current.Member(node); trained && !there[node] {
			return true
		}
	}
	return false
}

// ComputeRatio is how many times as long as layers and speeds of the request say the passes of a step of the plan in force take, where
// so many seconds are measured by node: the median of those, the lower one of two, so that one of three that lies or errs moves
// nothing. Zero: not known. Steps in which some stand in for others are no measure. O(nodes).
func (r *PlanRequest) ComputeRatio(passes map[string]float64) float64 {
	if r.Current == nil || len(r.Current.Reroutes) > 0 {
		return 0
	}
	speeds := make(map[string]float64, len(passes))
	for _, node := range r.Nodes {
		if passes[node.Node] > 0 {
			speeds[node.Node] = node.SpeedFactor
		}
	}
	var ratios []float64
	for _, pipeline := range r.Current.Pipelines {
		for _, stage := range pipeline.Stages {
			expected := float64(pipeline.MicroBatches) * r.Job.MicroBatchSeconds(stage.Layers)
			if speed := speeds[stage.Node]; speed > 0 && expected > 0 {
				ratios = append(ratios, passes[stage.Node]*speed/expected)
			}
		}
	}
	if len(ratios) == 0 {
		return 0
	}
	slices.Sort(ratios)
	return min(ratios[(len(ratios)-1)/2], mostComputeRatio)
}

// mostComputeRatio is the most that a request may say: layers may be said to take next to nothing.
const mostComputeRatio = 1e9

func (d *Deferral) Validate() error { return within(d).err }

func (p *Proposal) Validate() error {
	c := within(p)
	c.nested("plan", p.Plan.rules())
	return c.err
}

func (r *RestorationRequest) Validate() error {
	c := within(r)
	c.nested("proposal.plan", r.Proposal.Plan.rules())
	if c.err == nil {
		rows, layers := r.Proposal.Plan.UnitCount(), r.Proposal.Plan.LayerCount()
		c.rule("whole-plan", len(r.Units) == rows, "units", fmt.Sprintf("bytes of all %d of the plan", rows), len(r.Units))
		c.rule("whole-plan", len(r.Gradients) == 0 || len(r.Gradients) == layers, "gradients",
			fmt.Sprintf("bytes of all %d layers of the plan, or none", layers), len(r.Gradients))
	}
	c.usual(r.Usual)
	return c.err
}

func (r *Restoration) Validate() error {
	c := within(r)
	c.nested("plan", r.Plan.rules())
	return c.err
}

func (o *Offer) Validate() error {
	c := within(o)
	c.parts("parts", o.Parts, o.Bytes)
	return c.err
}

// parts checks ranges within so many bytes.
func (c *check) parts(field string, parts []Part, bytes int64) {
	for i, part := range parts {
		c.rule("parts", part.First < part.End && part.End <= bytes, fmt.Sprintf("%s[%d].first", field, i),
			"0 <= first < end <= bytes", part)
	}
}

func (r *Receipt) Validate() error { return within(r).err }

func (d *Completion) Validate() error { return within(d).err }
