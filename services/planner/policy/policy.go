// Package policy answers a change: each policy, one file each, proposes plans for a situation, and Weigh finds the one
// that is expected to deliver most until the next failure (Chameleon IV-A).
package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/search"
)

// Situation is all a policy may look at. Nodes are in a fixed order.
type Situation struct {
	Kind        Kind
	Nodes       []string
	MemoryBytes []int64 // per node: what it may fill
	// Speed tells of each node how much faster it is than Layers says, at least 1; nil: as Layers says.
	Speed         []float64
	Layers        []estimate.Layer // per micro-batch
	StateBytes    []int64          // per layer: what moves with it
	GradientBytes []int64          // per layer: what is all-reduced
	// Partitions is into how many each layer's optimizer state is cut; zero: every holder keeps all of it.
	Partitions     int
	OptimizerBytes []int64 // per layer: what is cut, part of StateBytes
	// StateCopies is how many copies of the state that a node trains it keeps beside it, the most of any node; Layers count
	// them.
	StateCopies    int
	KeptPartitions int // the most of a pipeline that Layers and StateBytes count; zero: all
	MicroBatches   int // of a step
	GlobalBatch    int // samples of a step
	DataParallel   search.Limits
	PipelineLength search.Limits
	Slowdown       float64    // how many times as long a step may take for a node of a data-parallel job; zero: UsualSlowdown
	KeepsAll       bool       // no node of such a job may wait: its data is its own, or nothing tells how long a step takes
	MinReplicas    int        // a plan with fewer holders of some layer is taken only where there is no other
	Current        []Pipeline // the plan in force; its nodes that are not among Nodes are lost
	// Empty nodes hold nothing, though the plan in force may place them: they restarted since.
	Empty []string
	// Relayed tells that the plan in force was made around links that were missing.
	Relayed                bool
	Network                Network
	SecondsBetweenFailures float64
	SwitchSeconds          float64 // a switch of plans that moves nothing
	RestartSeconds         float64 // one that moves state, without the transfer
	// PreCopies tells that all nodes can fetch and give layers while they train.
	PreCopies      bool
	currentSeconds float64 // see timed
	// Correction is what Weigh multiplies seconds of a step by, for so many times as long did steps take before; zero: 1.
	Correction float64
	// OverheadSeconds is what Weigh adds then where more than one node trains, and OwnSeconds where one does.
	OverheadSeconds    float64
	OwnSeconds         float64
	SecondsUntilReturn float64 // until the lost nodes are back; zero: not known, or not to be waited for
	// Find answers as search.Find does, which has it if this is nil.
	Find func(problem search.Problem, most int) (search.Result, error)
}

// Network is what a plan may expect of the links.
type Network struct {
	TransferSeconds float64  // of one micro-batch between two stages over a usual link
	BytesPerSecond  float64  // of a usual link
	LatencySeconds  float64  // of a usual link, one way
	Dear            [][2]int // pairs of nodes that reach each other only through the hub, each pair once
	DearSeconds     float64  // that such a pair adds to a step
	ActivationBytes int64    // of one micro-batch between two stages
	Links           []Link   // those that differ much from the usual, as measured or as others between their sites; no dear ones
	// SiteLinks are, among many nodes, what links from one site to another, or within one, are taken for that nobody measured, where
	// that differs from the usual. From and To are sites, by number. Only rings heed them.
	SiteLinks []Link
	Sites     []int // of each node; nil without SiteLinks
}

// isAlike reports whether all links are as usual.
func (n Network) isAlike() bool { return len(n.Links)+len(n.Dear)+len(n.SiteLinks) == 0 }

// Pipeline is a pipeline with its nodes.
type Pipeline struct {
	MicroBatches int
	Stages       []Stage
	Partitions   []int // of its layers' optimizer state, that its nodes keep, ascending; where that is partitioned
}

// Stage is a node and the layers it trains.
type Stage struct {
	Node   string
	Layers estimate.Range
}

// Reroute gives micro-batches of a lost node to one that holds the same layers.
type Reroute struct {
	From, To     string
	Stage        int
	MicroBatches int
	Layers       estimate.Range // of the lost stage; zero: all that the other holds
}

// Candidate is a plan with its figures.
type Candidate struct {
	Policy            string
	Pipelines         []Pipeline
	Reroutes          []Reroute
	StepSeconds       float64
	LowerBoundSeconds float64 // no plan of this policy, as safe, is faster in the model; zero where it has no bound
	TransitionSeconds float64
	CopySeconds       float64 // of the transition: until all have fetched what they lack
	PeakBytes         map[string]int64
	// Replicas is how many live holders the layer has, or the partition of one, that has fewest. Those of a partition
	// count up to MinReplicas.
	Replicas int
	Classes  [][]string // nodes that may trade places
	Idle     []Idle     // who has no place for its links
	Score    float64    // samples a second expected until the next failure
	Rejected string     // why another was taken; empty for the one taken
}

// Policy proposes plans. It returns none where it has no answer, and an error that says why where that is worth saying.
type Policy struct {
	Name    string
	Propose func(Situation) ([]Candidate, error)
	Waits   bool // waiting for lost nodes is weighed beside its plans
}

// Policies lists the policies by name.
var Policies = []Policy{
	Adaptive,
	anew,
	{Name: rerouting, Propose: reroute},
}

// Named returns the policy of a name, or an error that lists the right ones.
func Named(name string) (Policy, error) {
	var names []string
	for _, policy := range Policies {
		if policy.Name == name {
			return policy, nil
		}
		names = append(names, policy.Name)
	}
	return Policy{}, fmt.Errorf("policy %q: expected one of %s", name, strings.Join(names, ", "))
}

// Answer returns what a policy proposes, or repipeline where it has no answer: before the first plan there is nothing
// to reroute. Then it returns why the policy has none, too, where that says so. It fails with every policy's reason where there
// is no plan.
func (p Policy) Answer(s Situation) ([]Candidate, error) {
	if len(s.Nodes) == 0 {
		return nil, fmt.Errorf("there is no node")
	}
	if own, has := ofKind[s.Kind]; has {
		return own.named(s)
	}
	candidates, err := p.named(s)
	if len(candidates) > 0 || p.Name == Adaptive.Name {
		return candidates, err
	}
	candidates, otherwise := anew.named(s)
	if len(candidates) > 0 {
		return candidates, err
	}
	return nil, joined(err, otherwise)
}

// named proposes in the policy's name.
func (p Policy) named(s Situation) ([]Candidate, error) {
	candidates, err := p.Propose(s)
	for i := range candidates {
		candidates[i].Policy = cmp.Or(candidates[i].Policy, p.Name)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", p.Name, err)
	}
	return candidates, err
}

// NoAnswer is a policy that proposes nothing, and why.
type NoAnswer struct {
	Policy string
	Reason error
}

// Unanswered tells which of the policies that one weighs, itself included, have no candidate among those found for a situation,
// and why, where they say so. Only these are asked again: what was found may be of a situation that is the same but for names.
func (p Policy) Unanswered(s Situation, found []Candidate) []NoAnswer {
	if _, isOwn := ofKind[s.Kind]; isOwn {
		return nil
	}
	asked := []Policy{p}
	if p.Name == Adaptive.Name {
		asked = weighed
	}
	var list []NoAnswer
	for _, policy := range asked {
		if slices.ContainsFunc(found, func(c Candidate) bool { return c.Policy == policy.Name }) {
			continue
		}
		if _, err := policy.Propose(s); err != nil {
			list = append(list, NoAnswer{policy.Name, err})
		}
	}
	return list
}

// Choose weighs the plans of the adaptive policy and returns them best first.
func Choose(s Situation) ([]Candidate, error) {
	candidates, err := Adaptive.Answer(s)
	return Weigh(s, append(candidates, Adaptive.Wait(s)...), err)
}

// Weigh scores candidates and returns them best first, the others with the reason why not. Fewer replicas than
// MinReplicas count before all else, and more count for nothing. Then the expected throughput counts, where it differs
// by enough to be worth moving, then the shorter transition, then the order. Weigh leaves its arguments as they are. It
// fails where there is no candidate, and tells the reason it was given. Transitions have the prices of this situation,
// whatever those were with which the candidates were found.
func Weigh(s Situation, candidates []Candidate, reason error) ([]Candidate, error) {
	var all []Candidate
	s = s.timed()
	for _, candidate := range candidates {
		if candidate.Policy != Waiting {
			candidate.TransitionSeconds = s.transitionSeconds(candidate.CopySeconds)
		}
		candidate.StepSeconds = s.correctedStep(candidate.StepSeconds, candidate.Pipelines)
		if candidate.LowerBoundSeconds > 0 { // with what steps of several nodes take beside passes; a node alone takes none
			candidate.LowerBoundSeconds = s.correctedStep(candidate.LowerBoundSeconds, candidate.Pipelines)
		}
		candidate.Idle = s.correctedIdle(candidate.Idle)
		candidate.Score = s.score(candidate)
		if candidate.measurable() {
			all = append(all, candidate)
			continue
		}
		reason = fmt.Errorf("%s: expected a step above 0 s and a finite transition, got %v s and %v s with %v s between failures",
			candidate.Policy, candidate.StepSeconds, candidate.TransitionSeconds, s.SecondsBetweenFailures)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no plan for %d nodes: %w", len(s.Nodes), joined(reason))
	}
	slices.SortStableFunc(all, func(a, b Candidate) int {
		return cmp.Or(
			cmp.Compare(min(b.Replicas, s.MinReplicas), min(a.Replicas, s.MinReplicas)),
			cmp.Compare(b.Score, a.Score),
			cmp.Compare(a.TransitionSeconds, b.TransitionSeconds),
		)
	})
	s.preferStaying(all)
	for i := range all[1:] {
		all[i+1].Rejected = reject(all[0], all[i+1], s.MinReplicas)
	}
	return all, nil
}

// worthMoving is the gain in expected throughput below which nothing is moved for it: times of layers and nodes are
// measured while training runs, and vary. By how much was not measured. With 0.05, what plans after losses in 200 drawn
// clusters lacked to the best came from this margin.
const worthMoving = 0.03

// worthMovingMore is the same between plans that both move something. With 0.03 a cluster of 100 equal nodes went from one bad
// split to the next: it trained 1.2 % slower, and 23 nodes moved in each change in place of 5. With 0, six trainers on a busy
// machine moved 3.8 to 16.5 MiB in five changes, and 7.4 to 7.7 with this.
const worthMovingMore = 0.01

// worthUnsettling is the same where nothing but measurements changed since the plan in force was made. One of 210 plans of equal links,
// each probed up to four times more and off by up to half each time, would change for 6.7 %, and none does (tests/bench/planner).
const worthUnsettling = 0.08

// preferStaying moves one candidate to the front: among those about as good as the first, the one with the shortest
// transition, or the plan in force, if it is as good as measurements can tell.
func (s Situation) preferStaying(all []Candidate) {
	chosen, settled := 0, s.settled()
	for i, candidate := range all {
		gain := all[0].Score - candidate.Score
		switch {
		case min(candidate.Replicas, s.MinReplicas) < min(all[0].Replicas, s.MinReplicas):
		case settled && candidate.Policy == rerouting && gain <= worthUnsettling*all[0].Score:
			chosen, settled = i, false
		case gain <= candidate.margin()*all[0].Score && candidate.TransitionSeconds < all[chosen].TransitionSeconds:
			chosen = i
		}
	}
	first := all[chosen]
	copy(all[1:], all[:chosen])
	all[0] = first
}

// margin is which share of the best score a candidate may lack and be taken for its shorter transition.
func (c Candidate) margin() float64 {
	if c.CopySeconds == 0 {
		return worthMoving
	}
	return worthMovingMore
}

// settled reports whether the nodes are those for which the plan in force was made, and all reach each other now as then.
func (s Situation) settled() bool {
	places := seats(s.Current)
	for _, node := range s.Nodes {
		delete(places, node)
	}
	isSame := len(s.Current) > 0 && len(places) == 0 && len(s.Empty) == 0
	return isSame && !s.Relayed && len(s.Network.Dear) == 0
}

// measurable tells a candidate with figures from one whose layers take no time, or whose links take for ever.
func (c Candidate) measurable() bool {
	finite := func(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
	return c.StepSeconds > 0 && finite(c.StepSeconds) && finite(c.TransitionSeconds) && finite(c.Score)
}

func reject(taken, other Candidate, minReplicas int) string {
	if min(other.Replicas, minReplicas) < min(taken.Replicas, minReplicas) {
		return fmt.Sprintf("a layer would have %d holder(s), where %d are possible", other.Replicas,
			min(taken.Replicas, minReplicas))
	}
	if other.Score < taken.Score {
		return fmt.Sprintf("lower expected throughput: %.4g against %.4g samples a second", other.Score, taken.Score)
	}
	if other.Score > taken.Score {
		return fmt.Sprintf("better by %.1f %%, which is less than moving is worth", 100*(other.Score/taken.Score-1))
	}
	return "no better, and a longer transition or later in order"
}

// joined is the reasons there are, in one.
func joined(reasons ...error) error {
	var all error
	for _, reason := range reasons {
		switch {
		case reason == nil:
		case all == nil:
			all = reason
		default:
			all = fmt.Errorf("%w; %w", all, reason)
		}
	}
	if all == nil {
		return fmt.Errorf("no policy applies")
	}
	return all
}
