package policy

import (
	"math"
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/place"
	"github.com/reknit/reknit/services/planner/search"
)

// seating gives plans' places to nodes. It remembers the best candidate so far: a plan that would not beat it even on
// equal links is not worth a search for better seats.
type seating struct {
	situation Situation
	known     known
	holds     []estimate.Range
	apart     []place.Pair  // nodes that had better not talk, and the seconds it costs
	network   place.Network // all links; none where they are equal, or too many
	classes   [][]string
	replicas  int     // that the best has, as far as they count
	best      float64 // score
	fastest   float64 // step of those with the replicas asked for
	seated    float64 // the least that a step takes with real nodes, beside that with like ones
	// How many more candidates may be refined: all of a small cluster, the two most promising of a large one.
	refinements int
	promising   *promise // the best that may be refined for longer; nil for none
}

// promise is a plan and its best seats so far.
type promise struct {
	draft     draft
	candidate Candidate
	onUsual   float64 // its step if all links were usual
}

// mostRefined is the most nodes whose links are all looked at. Beyond, only pairs with dear links are kept apart.
const mostRefined = 512

func (s Situation) newSeating() *seating {
	s = s.timed()
	t := &seating{
		situation: s, known: s.known(), holds: s.holds(), apart: s.dearPairs(), classes: s.classes(),
		refinements: max(2, 512/len(s.Nodes)), fastest: math.Inf(1), seated: 1,
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

// classes groups the nodes that may trade places: of one memory and speed, with equal links to all others.
func (s Situation) classes() (classes [][]string) {
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
	s := t.situation.withPipelines(len(plan.Pipelines))
	d := draft{seating: t, situation: s, plan: plan, among: among, problem: s.places(plan, among, t.holds)}
	assignment, err := place.Assign(d.problem)
	if err != nil {
		return Candidate{}, err
	}
	candidate := d.candidate(assignment)
	if fastest, slowest := among.nodes[0], among.nodes[len(among.nodes)-1]; s.speed(fastest) > s.speed(slowest) {
		d, candidate = d.paced(candidate)
	}
	onUsual := 0.0
	if len(t.apart)+len(s.Network.Links) > 0 {
		hope, equal := candidate, s
		equal.Network.Links, equal.Network.Dear = nil, nil
		hope.StepSeconds = equal.stepSeconds(t.known.wires.usual(), candidate.Pipelines)
		if t.mayWin(s, hope) && t.refinements > 0 {
			t.refinements--
			onUsual = hope.StepSeconds
			if refined := d.refined(candidate, hope.StepSeconds); s.worthReseating(candidate, refined) {
				candidate = refined
			}
		}
	}
	if t.mayWin(s, candidate) {
		t.replicas, t.best = min(candidate.Replicas, s.MinReplicas), s.score(candidate)
		t.promising = &promise{d, candidate, onUsual}
	}
	t.seated = min(t.seated, candidate.StepSeconds/plan.StepSeconds)
	if candidate.Replicas >= s.MinReplicas {
		t.fastest = min(t.fastest, candidate.StepSeconds)
	}
	return candidate, nil
}

// mayWin reports whether a candidate is better than the best so far: replicas count before the score (Weigh).
func (t *seating) mayWin(s Situation, candidate Candidate) bool {
	replicas := min(candidate.Replicas, s.MinReplicas)
	return replicas > t.replicas || replicas == t.replicas && s.score(candidate) > t.best
}

// mostSeated is the most nodes among which every plan is seated.
const mostSeated = 64

// isPromising reports whether a plan may be taken, were its nodes seated as well as those of the best so far, a little
// better, and nothing to move. Many nodes take too long to be seated for a plan that may not.
func (t *seating) isPromising(plan search.Plan) bool {
	if len(t.situation.Nodes) <= mostSeated || !t.situation.unequal() {
		return true
	}
	const better = 0.95
	return t.mayWin(t.situation, Candidate{
		StepSeconds: better * t.seated * plan.StepSeconds, TransitionSeconds: t.situation.SwitchSeconds,
		Replicas: len(plan.Pipelines),
	})
}

// worthReseating reports whether seats chosen by the links are worth it, against those that let nodes keep most. A pair
// whose link was cut is kept apart wherever that helps.
func (s Situation) worthReseating(stay, move Candidate) bool {
	if len(s.Network.Dear) > 0 || move.TransitionSeconds <= stay.TransitionSeconds {
		return s.score(move) > s.score(stay)
	}
	return s.score(move)*(1-worthMoving) > s.score(stay)
}

// places are a plan's places and the nodes that may take them.
func (s Situation) places(plan search.Plan, among choice, holds []estimate.Range) place.Problem {
	nodes := len(among.nodes) // and no more places
	problem := place.Problem{
		LayerBytes: s.StateBytes, Places: make([]place.Place, 0, nodes), NeedBytes: make([]int64, 0, nodes),
		Holds: make([]estimate.Range, 0, nodes), MemoryBytes: make([]int64, 0, nodes),
	}
	for p, pipeline := range plan.Pipelines {
		peaks := s.peakBytes(pipeline.Stages, pipeline.MicroBatches)
		for st, layers := range pipeline.Stages {
			problem.Places = append(problem.Places, place.Place{Pipeline: p, Stage: st, Layers: layers})
			problem.NeedBytes = append(problem.NeedBytes, peaks[st])
		}
	}
	for _, node := range among.nodes {
		problem.Holds = append(problem.Holds, holds[node])
		problem.MemoryBytes = append(problem.MemoryBytes, s.MemoryBytes[node])
	}
	if slices.Min(problem.MemoryBytes) >= slices.Max(problem.NeedBytes) { // memory excludes nobody
		problem.NeedBytes, problem.MemoryBytes = nil, nil
	}
	return problem
}

// longer is what a long search makes of the best first plan, and whether it is better, or costs the network less (DT-FM eq. 1 to 4)
// for a step that is about as long. Once nodes hold layers, moving these costs more than such a search finds. 64 nodes
// take 0.6 s of CPU.
func (t *seating) longer() (refined Candidate, better bool) {
	if t.promising == nil || t.network.DelaySeconds == nil || len(t.situation.Current) > 0 {
		return Candidate{}, false
	}
	d, candidate := t.promising.draft, t.promising.candidate
	if candidate.StepSeconds <= t.promising.onUsual && !d.situation.Network.hasFaster() {
		return Candidate{}, false // there is none
	}
	number := make(map[string]int, len(d.among.nodes)) // of a node among those to choose from
	for i, node := range d.among.nodes {
		number[d.situation.Nodes[node]] = i
	}
	var start place.Assignment
	for _, seat := range d.problem.Places {
		start.NodeOf = append(start.NodeOf, number[candidate.Pipelines[seat.Pipeline].Stages[seat.Stage].Node])
	}
	links, nodes := d.communication(), len(d.among.nodes)
	links.Moves = min(100*nodes*nodes, 50_000_000/nodes)
	refined = d.candidate(d.problem.Refine(start, links)) // costs the network no more than the start
	return refined, d.situation.score(refined) > (1-worthMoving)*d.situation.score(candidate)
}

// draft is a plan whose places are being given to nodes.
type draft struct {
	seating   *seating
	situation Situation // with as many pipelines as the plan
	plan      search.Plan
	among     choice
	problem   place.Problem // its nodes are numbered as among lists them
}

// refined is the best of the candidate as it is, with dear pairs kept apart, and with all links taken into account. The
// last takes longest, and cannot help where a step already takes no more than on usual links and none is faster.
func (d draft) refined(candidate Candidate, onUsualLinks float64) Candidate {
	number := map[int]int{} // of a node among those to choose from
	for i, node := range d.among.nodes {
		number[node] = i
	}
	for _, pair := range d.seating.apart {
		a, one := number[pair.A]
		b, other := number[pair.B]
		if one && other {
			d.problem.Dear = append(d.problem.Dear, place.Pair{A: a, B: b, Cost: pair.Cost})
		}
	}
	assignment, err := place.Assign(d.problem)
	if err != nil {
		return candidate
	}
	better := func(assignment place.Assignment) {
		if other := d.candidate(assignment); d.situation.score(other) > d.situation.score(candidate) {
			candidate = other
		}
	}
	better(assignment)
	isBest := candidate.StepSeconds <= onUsualLinks && !d.situation.Network.hasFaster()
	if d.seating.network.DelaySeconds != nil && !isBest {
		better(d.problem.Refine(assignment, d.communication()))
	}
	return candidate
}

func (d draft) communication() place.Communication {
	microBatches := map[int]int{} // by length of the pipeline
	for _, pipeline := range d.plan.Pipelines {
		microBatches[len(pipeline.Stages)] = pipeline.MicroBatches
	}
	s, nodes := d.situation, len(d.among.nodes)
	c := place.Communication{
		ActivationBytes: float64(s.Network.ActivationBytes), FetchBytesPerSecond: s.Network.BytesPerSecond,
		HorizonSteps: s.SecondsBetweenFailures / max(d.plan.StepSeconds, 1e-9),
		Moves:        min(100*nodes, 1_600_000/nodes),
		// In the steady state a chain of transfers there and back delays every so many micro-batches as there are stages.
		Rounds: func(length int) float64 { return 1 + float64(microBatches[length]-1)/float64(length) },
	}
	for _, bytes := range s.GradientBytes {
		c.GradientBytes = append(c.GradientBytes, float64(bytes))
	}
	links := d.seating.network
	for _, a := range d.among.nodes {
		var delays, rates []float64
		for _, b := range d.among.nodes {
			delays, rates = append(delays, links.DelaySeconds[a][b]), append(rates, links.BytesPerSecond[a][b])
		}
		c.Network.DelaySeconds = append(c.Network.DelaySeconds, delays)
		c.Network.BytesPerSecond = append(c.Network.BytesPerSecond, rates)
	}
	return c
}

// candidate fills in the figures of the plan with its places taken.
func (d draft) candidate(assignment place.Assignment) Candidate {
	pipelines := make([]Pipeline, len(d.plan.Pipelines))
	for p, pipeline := range d.plan.Pipelines {
		pipelines[p] = Pipeline{MicroBatches: pipeline.MicroBatches, Stages: make([]Stage, 0, len(pipeline.Stages))}
	}
	s := d.situation
	for i, seat := range d.problem.Places {
		pipeline, node := &pipelines[seat.Pipeline], d.among.nodes[assignment.NodeOf[i]]
		pipeline.Stages = append(pipeline.Stages, Stage{Node: s.Nodes[node], Layers: seat.Layers})
	}
	if s.Speed != nil || len(s.Network.Links) > 0 {
		pipelines = s.balanced(pipelines, d.seating.known.wires)
	}
	c := s.figured(d.seating.known, pipelines)
	c.Classes = d.seating.classes
	return c
}

// balanced shares the micro-batches anew by what each pipeline takes on its own nodes and links, where that is faster
// and memory allows it.
func (s Situation) balanced(pipelines []Pipeline, w wires) []Pipeline {
	clocks := s.clocks(w, pipelines)
	balanced := clocks.shared(pipelines, s.MicroBatches)
	for p := range balanced {
		for st, peak := range s.peakBytes(members(balanced[p : p+1])[0].Stages, balanced[p].MicroBatches) {
			if peak > s.MemoryBytes[w.node[balanced[p].Stages[st].Node]] {
				return pipelines
			}
		}
	}
	if clocks.slowest(balanced) < clocks.slowest(pipelines) {
		return balanced
	}
	return pipelines
}
