package policy

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/reknit/reknit/services/planner/search"
)

var anew = Policy{Name: "repipeline", Propose: repipeline}

// repipeline plans anew for the nodes there are: how many pipelines, how long, which layers where, how many
// micro-batches for whom (Chameleon IV-C), and who sits where. One candidate for each data-parallel degree.
//
// The search takes nodes and links as alike and is exact then. It is asked several times if they are not: for all nodes
// with the smallest memory, and for all or for the better ones with a larger memory or speed. Splits by what each node
// can hold and train come beside. The figures of a candidate are always those of its own nodes and links.
func repipeline(s Situation) ([]Candidate, error) {
	candidates, err := s.searched()
	candidates = append(candidates, s.fewer()...)
	if len(candidates) == 0 {
		return nil, err
	}
	if s.unequal() {
		bounds := map[int]float64{} // by holders; looked up, never ranged over
		for i := range candidates {
			replicas := min(candidates[i].Replicas, s.MinReplicas)
			if _, known := bounds[replicas]; !known {
				bounds[replicas] = s.lowerBound(replicas)
			}
			candidates[i].LowerBoundSeconds = bounds[replicas]
		}
	}
	return candidates, nil
}

// searched is what the searches for all nodes find, or why they find nothing.
func (s Situation) searched() ([]Candidate, error) {
	t := s.newSeating()
	var candidates []Candidate
	var ofAll []search.Plan // seated among all nodes
	var refused error
	isMemoryEnough, first := false, search.Plan{}
	for i, choice := range s.choices() {
		if choice.larger && isMemoryEnough {
			continue
		}
		found, err := s.found(choice, i == 0, t.fastest)
		if err != nil {
			refused = cmp.Or(refused, err)
			continue
		}
		if i == 0 {
			first = found.Plan
		} else if choice.larger && len(s.Nodes) > mostTried {
			isMemoryEnough = samePlan(first, found.Plan)
		}
		plans := slices.Clip(found.Considered) // others may have it too
		if i == 0 {
			plans = append(plans, s.whole(choice, min(s.MinReplicas, len(found.Pipelines)))...)
		} else {
			plans = s.firstOfShares(plans)
		}
		for _, plan := range plans {
			if len(choice.nodes) == len(s.Nodes) {
				if slices.ContainsFunc(ofAll, func(other search.Plan) bool { return samePlan(plan, other) }) {
					continue
				}
				ofAll = append(ofAll, plan)
			}
			if !t.isPromising(plan) {
				continue
			}
			candidate, err := t.seat(plan, choice)
			if err != nil {
				refused = cmp.Or(refused, err)
				continue
			}
			candidate.LowerBoundSeconds = found.LowerBoundSeconds
			if !slices.ContainsFunc(candidates, candidate.same) {
				candidates = append(candidates, candidate)
			}
		}
	}
	if longer, better := t.longer(); better {
		at := slices.IndexFunc(candidates, t.promising.candidate.same)
		longer.LowerBoundSeconds = candidates[at].LowerBoundSeconds
		candidates[at] = longer
	}
	return append(candidates, s.uneven(t.known)...), refused
}

// found is the fastest plans for a choice: of several data-parallel degrees, or where how many partitions a pipeline keeps depends on that.
// It looks for none that cannot beat the fastest step there is, were all nodes as fast as the best of the choice. Plans of other degrees
// take longer to seat than they are likely to be worth, if there are many unequal nodes.
func (s Situation) found(choice choice, several bool, fastest float64) (search.Result, error) {
	problem := s.problem(len(choice.nodes), choice.memory, s.MinReplicas)
	slowest, best := s.speed(choice.nodes[len(choice.nodes)-1]), s.speed(choice.nodes[0])
	problem.Layers = faster(problem.Layers, slowest)
	for i := range problem.Shares {
		problem.Shares[i].Layers = faster(problem.Shares[i].Layers, slowest)
	}
	if !math.IsInf(fastest, 1) && !s.Network.hasFaster() {
		problem.Below = fastest * best / slowest
		problem.DataParallel.Least = max(problem.DataParallel.Least, s.MinReplicas)
	}
	problem.Roughly = s.unequal() && len(s.Nodes) > mostTried
	if several && !(s.unequal() && len(s.Nodes) > mostRefined) || s.Partitions > 0 {
		return s.find(problem, search.Weighed)
	}
	return s.find(problem, 1)
}

// find has somebody search who may know the answer.
func (s Situation) find(problem search.Problem, most int) (search.Result, error) {
	if s.Find == nil {
		return search.Find(problem, most)
	}
	return s.Find(problem, most)
}

// whole is the plans of at least so many pipelines that there would be if the optimizer state were not partitioned:
// they fit where it is. The search counts no all-reduce, and among its rivals in wider plans, that fit now, there may
// be none of these.
func (s Situation) whole(choice choice, least int) []search.Plan {
	if s.Partitions == 0 {
		return nil
	}
	problem := s.problem(len(choice.nodes), choice.memory, least)
	problem.Layers, problem.Shares = s.keeping(0).Layers, nil
	problem.DataParallel.Least = max(problem.DataParallel.Least, least)
	found, _ := s.find(problem, search.Weighed)
	return found.Considered
}

// firstOfShares is, for each number of partitions that a pipeline may keep, the first of the plans in which it is so
// many: where one does not fit the nodes, one that keeps fewer may. Without partitions it is the first of all.
func (s Situation) firstOfShares(plans []search.Plan) []search.Plan {
	var firsts []search.Plan
	isKnown := map[int]bool{}
	for _, plan := range plans {
		if kept := s.mostKept(len(plan.Pipelines)); !isKnown[kept] {
			isKnown[kept] = true
			firsts = append(firsts, plan)
		}
	}
	return firsts
}

// samePlan reports whether two plans train the same layers on as many micro-batches.
func samePlan(a, b search.Plan) bool {
	return slices.EqualFunc(a.Pipelines, b.Pipelines, func(a, b search.Pipeline) bool {
		return a.MicroBatches == b.MicroBatches && slices.Equal(a.Stages, b.Stages)
	})
}

// same reports whether two candidates are one plan.
func (c Candidate) same(other Candidate) bool {
	return slices.EqualFunc(c.Pipelines, other.Pipelines, samePipeline)
}

func (s Situation) problem(nodes int, memory int64, minReplicas int) search.Problem {
	widest := s.widest(nodes)
	return search.Problem{
		Nodes: nodes, NodeMemoryBytes: memory, Layers: s.withPipelines(widest).Layers, Shares: s.shares(widest),
		MicroBatches:    s.MicroBatches,
		TransferSeconds: s.Network.TransferSeconds, DataParallel: s.DataParallel, PipelineLength: s.PipelineLength,
		MinReplicas: minReplicas, AllReduce: s.allReduce(s.Network.usual()),
	}
}

// choice is the nodes to plan for, and what each of them is taken to hold. The largest memory is tried first: where it
// changes nothing, no other does.
type choice struct {
	nodes  []int
	memory int64
	larger bool // than some of all nodes have
}

// mostLevels is how many larger memories, and higher speeds, are tried; of many nodes only the largest memory.
const mostLevels = 3

func (s Situation) choices() []choice {
	all := make([]int, len(s.Nodes))
	for i := range all {
		all[i] = i
	}
	if s.Speed != nil { // the fastest first, so that fast ones share pipelines
		slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(s.Speed[b], s.Speed[a]) })
	}
	choices := []choice{{nodes: all, memory: slices.Min(s.MemoryBytes)}}
	memories := levels(s.MemoryBytes)
	if len(s.Nodes) > mostRefined {
		memories = memories[max(0, len(memories)-1):]
	}
	for _, memory := range slices.Backward(memories) {
		enough := slices.DeleteFunc(slices.Clone(all), func(node int) bool { return s.MemoryBytes[node] < memory })
		choices = append(choices, choice{all, memory, true}, choice{enough, memory, true})
	}
	for _, speed := range levels(s.Speed) {
		fast := slices.DeleteFunc(slices.Clone(all), func(node int) bool { return s.Speed[node] < speed })
		least := s.MemoryBytes[fast[0]]
		for _, node := range fast {
			least = min(least, s.MemoryBytes[node])
		}
		choices = append(choices, choice{nodes: fast, memory: least})
	}
	return choices
}

// levels are some of the values above the least, evenly.
func levels[T cmp.Ordered](values []T) []T {
	distinct := slices.Compact(slices.Sorted(slices.Values(values)))
	if len(distinct) < 2 {
		return nil
	}
	distinct = distinct[1:]
	if len(distinct) <= mostLevels {
		return distinct
	}
	var some []T
	for i := range mostLevels {
		some = append(some, distinct[i*(len(distinct)-1)/(mostLevels-1)])
	}
	return some
}

// unequal reports whether nodes or links differ in what the search takes as equal.
func (s Situation) unequal() bool {
	return s.Speed != nil || len(s.Network.Links) > 0 || slices.Min(s.MemoryBytes) != slices.Max(s.MemoryBytes)
}

// Shape writes the lengths of a plan's pipelines, such as 2+3.
func (c Candidate) Shape() string {
	lengths := make([]string, len(c.Pipelines))
	for i, pipeline := range c.Pipelines {
		lengths[i] = strconv.Itoa(len(pipeline.Stages))
	}
	return strings.Join(lengths, "+")
}
