package events

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Range is a half-open range: of layers, of units of the state, of shards of a unit, or of samples of a step.
type Range struct {
	First int `json:"first"`
	End   int `json:"end"`
}

// Count returns how many are in the range.
func (l Range) Count() int { return l.End - l.First }

// Plan says who trains what from a step on. The committed plan of a generation never changes.
type Plan struct {
	Cluster    string      `json:"cluster" is:"token"`
	Generation uint64      `json:"generation" is:"min=1"`
	Parent     string      `json:"parent,omitempty"` // digest of the plan before; empty for generation 1
	Policy     string      `json:"policy"`
	Kind       string      `json:"kind,omitempty" is:"one=pipeline|data-parallel|sharded"` // of the job
	Replicas   string      `json:"replicas,omitempty" is:"one=equal|alike"`                // of the job
	ResumeStep uint64      `json:"resumeStep"`                                             // completed steps when it takes over: the index of the next
	Nodes      []Member    `json:"nodes"`                                                  // all active nodes, those without a place included
	Pipelines  []Pipeline  `json:"pipelines" is:"count=1"`
	Reroutes   []Reroute   `json:"reroutes,omitempty"`
	Relays     []Pair      `json:"relays,omitempty"` // pairs that must not use a direct link: their traffic goes through the hub
	Sync       Sync        `json:"sync"`
	Migration  Migration   `json:"migration"`
	Data       Data        `json:"data"`
	Predicted  Predicted   `json:"predicted"`
	Idle       []Idle      `json:"idle,omitempty"` // nodes without a place because of their links
	Considered []Candidate `json:"considered,omitempty"`

	LearningRateScale float64 `json:"learningRateScale" is:"min=0,max=1e9"` // what the learning rate is multiplied by; 0: nothing, as 1
	WarmUp            *WarmUp `json:"warmUp,omitempty"`                     // left out: the scale counts from the first step on

	// Snapshot tells that training goes back to one, of ResumeStep: the digest of the plan under which that step was
	// trained. It is left out where living nodes have all units.
	Snapshot string `json:"snapshot,omitempty" is:"digest"`
}

// WarmUp takes the learning rate from one scale to the plan's, in equal parts.
type WarmUp struct {
	FromScale float64 `json:"fromScale" is:"min=0,max=1e9"`
	FirstStep uint64  `json:"firstStep"`
	Steps     int     `json:"steps" is:"min=1"` // the last of them has the plan's scale
}

// Member is an active node of the cluster.
type Member struct {
	Node        string `json:"node" is:"token"`
	Incarnation string `json:"incarnation"`
	Address     string `json:"address"`
	Name        string `json:"name,omitempty"` // that it claims, as its join said
	// Site is where the node stands, as its join said.
	Site string `json:"site,omitempty"`
	// ShardAddress is where the node serves shards itself; empty: through the hub.
	ShardAddress string `json:"shardAddress,omitempty"`
	// PreCopies tells that the node can give and take layers while training goes on.
	PreCopies bool `json:"preCopies,omitempty"`
}

// Pair is two nodes, the lesser id first.
type Pair struct {
	A string `json:"a"`
	B string `json:"b"`
}

// PairOf returns the pair of two nodes in either order.
func PairOf(a, b string) Pair {
	if b < a {
		a, b = b, a
	}
	return Pair{A: a, B: b}
}

// Pipeline is a chain of stages that trains its share of the micro-batches.
type Pipeline struct {
	MicroBatches int     `json:"microBatches" is:"min=1"`
	Samples      Range   `json:"samples,omitzero"`                  // of the step's global batch, in the order of the pipelines
	Weight       float64 `json:"weight,omitempty" is:"min=0,max=1"` // of its mean gradient; left out: its share of the samples
	Stages       []Stage `json:"stages"`
	Partitions   []int   `json:"partitions,omitempty" is:"each=max=63"` // of its layers' optimizer state, that its nodes keep; where that is partitioned
}

// Stage is a node and the layers it trains.
type Stage struct {
	Node   string `json:"node"`
	Layers Range  `json:"layers"`
}

// Reroute gives some of a lost node's micro-batches, at some of its layers, to a node that holds these in another pipeline. At
// each layer the reroutes of a lost node take its micro-batches one after the other, in their order.
type Reroute struct {
	From         string `json:"from"`
	To           string `json:"to"`
	Stage        int    `json:"stage"`
	MicroBatches int    `json:"microBatches" is:"min=1"`
	Layers       Range  `json:"layers,omitzero"`  // of the lost node; left out: all that the other holds
	Samples      Range  `json:"samples,omitzero"` // of the lost node's pipeline, in the order of the reroutes of its layers
}

// Sync is the gradient all-reduce: rounds in order, groups of one round at a time.
type Sync struct {
	Rounds []Round `json:"rounds"`
}

// Round is a set of groups that share no node.
type Round struct {
	Groups []Group `json:"groups"`
}

// Group is the nodes that hold the same layers.
type Group struct {
	Layers Range `json:"layers"`
	// Nodes is in the order in which they add up gradients: around a ring, in which each exchanges with the one before and the
	// one behind it, the last with the first.
	Nodes []string `json:"nodes"`
}

// Migration is what moves to get from the plan before to this one.
type Migration struct {
	Moves      []Move     `json:"moves"`
	Transfers  []Transfer `json:"transfers"`
	Drops      []Drop     `json:"drops"`
	ShardBytes int64      `json:"shardBytes"` // length of a shard; the last one of a layer may be shorter
}

// Move gives a node its place.
type Move struct {
	Node    string `json:"node"`
	Becomes Place  `json:"becomes"`
}

// Place is a position in the plan.
type Place struct {
	Pipeline int `json:"pipeline"`
	Stage    int `json:"stage"`
}

// Transfer brings one layer to one node, its shards from several sources.
type Transfer struct {
	Unit    int      `json:"unit"`
	To      string   `json:"to"`
	Sources []Source `json:"sources"`
	Bytes   int64    `json:"bytes" is:"min=1"`
}

// Source is a node that holds a layer and the shards it gives.
type Source struct {
	Node   string `json:"node"`
	Shards Range  `json:"shards"` // half-open range of shard indices
	// BytesPerSecond is what the link to the receiver carried when it was measured last, by itself, or else what links are
	// like there; left out where no link was measured. Receivers begin with it and go on with what they measure.
	BytesPerSecond float64 `json:"bytesPerSecond,omitempty" is:"min=0,max=1e18"`
}

// Drop says that a node no longer needs a layer.
type Drop struct {
	Node string `json:"node"`
	Unit int    `json:"unit"`
}

// Data says where training stands in its data.
type Data struct {
	GlobalBatch int `json:"globalBatch"`
	MicroBatch  int `json:"microBatch"`
	// ConsumedSamples is the position in the data at resumeStep: the samples of all steps before it, without those that
	// were undone. Sample i of a step has the position consumedSamples + (step - resumeStep) * globalBatch + i.
	ConsumedSamples uint64 `json:"consumedSamples"`
	// Skipped are samples right before that position which no step trains: a user asked to pass over a step that was held. Samples
	// before those of that step which fill no batch go with them, if the batch is another one since.
	Skipped *Samples `json:"skipped,omitempty"`
}

// Predicted is what the planner expects of the plan.
type Predicted struct {
	StepSeconds           float64          `json:"stepSeconds" is:"min=0,max=1e30"`
	StepSecondsLowerBound float64          `json:"stepSecondsLowerBound" is:"min=0,max=1e30"` // no plan of several nodes can be faster in the model
	TransitionSeconds     float64          `json:"transitionSeconds" is:"min=0,max=1e30"`     // that the layers take to come; in a proposal as the planner weighed it, with the switch
	PeakBytes             map[string]int64 `json:"peakBytes"`
	SamplesPerSecond      float64          `json:"samplesPerSecond" is:"min=0,max=1e30"`
	// Unmeasured tells that the seconds are guesses that only compare plans: the job says none, and no node had told its speed.
	Unmeasured bool `json:"unmeasured,omitempty"`
	// Correction is what stepSeconds was multiplied by, for so many times as long as the model says did passes of the plan before
	// take, or its steps where nobody told of passes; zero: by nothing.
	Correction float64 `json:"correction,omitempty" is:"min=0,max=1e9"`
	// OverheadSeconds were added for what steps of the plan before took beyond that: to sum gradients and wait for each other. A node
	// that trains alone is spared them, and stepSeconds of such a plan has ownSeconds in their place.
	OverheadSeconds float64 `json:"overheadSeconds,omitempty" is:"min=0,max=1e30"`
	// OwnSeconds are what steps of the last plan of one node took beyond its passes: to update the model, say. They are a part of
	// overheadSeconds; zero: not known.
	OwnSeconds float64 `json:"ownSeconds,omitempty" is:"min=0,max=1e30"`
}

// Candidate is a plan that was weighed.
type Candidate struct {
	Policy            string  `json:"policy"`
	Shape             string  `json:"shape"` // for example "2+3": the lengths of the pipelines
	StepSeconds       float64 `json:"stepSeconds" is:"min=0,max=1e30"`
	TransitionSeconds float64 `json:"transitionSeconds" is:"min=0,max=1e30"`
	Score             float64 `json:"score" is:"min=-1e30,max=1e30"` // expected samples a second until the next failure
	Rejected          string  `json:"rejected,omitempty"`            // why it lost; empty for the plan chosen
}

// Weighed reports whether there was a plan to weigh. There was none of a policy, or a plug-in, that had no answer: it has a reason,
// and no figures.
func (c Candidate) Weighed() bool { return c.StepSeconds > 0 || c.Rejected == "" }

// Validate checks what holds for every plan: each pipeline holds every layer exactly once in contiguous stages,
// no node has two places, every node named is a member, and the micro-batches add up to the global batch.
func (p *Plan) Validate() error {
	c := within(p)
	c.nested("", p.rules())
	return c.err
}

// rules checks what the tags of a plan's fields cannot say.
func (p *Plan) rules() error {
	var c check
	if len(p.Pipelines) == 0 {
		return nil // its limits say so
	}
	const rule = "plan"
	c.rule(rule, p.Generation == 1 || p.Parent != "", "parent", "the digest of the plan before", `""`)
	members := make(map[string]bool, len(p.Nodes))
	for _, member := range p.Nodes {
		c.rule(rule, !members[member.Node], "nodes", "each node once", member.Node)
		members[member.Node] = true
	}
	for _, part := range []struct {
		field string
		check func() error
	}{
		{"pipelines", func() error { return p.validatePipelines(members) }},
		{"pipelines", func() error { return p.validatePartitions(members) }},
		{"reroutes", func() error { return p.validateReroutes(members) }},
		{"", p.validateSamples},
		{"", p.validateWeights},
		{"sync", func() error { return p.validateSync(members) }},
		{"idle", func() error { return p.validateIdle(members) }},
		{"migration", func() error { return p.validateMigration(members) }},
	} {
		if c.err == nil { // each counts on those before
			c.breaks(rule, inside(part.field, part.check()))
		}
	}
	return c.err
}

func (p *Plan) validatePipelines(members map[string]bool) error {
	placed, reroutes := make(map[string]bool, len(p.Nodes)), p.reroutesOf()
	layers := p.LayerCount()
	if layers > MostUnits {
		return fmt.Errorf("[0].stages: expected at most %d layers, got %d", MostUnits, layers)
	}
	microBatches := 0
	for i, pipeline := range p.Pipelines {
		next := 0
		for s, stage := range pipeline.Stages {
			if stage.Layers.First != next || stage.Layers.Count() < 1 {
				return fmt.Errorf("[%d].stages[%d]: expected layers from %d on, got %v", i, s, next, stage.Layers)
			}
			if isLost := reroutes[stage.Node] != nil; !members[stage.Node] && !isLost || placed[stage.Node] {
				return fmt.Errorf("[%d].stages[%d]: expected an active node with one place, got %q", i, s, stage.Node)
			}
			placed[stage.Node] = true
			next = stage.Layers.End
		}
		if next != layers || layers < 1 || pipeline.MicroBatches < 1 {
			return fmt.Errorf("[%d]: expected all %d layers and a micro-batch, got %d layers and %d micro-batches",
				i, layers, next, pipeline.MicroBatches)
		}
		microBatches += pipeline.MicroBatches
	}
	if p.Data.MicroBatch < 1 || microBatches*p.Data.MicroBatch != p.Data.GlobalBatch {
		return fmt.Errorf("expected %d samples a step, got %d micro-batches of %d", p.Data.GlobalBatch, microBatches,
			p.Data.MicroBatch)
	}
	return nil
}

// Shape returns the lengths of the pipelines, such as 3+3+2.
func (p *Plan) Shape() string {
	var lengths []string
	for _, pipeline := range p.Pipelines {
		lengths = append(lengths, fmt.Sprint(len(pipeline.Stages)))
	}
	return strings.Join(lengths, "+")
}

// LayerCount returns the number of layers of the model.
func (p *Plan) LayerCount() int {
	stages := p.Pipelines[0].Stages
	if len(stages) == 0 {
		return 0
	}
	return stages[len(stages)-1].Layers.End
}

func (p *Plan) validateReroutes(members map[string]bool) error {
	for i, reroute := range p.Reroutes {
		if members[reroute.From] || !members[reroute.To] || reroute.MicroBatches < 1 {
			return fmt.Errorf("[%d]: expected micro-batches from a lost node to an active one, got %+v", i, reroute)
		}
	}
	if len(p.Reroutes) == 0 {
		return nil
	}
	holds := p.HoldsOfAll()
	for i, reroute := range p.Reroutes {
		if both := shared(holds[reroute.From], holds[reroute.To]); reroute.Layers != (Range{}) &&
			(reroute.Layers.Count() < 1 || shared(both, reroute.Layers) != reroute.Layers) || both.Count() < 1 {
			return fmt.Errorf("[%d]: expected layers of %s %v that %s holds, who has %v, got %v", i, reroute.From,
				holds[reroute.From], reroute.To, holds[reroute.To], reroute.Layers)
		}
	}
	return nil
}

// shared is what two ranges have in common.
func shared(a, b Range) Range { return Range{max(a.First, b.First), min(a.End, b.End)} }

func (p *Plan) validateSync(members map[string]bool) error {
	last := make(map[string]int, len(members)) // by node: 1 more than the last round that it is in
	for r, round := range p.Sync.Rounds {
		for g, group := range round.Groups {
			for _, node := range group.Nodes {
				if last[node] > r || !members[node] {
					return fmt.Errorf("rounds[%d].groups[%d]: expected active nodes, each once a round, got %q", r, g, node)
				}
				last[node] = r + 1
			}
		}
	}
	return nil
}

func (p *Plan) validateMigration(members map[string]bool) error {
	for i, transfer := range p.Migration.Transfers {
		next := 0
		for _, source := range transfer.Sources {
			if source.Shards.First != next || source.Shards.Count() < 1 {
				return fmt.Errorf("transfers[%d]: expected shards from %d on, got %v", i, next, source.Shards)
			}
			if source.BytesPerSecond < 0 {
				return fmt.Errorf("transfers[%d]: bytesPerSecond: expected at least 0, got %v", i, source.BytesPerSecond)
			}
			next = source.Shards.End
		}
		if !members[transfer.To] || next == 0 || transfer.Bytes < 1 {
			return fmt.Errorf("transfers[%d]: expected a member, sources and bytes, got %+v", i, transfer)
		}
	}
	return nil
}

// Holds returns the layers a node trains under the plan; ok is false for a node without a place.
func (p *Plan) Holds(node string) (layers Range, ok bool) {
	for _, pipeline := range p.Pipelines {
		for _, stage := range pipeline.Stages {
			if stage.Node == node {
				return stage.Layers, true
			}
		}
	}
	return Range{}, false
}

// HoldsOfAll returns the layers of each node that has a place: to look for one takes as long as to list them all.
func (p *Plan) HoldsOfAll() map[string]Range {
	layers := make(map[string]Range, len(p.Nodes))
	for _, pipeline := range p.Pipelines {
		for _, stage := range pipeline.Stages {
			layers[stage.Node] = stage.Layers
		}
	}
	return layers
}

// Member returns the member with the given node id.
func (p *Plan) Member(node string) (Member, bool) { return MemberOf(p.Nodes, node) }

// MemberOf returns the one of some members with the given node id, each of which there is once. The negotiator lists them in the
// order of their ids; in any other order it takes longer.
func MemberOf(members []Member, node string) (Member, bool) {
	at, found := slices.BinarySearchFunc(members, node, func(member Member, node string) int { return cmp.Compare(member.Node, node) })
	if !found {
		at = slices.IndexFunc(members, func(member Member) bool { return member.Node == node })
	}
	if at < 0 {
		return Member{}, false
	}
	return members[at], true
}
