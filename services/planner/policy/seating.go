package policy

import (
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/place"
	"github.com/reknit/reknit/services/planner/search"
)

// seating gives plans' places to nodes. It remembers the best candidate so far: a plan that would not beat it even on
// equal links is not worth a search for better seats. Its situation has as many pipelines as the plan at hand.
type seating struct {
	Situation
	wires   wires
	holds   []estimate.Range
	apart   []place.Pair  // nodes that had better not talk, and the seconds it costs
	network place.Network // all links; none where they are equal, or too many
	classes [][]string
	best    float64 // score
	// How many more candidates may be refined: all of a small cluster, the two most promising of a large one.
	refinements int
}

// mostRefined is the most nodes whose links are all looked at. Beyond, only pairs with dear links are kept apart.
const mostRefined = 512

func (s Situation) newSeating() *seating {
	t := &seating{
		Situation: s, wires: s.wires(), holds: s.holds(), apart: s.dearPairs(), classes: s.Classes(),
		refinements: max(2, 512/len(s.Nodes)),
	}
	for _, pair := range s.unusualPairs() {
		if more := pair.Cost - s.Network.TransferSeconds; more > 0 {
			t.apart = append(t.apart, place.Pair{A: pair.A, B: pair.B, Cost: 2 * more})
		}
	}
	isEqual := len(s.Network.Dear)+len(s.Network.Links) == 0
	if len(s.Nodes) <= mostRefined && !isEqual && s.Network.BytesPerSecond > 0 {
		t.network = s.network()
	}
	return t
}

// dearPairs are the pairs without a direct link, and the seconds that each adds to a step.
func (s Situation) dearPairs() (pairs []place.Pair) {
	for _, pair := range s.Network.Dear {
		pairs = append(pairs, place.Pair{A: pair[0], B: pair[1], Cost: s.Network.DearSeconds})
	}
	return pairs
}

// unusualPairs are the pairs with an unusual link, and the seconds of a transfer, both directions averaged.
func (s Situation) unusualPairs() (pairs []place.Pair) {
	w := s.wires()
	for _, link := range s.Network.Links {
		if _, back := w.unusual[[2]int{link.To, link.From}]; back && link.To < link.From {
			continue // counted with the other direction
		}
		seconds := s.Network.transferSeconds(w.both(link.From, link.To))
		pairs = append(pairs, place.Pair{A: link.From, B: link.To, Cost: seconds})
	}
	return pairs
}

// Classes groups the nodes that may trade places: of one memory and speed, with equal links to all others.
func (s Situation) Classes() (classes [][]string) {
	links := append(s.dearPairs(), s.unusualPairs()...)
	for _, class := range place.Classes(len(s.Nodes), links, s.kinds(s.wires())) {
		var names []string
		for _, node := range class {
			names = append(names, s.Nodes[node])
		}
		classes = append(classes, names)
	}
	return classes
}

// network is all links, both directions averaged. A pair that goes through the hub has the hub's cost added to its
// delay.
func (s Situation) network() place.Network {
	n, w := place.Network{}, s.wires()
	for a := range s.Nodes {
		n.DelaySeconds = append(n.DelaySeconds, make([]float64, len(s.Nodes)))
		n.BytesPerSecond = append(n.BytesPerSecond, make([]float64, len(s.Nodes)))
		for b := range s.Nodes {
			link := w.both(a, b)
			n.DelaySeconds[a][b], n.BytesPerSecond[a][b] = link.LatencySeconds, link.BytesPerSecond
		}
	}
	for _, pair := range s.Network.Dear {
		n.DelaySeconds[pair[0]][pair[1]] += s.Network.DearSeconds / 2
		n.DelaySeconds[pair[1]][pair[0]] += s.Network.DearSeconds / 2
	}
	return n
}

// kinds tells nodes of different memory or speed apart, and each node with a link that is not the same both ways.
func (s Situation) kinds(w wires) []int {
	type kind struct {
		memory int64
		speed  float64
	}
	kinds, numbers := make([]int, len(s.Nodes)), map[kind]int{} // looked up, never ranged over
	for node := range s.Nodes {
		k := kind{memory: s.MemoryBytes[node]}
		if s.Speed != nil {
			k.speed = s.Speed[node]
		}
		if _, known := numbers[k]; !known {
			numbers[k] = len(numbers)
		}
		kinds[node] = numbers[k]
	}
	for _, link := range s.Network.Links {
		back, measured := w.unusual[[2]int{link.To, link.From}]
		if !measured || back.LatencySeconds != link.LatencySeconds || back.BytesPerSecond != link.BytesPerSecond {
			kinds[link.From], kinds[link.To] = -1-link.From, -1-link.To
		}
	}
	return kinds
}

// seat gives a plan's places to nodes: as few layers as possible move; then, where links are unequal and the plan may
// still win, so that slow ones are used least.
func (t *seating) seat(plan search.Plan, among choice) (Candidate, error) {
	t.Situation = t.withPipelines(len(plan.Pipelines))
	problem := t.places(plan, among)
	assignment, err := place.Assign(problem)
	if err != nil {
		return Candidate{}, err
	}
	candidate := t.candidate(plan, problem, assignment, among)
	if len(t.apart)+len(t.Network.Links) > 0 {
		hope, equal := candidate, t.Situation
		equal.Network.Links, equal.Network.Dear = nil, nil
		hope.StepSeconds = equal.stepSeconds(candidate.Pipelines)
		if t.score(hope) > t.best && t.refinements > 0 {
			t.refinements--
			if refined := t.refined(candidate, plan, problem, among); t.worthMoving(candidate, refined) {
				candidate = refined
			}
		}
	}
	t.best = max(t.best, t.score(candidate))
	return candidate, nil
}

// worthMoving reports whether seats chosen by the links are worth it, against those that let nodes keep most. A pair
// whose link was cut is kept apart wherever that helps.
func (t *seating) worthMoving(stay, move Candidate) bool {
	if len(t.Network.Dear) > 0 || move.TransitionSeconds <= stay.TransitionSeconds {
		return t.score(move) > t.score(stay)
	}
	return t.score(move)*(1-worthMoving) > t.score(stay)
}

// places are a plan's places and the nodes that may take them.
func (t *seating) places(plan search.Plan, among choice) place.Problem {
	problem := place.Problem{LayerBytes: t.StateBytes}
	for p, pipeline := range plan.Pipelines {
		peaks := estimate.PeakBytes(t.Layers, pipeline.Stages, pipeline.MicroBatches)
		for st, layers := range pipeline.Stages {
			problem.Places = append(problem.Places, place.Place{Pipeline: p, Stage: st, Layers: layers})
			problem.NeedBytes = append(problem.NeedBytes, peaks[st])
		}
	}
	for _, node := range among.nodes {
		problem.Holds = append(problem.Holds, t.holds[node])
		problem.MemoryBytes = append(problem.MemoryBytes, t.MemoryBytes[node])
	}
	if slices.Min(problem.MemoryBytes) >= slices.Max(problem.NeedBytes) { // memory excludes nobody
		problem.NeedBytes, problem.MemoryBytes = nil, nil
	}
	return problem
}

// refined is the best of the candidate as it is, with dear pairs kept apart, and with all links taken into account.
func (t *seating) refined(candidate Candidate, plan search.Plan, problem place.Problem, among choice) Candidate {
	number := map[int]int{} // of a node among those to choose from
	for i, node := range among.nodes {
		number[node] = i
	}
	for _, pair := range t.apart {
		a, one := number[pair.A]
		b, other := number[pair.B]
		if one && other {
			problem.Dear = append(problem.Dear, place.Pair{A: a, B: b, Cost: pair.Cost})
		}
	}
	assignment, err := place.Assign(problem)
	if err != nil {
		return candidate
	}
	apart := t.candidate(plan, problem, assignment, among)
	if t.score(apart) > t.score(candidate) {
		candidate = apart
	}
	if t.network.DelaySeconds == nil {
		return candidate
	}
	assignment = problem.Refine(assignment, t.communication(plan, among))
	if refined := t.candidate(plan, problem, assignment, among); t.score(refined) > t.score(candidate) {
		candidate = refined
	}
	return candidate
}

func (t *seating) communication(plan search.Plan, among choice) place.Communication {
	microBatches := map[int]int{} // by length of the pipeline
	for _, pipeline := range plan.Pipelines {
		microBatches[len(pipeline.Stages)] = pipeline.MicroBatches
	}
	c := place.Communication{
		ActivationBytes: float64(t.Network.ActivationBytes), FetchBytesPerSecond: t.Network.BytesPerSecond,
		HorizonSteps: t.SecondsBetweenFailures / max(plan.StepSeconds, 1e-9),
		Moves:        min(100*len(among.nodes), 1_600_000/len(among.nodes)),
		// In the steady state a chain of transfers there and back delays every so many micro-batches as there are
		// stages.
		Rounds: func(length int) float64 { return 1 + float64(microBatches[length]-1)/float64(length) },
	}
	for _, bytes := range t.GradientBytes {
		c.GradientBytes = append(c.GradientBytes, float64(bytes))
	}
	for _, a := range among.nodes {
		var delays, rates []float64
		for _, b := range among.nodes {
			delays, rates = append(delays, t.network.DelaySeconds[a][b]), append(rates, t.network.BytesPerSecond[a][b])
		}
		c.Network.DelaySeconds, c.Network.BytesPerSecond = append(c.Network.DelaySeconds, delays),
			append(c.Network.BytesPerSecond, rates)
	}
	return c
}

// candidate fills in the figures of a plan whose places are taken.
func (t *seating) candidate(plan search.Plan, problem place.Problem, assignment place.Assignment,
	among choice) Candidate {
	var pipelines []Pipeline
	for _, pipeline := range plan.Pipelines {
		pipelines = append(pipelines, Pipeline{MicroBatches: pipeline.MicroBatches})
	}
	for i, seat := range problem.Places {
		pipeline := &pipelines[seat.Pipeline]
		pipeline.Stages = append(pipeline.Stages,
			Stage{Node: t.Nodes[among.nodes[assignment.NodeOf[i]]], Layers: seat.Layers})
	}
	if t.Speed != nil || len(t.Network.Links) > 0 {
		pipelines = t.balanced(pipelines)
	}
	c := t.figured(pipelines)
	c.Classes = t.classes
	return c
}

// balanced shares the micro-batches anew by what each pipeline takes on its own nodes and links, where that is faster
// and memory allows it.
func (t *seating) balanced(pipelines []Pipeline) []Pipeline {
	shares := search.OptimalBatches(t.MicroBatches, len(pipelines), func(p, microBatches int) float64 {
		pipeline := pipelines[p]
		pipeline.MicroBatches = microBatches
		return estimate.OneForwardOneBackward(t.pipeline(t.wires, pipeline)).MakespanSeconds
	})
	balanced := slices.Clone(pipelines)
	for p := range balanced {
		balanced[p].MicroBatches = shares[p]
		for st, peak := range estimate.PeakBytes(t.Layers, members(balanced[p : p+1])[0].Stages, shares[p]) {
			if peak > t.MemoryBytes[t.wires.node[balanced[p].Stages[st].Node]] {
				return pipelines
			}
		}
	}
	if t.stepSeconds(balanced) < t.stepSeconds(pipelines) {
		return balanced
	}
	return pipelines
}
