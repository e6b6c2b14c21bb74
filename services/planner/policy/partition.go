package policy

import (
	"slices"

	"github.com/reknit/reknit/services/planner/search"
)

// The part of the optimizer state that a pipeline keeps depends on the number of pipelines, if that state is
// partitioned (ZeRO stage 1, Rajbhandari et al. 2020). The search knows that; other planning code works on the
// situation withPipelines.

// withPipelines is the situation for a plan of so many pipelines. The pipelines may keep different numbers of
// partitions; the layers here take what they do in the pipeline that keeps most. A plan of more pipelines takes no more
// memory.
func (s Situation) withPipelines(pipelines int) Situation { return s.keeping(s.mostKept(pipelines)) }

// shares are the layers in plans of fewer pipelines than the widest, as far as they take more there.
func (s Situation) shares(widest int) []search.Share {
	var shares []search.Share
	for pipelines := 1; pipelines < widest; pipelines++ {
		if s.mostKept(pipelines) != s.mostKept(pipelines+1) {
			shares = append(shares, search.Share{Pipelines: pipelines, Layers: s.withPipelines(pipelines).Layers})
		}
	}
	return shares
}

// widest is the most pipelines that so many nodes can be.
func (s Situation) widest(nodes int) int {
	most := min(nodes, s.MicroBatches)
	if s.DataParallel.Most > 0 {
		most = min(most, s.DataParallel.Most)
	}
	return most
}

// copies is how many of so many pipelines keep each partition.
func (s Situation) copies(pipelines int) int { return min(max(1, s.MinReplicas), pipelines) }

// mostKept is the most partitions that one of so many pipelines keeps.
func (s Situation) mostKept(pipelines int) int {
	return (s.copies(pipelines)*s.Partitions + pipelines - 1) / pipelines
}

// lists returns the partitions of each of so many pipelines, ascending: pipeline i takes its even part of the copies
// times 0..Partitions-1, one behind the other. No two lists differ in length by more than one.
func (s Situation) lists(pipelines int) [][]int {
	lists, slots := make([][]int, pipelines), s.copies(pipelines)*s.Partitions
	for i := range lists {
		for slot := i * slots / pipelines; slot < (i+1)*slots/pipelines; slot++ {
			lists[i] = append(lists[i], slot%s.Partitions)
		}
		slices.Sort(lists[i])
	}
	return lists
}

// dealt is pipelines with their partitions. Which pipeline keeps which list is free, so each takes the one that its
// first node keeps under the plan in force, if there is such a list, and then the others take what is left: where a
// plan is in force already, nothing moves. Lists that are there are not kept.
func (s Situation) dealt(pipelines []Pipeline) []Pipeline {
	pipelines = slices.Clone(pipelines)
	for p := range pipelines {
		pipelines[p].Partitions = nil
	}
	if s.Partitions == 0 {
		return pipelines
	}
	left, isDealt := s.lists(len(pipelines)), make([]bool, len(pipelines))
	has := s.kept(s.Current)
	for p := range pipelines {
		list, known := has[pipelines[p].Stages[0].Node]
		if at := slices.IndexFunc(left, func(other []int) bool { return slices.Equal(list, other) }); known && at >= 0 {
			pipelines[p].Partitions, isDealt[p] = list, true
			left = slices.Delete(left, at, at+1)
		}
	}
	for p := range pipelines {
		if !isDealt[p] {
			pipelines[p].Partitions, left = left[0], left[1:]
		}
	}
	return pipelines
}

// kept returns the partitions that each node keeps under a plan.
func (s Situation) kept(plan []Pipeline) map[string][]int {
	kept := make(map[string][]int, len(s.Nodes))
	for _, pipeline := range plan {
		for _, stage := range pipeline.Stages {
			kept[stage.Node] = pipeline.Partitions
		}
	}
	return kept
}

// keeping is the situation in which a pipeline keeps at most so many partitions; zero: all. A layer takes as much as so
// many of its largest partitions do.
func (s Situation) keeping(partitions int) Situation {
	if partitions == s.KeptPartitions || s.Partitions == 0 {
		return s
	}
	before := s.KeptPartitions
	s.Layers, s.StateBytes, s.KeptPartitions = slices.Clone(s.Layers), slices.Clone(s.StateBytes), partitions
	for layer := range s.Layers {
		more := s.partitionBytes(layer, partitions) - s.partitionBytes(layer, before)
		s.Layers[layer].StaticBytes += s.WithCopies(more)
		s.StateBytes[layer] += more
	}
	return s
}

// WithCopies is the bytes of some state with the copies that a node keeps of it, at most more than any node has: sums over
// layers do not overflow.
func (s Situation) WithCopies(bytes int64) int64 {
	const most = 1 << 50
	if bytes > most/int64(1+s.StateCopies) {
		return most
	}
	return bytes * int64(1+s.StateCopies)
}

// staying is the situation of who keeps the plan in force with its partitions.
func (s Situation) staying() Situation {
	most := 0
	for _, pipeline := range s.Current {
		most = max(most, len(pipeline.Partitions))
	}
	return s.keeping(most)
}

// partitionBytes is the most that so many partitions of a layer take; zero: all of them. Partitions differ by a byte.
func (s Situation) partitionBytes(layer, partitions int) int64 {
	count, bytes := int64(s.Partitions), s.OptimizerBytes[layer]
	if partitions == 0 {
		return bytes
	}
	return min(bytes, int64(partitions)*((bytes+count-1)/count))
}
