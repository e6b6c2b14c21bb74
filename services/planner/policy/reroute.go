package policy

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
)

// reroute keeps every node where it is and shares a lost node's micro-batches among those that hold the same layers in
// other pipelines (ReCycle; Chameleon IV-A). Nothing moves. Without a lost node it keeps the plan in force as it is.
//
// A survivor must hold exactly the lost stage's layers: in unequal pipelines there may be none, and then rerouting has
// no answer.
func reroute(s Situation) ([]Candidate, error) {
	if len(s.Current) == 0 {
		return nil, nil
	}
	lives := func(node string) bool { return slices.Contains(s.Nodes, node) }
	candidate := Candidate{
		Pipelines: s.Current, TransitionSeconds: s.SwitchSeconds, PeakBytes: map[string]int64{},
		Replicas: replicas(len(s.Layers), s.Current, lives),
	}
	var lost []estimate.Place
	for p, pipeline := range s.Current {
		for st, stage := range pipeline.Stages {
			if lives(stage.Node) {
				continue
			}
			shares, err := s.share(stage, st, pipeline.MicroBatches, lives)
			if err != nil {
				return nil, err
			}
			lost = append(lost, estimate.Place{Pipeline: p, Stage: st})
			candidate.Reroutes = append(candidate.Reroutes, shares...)
		}
	}
	step, err := estimate.ReroutedStepSeconds(s.Layers, members(s.Current), s.Network.TransferSeconds, lost)
	if err != nil {
		return nil, err
	}
	candidate.StepSeconds = step + s.syncSeconds(s.Current) + s.dearSeconds(s.Current)
	if err := s.fits(&candidate, lost); err != nil {
		return nil, err
	}
	return []Candidate{candidate}, nil
}

// share divides a lost stage's micro-batches evenly among its survivors, the first ones taking what is left over.
func (s Situation) share(lost Stage, stage, microBatches int, lives func(string) bool) ([]Reroute, error) {
	var survivors []string
	for _, pipeline := range s.Current {
		for _, other := range pipeline.Stages {
			if other.Layers == lost.Layers && lives(other.Node) {
				survivors = append(survivors, other.Node)
			}
		}
	}
	if len(survivors) == 0 {
		return nil, fmt.Errorf("layers %d to %d of %s: no survivor holds exactly these", lost.Layers.First, lost.Layers.End, lost.Node)
	}
	var shares []Reroute
	for i, survivor := range survivors {
		share := microBatches / len(survivors)
		if i < microBatches%len(survivors) {
			share++
		}
		if share > 0 {
			shares = append(shares, Reroute{From: lost.Node, To: survivor, Stage: stage, MicroBatches: share})
		}
	}
	return shares, nil
}

// fits fills in the peaks and checks them against the memory of each survivor: it keeps the lost stage's activations in
// flight too, which the paper does not check.
func (s Situation) fits(candidate *Candidate, lost []estimate.Place) error {
	peaks, err := estimate.ReroutedPeakBytes(s.Layers, members(s.Current), lost)
	if err != nil {
		return err
	}
	for p, pipeline := range s.Current {
		for st, stage := range pipeline.Stages {
			i := slices.Index(s.Nodes, stage.Node)
			if i < 0 {
				continue
			}
			candidate.PeakBytes[stage.Node] = peaks[p][st]
			if peaks[p][st] > s.MemoryBytes[i] {
				return fmt.Errorf("%s would need %d bytes of its %d", stage.Node, peaks[p][st], s.MemoryBytes[i])
			}
		}
	}
	return nil
}

// dearSeconds is what pairs without a direct link add to a step: neighbours in a pipeline, and holders of one layer.
func (s Situation) dearSeconds(pipelines []Pipeline) float64 {
	if s.Network.Dear == nil {
		return 0
	}
	count := 0
	pair := func(a, b string) {
		i, j := slices.Index(s.Nodes, a), slices.Index(s.Nodes, b)
		if i >= 0 && j >= 0 && s.Network.Dear(i, j) {
			count++
		}
	}
	for p, pipeline := range pipelines {
		for st, stage := range pipeline.Stages {
			if st > 0 {
				pair(pipeline.Stages[st-1].Node, stage.Node)
			}
			for _, other := range pipelines[p+1:] {
				for _, peer := range other.Stages {
					if stage.Layers.Shared(peer.Layers) > 0 {
						pair(stage.Node, peer.Node)
					}
				}
			}
		}
	}
	return float64(count) * s.Network.DearSeconds
}
