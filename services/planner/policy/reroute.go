package policy

import (
	"fmt"
	"slices"
)

const rerouting = "reroute"

// reroute keeps every node where it is and shares a lost node's micro-batches among those that hold the same layers in
// other pipelines (ReCycle; Chameleon IV-A). Nothing moves, but to nodes that came back empty to a place of theirs.
// Without a lost node it keeps the plan in force as it is. It has no answer where no survivor holds a lost layer, has
// memory for its activations, or keeps a partition of its optimizer state. Partitions stay where they are.
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
	w := s.wires()
	taken, err := s.takeOver(w)
	if err != nil {
		return nil, err
	}
	candidate := Candidate{Pipelines: s.Current, Replicas: s.replicas(), Reroutes: taken.reroutes, PeakBytes: taken.peaks}
	candidate.StepSeconds = taken.seconds + s.syncSeconds(w, s.Current) + s.dearSeconds(s.Current)
	candidate.CopySeconds = s.copySeconds(s.known(), s.Current) // of nodes that came back empty
	candidate.TransitionSeconds = s.transitionSeconds(candidate.CopySeconds)
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
