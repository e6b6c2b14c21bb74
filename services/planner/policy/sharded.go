package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/search"
)

// sharded proposes groups of nodes that spread the state of the model among them: for each size of a group as many
// groups as there are nodes for, all of that size, so that equal shards have equal holders. The nodes of a group
// train the same micro-batches at the same time, each a part of the samples, and gather the layers of the others as
// they need them (FSDP); groups all-reduce their shards (HSDP). Faster nodes share groups.
func sharded(s Situation) ([]Candidate, error) {
	t, nodes := s.newSeating(), upTo(len(s.Nodes))
	slices.SortStableFunc(nodes, func(a, b int) int { return cmp.Compare(s.speed(b), s.speed(a)) })
	longest := len(s.Layers)
	if s.PipelineLength.Most > 0 {
		longest = min(longest, s.PipelineLength.Most)
	}
	var candidates []Candidate
	var refused error
	for length := max(1, s.PipelineLength.Least); length <= min(longest, len(nodes)); length++ {
		if s.widest(len(nodes)/length) < max(1, s.DataParallel.Least) {
			break
		}
		candidate, err := t.grouped(nodes, length)
		if err != nil {
			refused = cmp.Or(refused, err)
			continue
		}
		candidates = append(candidates, candidate)
	}
	if len(candidates) > 0 {
		return candidates, nil
	}
	return nil, cmp.Or(refused, fmt.Errorf("pipelines: expected %d groups of %d nodes, got %d nodes and %d micro-batches",
		max(1, s.DataParallel.Least), max(1, s.PipelineLength.Least), len(nodes), s.MicroBatches))
}

// grouped is as many groups of so many nodes as there are nodes for: all of them or, where some are too small for their shard, those that
// have the memory for any. An agent that gives what its script left has next to none.
func (t *seating) grouped(nodes []int, length int) (Candidate, error) {
	s := t.situation
	plan := s.groups(s.widest(len(nodes)/length), length)
	candidate, err := t.seat(plan, choice{nodes: nodes})
	if err == nil {
		return candidate, nil
	}
	need := slices.Max(s.groupPeakBytes(plan.Pipelines[0].Stages))
	large := slices.DeleteFunc(slices.Clone(nodes), func(node int) bool { return s.MemoryBytes[node] < need })
	groups := s.widest(len(large) / length)
	if len(large) == len(nodes) || groups < max(1, s.DataParallel.Least) {
		return Candidate{}, err
	}
	return t.seat(s.groups(groups, length), choice{nodes: large})
}

// groups are so many of so many nodes, with about as many micro-batches each.
func (s Situation) groups(count, length int) search.Plan {
	var plan search.Plan
	shards := s.withPipelines(count).shards(length)
	for p := range count {
		share := (p+1)*s.MicroBatches/count - p*s.MicroBatches/count
		plan.Pipelines = append(plan.Pipelines, search.Pipeline{MicroBatches: share, Stages: shards})
	}
	return plan
}

// shards cuts the layers into so many runs of about as many bytes.
func (s Situation) shards(count int) []estimate.Range {
	total, bytes, first := int64(0), int64(0), 0
	for _, layer := range s.Layers {
		total += layer.StaticBytes
	}
	var shards []estimate.Range
	for end := 1; end <= len(s.Layers); end++ {
		bytes += s.Layers[end-1].StaticBytes
		left := count - len(shards) - 1 // runs behind this one
		isFull := float64(bytes) >= float64(total)*float64(len(shards)+1)/float64(count)
		if left == 0 && end < len(s.Layers) || left > 0 && !isFull && len(s.Layers)-end > left {
			continue
		}
		shards, first = append(shards, estimate.Range{First: first, End: end}), end
	}
	return shards
}

// groupSeconds is the time of a group's part of a step. Its nodes compute at the pace of the slowest. Meanwhile the
// parameters are gathered, for the forward and again for the backward pass, and the gradients scattered, around a ring
// of the group's links. The longer of the two counts.
func (s Situation) groupSeconds(w wires, p Pipeline) float64 {
	count, slowest, rate := float64(len(p.Stages)), math.Inf(1), s.Network.BytesPerSecond
	for st, stage := range p.Stages {
		speed := 1.0
		if node, alive := w.node[stage.Node]; alive {
			speed = s.speed(node)
		}
		slowest = min(slowest, speed)
		next := p.Stages[(st+1)%len(p.Stages)]
		if link, isUnusual := w.between(stage.Node, next.Node); isUnusual {
			rate = min(rate, link.BytesPerSecond)
		}
	}
	seconds := s.microBatchSeconds() / count / slowest
	if rate > 0 {
		gathered := 2*(sum(s.StateBytes)-sum(s.OptimizerBytes)) + sum(s.GradientBytes)
		seconds = max(seconds, float64(gathered)*(count-1)/count/rate)
	}
	return float64(p.MicroBatches) * seconds
}

// groupPeakBytes is what each node of a group keeps: its shard, its part of a micro-batch's activations, and the
// largest layer as it is gathered.
func (s Situation) groupPeakBytes(shards []estimate.Range) []int64 {
	activations, gathered := int64(0), int64(0)
	for i, layer := range s.Layers {
		activations += layer.ActivationBytes
		gathered = max(gathered, s.StateBytes[i]-s.OptimizerBytes[i])
	}
	nodes, peaks := int64(len(shards)), make([]int64, len(shards))
	for st, shard := range shards {
		peaks[st] = (activations+nodes-1)/nodes + gathered
		for _, layer := range s.Layers[shard.First:shard.End] {
			peaks[st] += layer.StaticBytes
		}
	}
	return peaks
}
