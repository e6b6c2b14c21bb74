package policy

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
)

const rerouting = "reroute"

// reroute keeps every node where it is and shares a lost node's micro-batches among those that hold the same layers in
// other pipelines (ReCycle; Chameleon IV-A). Nothing moves, but to nodes that came back empty to a place of theirs.
// Without a lost node it keeps the plan in force as it is.
//
// A survivor must hold exactly the lost stage's layers: in unequal pipelines there may be none, and then rerouting has
// no answer. Nor has it where a partition of the optimizer state is lost with the node. Partitions stay where they are.
func reroute(s Situation) ([]Candidate, error) {
	if len(s.Current) == 0 {
		return nil, nil
	}
	if err := s.continues(); err != nil {
		return nil, err
	}
	if err := s.partitionsLive(); err != nil {
		return nil, err
	}
	s = s.staying()
	candidate := Candidate{Pipelines: s.Current, Replicas: s.replicas()}
	loads := map[string]load{}
	for _, gap := range s.gaps() {
		if len(gap.survivors) == 0 {
			return nil, fmt.Errorf("layers %d-%d of %s: no survivor holds exactly these", gap.layers.First,
				gap.layers.End-1, gap.lost[0].node)
		}
		candidate.Reroutes = append(candidate.Reroutes, gap.share(loads)...)
	}
	var err error
	if candidate.PeakBytes, err = s.reroutedPeaks(loads); err != nil {
		return nil, err
	}
	w := s.wires()
	candidate.StepSeconds = s.reroutedSeconds(w, loads) + s.syncSeconds(w, s.Current) + s.dearSeconds(s.Current)
	candidate.CopySeconds = s.copySeconds(s.known(), s.Current) // of nodes that came back empty
	candidate.TransitionSeconds = s.SwitchSeconds + candidate.CopySeconds
	return []Candidate{candidate}, nil
}

// continues checks that the plan in force trains this job, without which it cannot be kept.
func (s Situation) continues() error {
	microBatches := 0
	for p, pipeline := range s.Current {
		microBatches += pipeline.MicroBatches
		if stages := pipeline.Stages; len(stages) == 0 || stages[len(stages)-1].Layers.End != len(s.Layers) {
			return fmt.Errorf("pipeline %d of the plan in force: expected the %d layers of the job", p, len(s.Layers))
		}
		if slices.ContainsFunc(pipeline.Partitions,
			func(partition int) bool { return partition < 0 || partition >= s.Partitions }) {
			return fmt.Errorf("pipeline %d of the plan in force: expected some of the %d partitions of the job, got %v",
				p, s.Partitions, pipeline.Partitions)
		}
	}
	if microBatches != s.MicroBatches {
		return fmt.Errorf("the plan in force: expected the %d micro-batches of the job, got %d", s.MicroBatches,
			microBatches)
	}
	return nil
}

// partitionsLive checks that each partition of each layer can be had from a node that is alive and not empty: unlike a
// layer, it may be nowhere else though the lost stages have survivors.
func (s Situation) partitionsLive() error {
	full := s.alive()
	for _, node := range s.Empty {
		delete(full, node)
	}
	rows := s.holders(full)[len(s.Layers):]
	if at := slices.Index(rows, 0); at >= 0 {
		return fmt.Errorf("partition %d of layer %d: no live node holds it", at/len(s.Layers), at%len(s.Layers))
	}
	return nil
}

// gap is the lost stages that held the same layers, and the nodes that can stand in for them.
type gap struct {
	layers    estimate.Range
	lost      []lostStage
	survivors []string
}

type lostStage struct {
	node                          string
	stage, microBatches, inFlight int
}

// load is what a survivor takes over.
type load struct{ microBatches, inFlight int }

// gaps returns the gaps of the plan in force in the order of their first lost stage.
func (s Situation) gaps() []gap {
	var gaps []gap
	alive := s.alive()
	for _, pipeline := range s.Current {
		for st, stage := range pipeline.Stages {
			if alive[stage.Node] {
				continue
			}
			at := slices.IndexFunc(gaps, func(g gap) bool { return g.layers == stage.Layers })
			if at < 0 {
				at = len(gaps)
				gaps = append(gaps, gap{layers: stage.Layers, survivors: s.survivors(stage.Layers, alive)})
			}
			inFlight := estimate.InFlight(st, len(pipeline.Stages), pipeline.MicroBatches)
			gaps[at].lost = append(gaps[at].lost, lostStage{stage.Node, st, pipeline.MicroBatches, inFlight})
		}
	}
	return gaps
}

func (s Situation) survivors(layers estimate.Range, alive map[string]bool) []string {
	var survivors []string
	for _, pipeline := range s.Current {
		for _, stage := range pipeline.Stages {
			if stage.Layers == layers && alive[stage.Node] {
				survivors = append(survivors, stage.Node)
			}
		}
	}
	return survivors
}

// share deals the micro-batches of all lost stages to the survivors in turn, so that no two differ by more than one,
// and sets what each takes over. It keeps its share of the lost stages' activations in flight too.
func (g gap) share(loads map[string]load) []Reroute {
	var reroutes []Reroute
	taken := make([]int, len(g.survivors))
	inFlight, turn := 0, 0
	for _, lost := range g.lost {
		inFlight += lost.inFlight
		shares := make([]int, len(g.survivors))
		for range lost.microBatches {
			shares[turn]++
			turn = (turn + 1) % len(shares)
		}
		for i, share := range shares {
			taken[i] += share
			if share > 0 {
				reroutes = append(reroutes,
					Reroute{From: lost.node, To: g.survivors[i], Stage: lost.stage, MicroBatches: share})
			}
		}
	}
	each := (inFlight + len(taken) - 1) / len(taken)
	for i, survivor := range g.survivors {
		loads[survivor] = load{taken[i], min(taken[i], each)}
	}
	return reroutes
}

// reroutedSeconds is the step time: each pipeline takes its own, and then the extra work of its most loaded survivor.
func (s Situation) reroutedSeconds(w wires, loads map[string]load) float64 {
	step := 0.0
	for _, current := range s.Current {
		pipeline := s.pipeline(w, current)
		extra := 0.0
		for st, stage := range current.Stages {
			work := pipeline.ForwardSeconds[st] + pipeline.BackwardSeconds[st]
			extra = max(extra, float64(loads[stage.Node].microBatches)*work)
		}
		step = max(step, estimate.OneForwardOneBackward(pipeline).MakespanSeconds+extra)
	}
	return step
}

// reroutedPeaks checks each survivor's peak against its memory, which the paper does not.
func (s Situation) reroutedPeaks(loads map[string]load) (map[string]int64, error) {
	memoryOf, peaks := map[string]int64{}, map[string]int64{}
	for i, node := range s.Nodes {
		memoryOf[node] = s.MemoryBytes[i]
	}
	for p, member := range members(s.Current) {
		own := estimate.PeakBytes(s.Layers, member.Stages, member.MicroBatches)
		for st, stage := range s.Current[p].Stages {
			memory, alive := memoryOf[stage.Node]
			if !alive {
				continue
			}
			peak := own[st]
			for _, layer := range s.Layers[stage.Layers.First:stage.Layers.End] {
				peak += int64(loads[stage.Node].inFlight) * layer.ActivationBytes
			}
			if peak > memory {
				return nil, fmt.Errorf("%s would need %d bytes of its %d", stage.Node, peak, memory)
			}
			peaks[stage.Node] = peak
		}
	}
	return peaks, nil
}
