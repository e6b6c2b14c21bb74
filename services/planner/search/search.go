package search

import (
	"cmp"
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
)

// Best finds the plan with the smallest step time. Plans of equal step time are told apart by more nodes used, then by
// more pipelines. The same problem always has the same answer.
//
// For a target time, each length has a capacity: the most micro-batches such a pipeline takes within it. The target can
// be met with D pipelines exactly when D lengths fit the nodes and their capacities sum to the batch, and the search
// over targets is a bisection that ends when the next smaller one is proven impossible.
//
// It returns ErrInfeasible, wrapped with the limit that excluded everything, or an error that names the bad field.
func Best(problem Problem) (Result, error) { return Find(problem, Weighed) }

// Fastest is Best without the plans of other data-parallel degrees, which take most of its time. Either plan may be the
// answer if plans of two degrees are equally fast.
func Fastest(problem Problem) (Result, error) { return Find(problem, 1) }

// Find is Best with at most so many plans, of as many data-parallel degrees.
func Find(problem Problem, most int) (Result, error) {
	problem, err := problem.normalised()
	if err != nil {
		return Result{}, err
	}
	return newSearcher(problem).best(most)
}

// best is the answer, and plans of other degrees: so many plans in all at most.
func (s *searcher) best(most int) (Result, error) {
	degrees := s.degrees(max(s.DataParallel.Least, s.MinReplicas), s.DataParallel.Most)
	best, ok := s.fastestOf(degrees, s.Roughly)
	if !ok {
		degrees = s.degrees(s.DataParallel.Least, min(s.DataParallel.Most, s.MinReplicas-1))
		if best, ok = s.fastestOf(degrees, s.Roughly); !ok {
			return Result{}, s.explain()
		}
	}
	var result Result
	bound, proven := degrees[0].step(), false
	if !s.Roughly {
		bound, proven = s.lowerBound(best.step(), degrees)
	}
	for _, mix := range s.rivals(best, degrees, most) {
		result.Considered = append(result.Considered, s.at(mix.pipelines).build(mix))
	}
	result.Plan = result.Considered[0]
	result.LowerBoundSeconds = min(bound, result.StepSeconds)
	if s.Floor != nil {
		result.LowerBoundSeconds = bound
	} else if proven {
		result.LowerBoundSeconds = result.StepSeconds
	}
	return result, nil
}

type searcher struct {
	Problem
	*oracle                     // of plans wider than all shares say
	shares  []*searcher         // of those of each share
	capped  map[int64]*searcher // of those whose stages have at most so many bytes of gradients; looked up, never ranged over
}

func newSearcher(p Problem) *searcher { return newCapped(p, noLimit, new(paths), new(int)) }

func newCapped(p Problem, mostGradient int64, paths *paths, inVain *int) *searcher {
	return &searcher{
		p, newOracle(newModel(p, mostGradient, paths, inVain), p.PipelineLength.Most, p.MicroBatches), make([]*searcher, len(p.Shares)),
		map[int64]*searcher{},
	}
}

// lengthMix is a plan but for the details: how many pipelines there are of each length, and what each can take.
type lengthMix struct {
	pipelines, nodes int
	counts           []int // by length
	*capacities
	starts      [][]int // by length: the split of its pipelines
	seconds     float64 // of the slowest pipeline with all it can take
	syncSeconds float64 // of the all-reduces
}

func (m lengthMix) step() float64 { return m.seconds + m.syncSeconds }

func better(a, b lengthMix) int {
	return cmp.Or(cmp.Compare(a.step(), b.step()), cmp.Compare(b.nodes, a.nodes),
		cmp.Compare(b.pipelines, a.pipelines))
}

// degree is a number of pipelines, and lower bounds on the time of the slowest of them and of their all-reduces.
type degree struct {
	pipelines   int
	floor, sync float64
}

func (d degree) step() float64 { return d.floor + d.sync }

// degrees from least to most that memory allows, the most promising first.
func (s *searcher) degrees(least, most int) []degree {
	var degrees []degree
	for pipelines := least; pipelines <= most; pipelines++ {
		if floor := s.at(pipelines).degreeFloor(pipelines); floor < never {
			// The shortest pipeline has its part of the nodes at most.
			stages := min(s.PipelineLength.Most, s.Nodes/pipelines)
			degrees = append(degrees, degree{pipelines, floor, s.AllReduce.seconds(pipelines, s.leastFullest(stages))})
		}
	}
	slices.SortFunc(degrees, func(a, b degree) int {
		return cmp.Or(cmp.Compare(a.step(), b.step()), cmp.Compare(b.pipelines, a.pipelines))
	})
	return degrees
}

// degreeFloor is a lower bound on the step time of so many pipelines: the work shared by all nodes, and the time of the
// fullest pipeline, which has at least the mean.
func (s *searcher) degreeFloor(pipelines int) float64 {
	nodes := min(s.Nodes, pipelines*s.PipelineLength.Most)
	work := s.total[len(s.layers)] * float64(s.MicroBatches) / float64(nodes) * (1 - 1e-12)
	return max(work, s.shortestTime((s.MicroBatches+pipelines-1)/pipelines))
}

// fastestOf is the fastest mix of all the degrees. One whose floor is no better than what was found is not looked into.
func (s *searcher) fastestOf(degrees []degree, roughly bool) (best lengthMix, ok bool) {
	best.seconds = s.Below
	tolerance, patience := 0.0, len(degrees)
	if roughly {
		tolerance, patience = roughTolerance, roughPatience
		degrees = s.longestFirst(degrees)
	} else {
		best, ok = s.fastestOf(degrees, true)
	}
	for missed := 0; len(degrees) > 0 && missed < patience; degrees = degrees[1:] {
		d, cutoff := degrees[0], best.step()*(1-tolerance)
		if ok && !roughly {
			cutoff = after(cutoff) // as fast is good enough, if it is better otherwise
		}
		if d.step() >= cutoff {
			missed++
			continue
		}
		at := s.at(d.pipelines)
		at.search(roughly)
		mix, faster := at.fastest(d, cutoff, tolerance)
		if !faster || ok && better(mix, best) >= 0 {
			missed++
			continue
		}
		best, ok, missed = mix, true, 0
	}
	return best, ok
}

// longestFirst is the degrees with the one of the longest pipelines in front: where layers are few, those of the next
// degrees are uneven, which their floors do not tell.
func (s *searcher) longestFirst(degrees []degree) []degree {
	longest := slices.IndexFunc(degrees, func(d degree) bool { return d.pipelines == s.Nodes/s.PipelineLength.Most })
	if longest < 0 {
		return degrees
	}
	return slices.Insert(slices.Delete(slices.Clone(degrees), longest, longest+1), 0, degrees[longest])
}

// fastest is the fastest mix of one degree with its all-reduces, or one about within tolerance of it, if it is faster
// than the cutoff. First the pipelines alone decide. Any better mix has less to reduce in its fullest stage, by as much
// as the pipelines cannot become faster, and so on, until they cannot make up for it.
func (s *searcher) fastest(d degree, cutoff, tolerance float64) (best lengthMix, ok bool) {
	for most := int64(noLimit); ; {
		at := s.under(most)
		mix, found := at.trained(d, cutoff-d.sync, tolerance)
		if !found {
			return best, ok
		}
		fullest := mix.fullest(at.gradient)
		mix.syncSeconds = s.AllReduce.seconds(d.pipelines, fullest)
		if s.Floor != nil {
			mix.seconds = max(mix.seconds, s.Floor(d.pipelines))
		}
		if mix.step() < cutoff {
			best, ok, cutoff = mix, true, mix.step()
		}
		d.floor = max(d.floor, mix.seconds/(1+tolerance))
		if d.step() >= cutoff {
			return best, ok
		}
		most = min(fullest-1, s.AllReduce.within(d.pipelines, cutoff-d.floor))
	}
}

// rivals are mixes of other degrees to compare the best with, the best of all first: of the next degrees up and down,
// and of those at which all pipelines could be of one length; of all degrees where these are few. They are
// not searched to the end, so that a better rival may exist, but none that beats the best.
func (s *searcher) rivals(best lengthMix, degrees []degree, most int) []lengthMix {
	distance := func(d degree) int { return max(d.pipelines-best.pipelines, best.pipelines-d.pipelines) }
	degrees = slices.DeleteFunc(slices.Clone(degrees), func(d degree) bool {
		length := s.Nodes / d.pipelines
		near := distance(d) <= 1 || s.Nodes/length == d.pipelines || len(degrees) <= Weighed
		return !near || d.pipelines == best.pipelines
	})
	slices.SortStableFunc(degrees, func(a, b degree) int { return cmp.Compare(distance(a), distance(b)) })
	mixes := []lengthMix{best}
	for _, d := range degrees {
		if len(mixes) == most {
			break
		}
		at := s.at(d.pipelines)
		d.floor = max(d.floor, best.step()-s.AllReduce.seconds(d.pipelines, at.gradient[len(at.layers)]))
		at.search(true)
		if mix, ok := at.fastest(d, never, roughTolerance); ok {
			mixes = append(mixes, mix)
		}
	}
	slices.SortStableFunc(mixes, better)
	return mixes
}

// roughTolerance is how far from the best of its degree a rival may be for lack of trying, beside its split.
const roughTolerance = 1. / 64

// roughPatience is how many degrees in turn may be no better before a rough search ends. The most promising come first.
const roughPatience = 64

// shortestTime is a lower bound on the time of any pipeline with so many micro-batches.
func (s *searcher) shortestTime(microBatches int) float64 {
	if seconds, ok := s.shortest[microBatches]; ok {
		return seconds
	}
	seconds := never
	for length := s.PipelineLength.Least; length <= s.PipelineLength.Most; length++ {
		if s.inMemory[length] >= microBatches {
			seconds = min(seconds, s.floor(length, microBatches))
		}
	}
	s.shortest[microBatches] = seconds
	return seconds
}

// trained is the mix of one degree whose pipelines are fastest, or one within tolerance of it, if they are faster than the
// cutoff.
func (s *searcher) trained(d degree, cutoff, tolerance float64) (lengthMix, bool) {
	best := lengthMix{seconds: never}
	attempt := func(limit float64) (float64, bool) {
		mix, ok := s.mixWithin(d.pipelines, limit, !s.EveryNode)
		if ok {
			best = mix
		}
		return mix.seconds, ok
	}
	if cutoff < never {
		if _, ok := attempt(before(cutoff)); !ok {
			return best, false
		}
	} else if s.counts(d.pipelines, s.inMemory, !s.EveryNode) == nil {
		return best, false
	}
	seconds := descend(d.floor, best.seconds, tolerance, attempt)
	if mix, ok := s.mixWithin(d.pipelines, seconds, false); ok {
		best = mix
	}
	return best, true
}

// mixWithin is a mix of so many pipelines that takes at most limit seconds. Lengths are chosen by what they take at
// best, the chosen ones are looked into, and where that was too much they are chosen again.
func (s *searcher) mixWithin(pipelines int, limit float64, idle bool) (lengthMix, bool) {
	capacities := s.capacities(s.PipelineLength.Least, limit)
	for {
		mix := lengthMix{pipelines: pipelines, capacities: capacities}
		mix.counts = s.counts(pipelines, capacities.most, idle)
		if mix.counts == nil {
			return mix, false
		}
		mix.starts = make([][]int, len(mix.counts))
		right := true
		for length, count := range mix.counts {
			if count == 0 {
				continue
			}
			right = s.settle(capacities, length) && right
			cell := s.cell(length, capacities.most[length])
			mix.nodes += count * length
			mix.seconds, mix.starts[length] = max(mix.seconds, cell.atMost), cell.starts
		}
		if right {
			return mix, true
		}
	}
}

// counts of each length in a mix of so many pipelines that takes all micro-batches; nil where there is none. With idle
// set, a pipeline may leave some of the nodes it is given unused.
func (s *searcher) counts(pipelines int, most []int, idle bool) []int {
	least, nodes := s.PipelineLength.Least, s.Nodes
	slots, held := slices.Clone(most[least:]), make([]int, len(most)-least)
	for i := range slots {
		held[i] = least + i
		if idle && i > 0 && slots[i-1] > slots[i] {
			slots[i], held[i] = slots[i-1], held[i-1]
		}
	}
	if idle {
		nodes = min(nodes, pipelines*s.PipelineLength.Most)
	}
	chosen := mix(slots, pipelines, nodes-pipelines*least, s.MicroBatches)
	if chosen == nil {
		return nil
	}
	counts := make([]int, len(most))
	for i, count := range chosen {
		counts[held[i]] += count
	}
	return counts
}

// build hands out the micro-batches: what each pipeline can take within the limit, less one each in turn until the sum
// is right. All pipelines of one length keep the split of the fullest, so that their stages hold the same layers.
func (s *searcher) build(mix lengthMix) Plan {
	plan, left := Plan{}, -s.MicroBatches
	for length, count := range mix.counts {
		if count == 0 {
			continue
		}
		most := mix.most[length]
		stages := ranges(mix.starts[length])
		for range count {
			plan.Pipelines = append(plan.Pipelines, Pipeline{MicroBatches: most, Stages: stages})
		}
		left += count * most
	}
	for j := 0; left > 0; j = (j + 1) % len(plan.Pipelines) {
		if plan.Pipelines[j].MicroBatches > 1 {
			plan.Pipelines[j].MicroBatches--
			left--
		}
	}
	for j, pipeline := range plan.Pipelines {
		if j > 0 && sameShape(pipeline, plan.Pipelines[j-1]) {
			continue
		}
		stages := estimate.OfLayers(s.Layers, pipeline.Stages, pipeline.MicroBatches, s.Problem.TransferSeconds)
		plan.StepSeconds = max(plan.StepSeconds, estimate.OneForwardOneBackward(stages).MakespanSeconds)
	}
	plan.StepSeconds += mix.syncSeconds
	return plan
}

func sameShape(a, b Pipeline) bool {
	return a.MicroBatches == b.MicroBatches && len(a.Stages) == len(b.Stages)
}
