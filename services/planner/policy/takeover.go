package policy

import (
	"slices"

	"github.com/reknit/reknit/services/planner/estimate"
	"github.com/reknit/reknit/services/planner/takeover"
)

// The step of a rerouted plan is Chameleon's (IV-C), layer by layer. Let T_q be what pipeline q takes for its own
// micro-batches, as 1F1B runs them. A survivor of it that trains x_l micro-batches of lost nodes through layer l, each of
// which takes t_l there, takes the sum of x_l*t_l longer, and
//
//	step = max over q of ( T_q + max over survivors of q of the sum of x_l*t_l )
//
// with the sum of x_l over the survivors that hold l being all micro-batches of the lost nodes that held it. In equal
// pipelines with f of D nodes of a stage lost that is the paper's ( ceil(M*D/(D-f)) + P - 1 ) * (f + b), where whole
// micro-batches go through whole stages. In unequal ones a micro-batch may pass each layer at another survivor.
// Transfers between survivors are counted as those of the lost nodes were, and bubbles are not filled, as in the paper.

// taken is who takes over what, and what that costs.
type taken struct {
	reroutes []Reroute
	seconds  float64 // of a step, without its all-reduces
	peaks    map[string]int64
}

// lostStage is a place of the plan in force whose node is lost.
type lostStage struct {
	Stage
	stage, microBatches, inFlight int
}

// lostStages returns the places whose nodes are lost, in the order of the plan in force.
func (s Situation) lostStages() []lostStage {
	var lost []lostStage
	alive := s.alive()
	for _, pipeline := range s.Current {
		for st, stage := range pipeline.Stages {
			if !alive[stage.Node] {
				inFlight := estimate.InFlight(st, len(pipeline.Stages), pipeline.MicroBatches)
				lost = append(lost, lostStage{stage, st, pipeline.MicroBatches, inFlight})
			}
		}
	}
	return lost
}

// survivors are the live places, as the work of lost nodes is divided among them.
type survivors struct {
	stages  []Stage
	workers []takeover.Worker
	peaks   map[string]int64
	floor   float64 // what the slowest pipeline takes
}

// survivors checks each survivor's peak against its memory, which the paper does not.
func (s Situation) survivors(w wires) (survivors, error) {
	c := survivors{peaks: map[string]int64{}}
	index := make(map[string]int, len(s.Nodes))
	for i, node := range s.Nodes {
		index[node] = i
	}
	for p, member := range members(s.Current) {
		seconds := estimate.OneForwardOneBackward(s.pipeline(w, s.Current[p])).MakespanSeconds
		c.floor = max(c.floor, seconds)
		own := estimate.PeakBytes(s.Layers, member.Stages, member.MicroBatches)
		for st, stage := range s.Current[p].Stages {
			node, alive := index[stage.Node]
			if !alive {
				continue
			}
			worker := takeover.Worker{BusySeconds: seconds, Speed: 1, RoomBytes: s.MemoryBytes[node] - own[st]}
			if worker.RoomBytes < 0 {
				return c, needs(stage.Node, own[st], s.MemoryBytes[node])
			}
			if s.Speed != nil {
				worker.Speed = s.Speed[node]
			}
			c.stages, c.workers, c.peaks[stage.Node] = append(c.stages, stage), append(c.workers, worker), own[st]
		}
	}
	return c, nil
}

// takeOver divides the lost nodes' micro-batches so that the step is shortest. Layers that all pipelines keep together
// are passed at one survivor, where no step is shorter for passing them at several.
func (s Situation) takeOver(w wires) (taken, error) {
	crew, err := s.survivors(w)
	lost := s.lostStages()
	if err != nil || len(lost) == 0 {
		return taken{seconds: crew.floor, peaks: crew.peaks}, err
	}
	together, alike := s.runs()
	best, err := s.divide(crew, lost, together)
	if alike || err == nil && best.seconds <= crew.floor {
		return best, err
	}
	var single []estimate.Range
	for layer := range s.Layers {
		single = append(single, estimate.Range{First: layer, End: layer + 1})
	}
	if apart, splitErr := s.divide(crew, lost, single); splitErr == nil && (err != nil || apart.seconds < best.seconds*(1-1e-9)) {
		return apart, nil
	}
	return best, err
}

// runs are the layers that no pipeline of the plan in force divides, and whether all are the stages of every pipeline.
func (s Situation) runs() (runs []estimate.Range, alike bool) {
	isCut, alike := make([]bool, len(s.Layers)+1), true
	for _, pipeline := range s.Current {
		alike = alike && slices.EqualFunc(pipeline.Stages, s.Current[0].Stages,
			func(a, b Stage) bool { return a.Layers == b.Layers })
		for _, stage := range pipeline.Stages {
			isCut[stage.Layers.End] = true
		}
	}
	first := 0
	for end := 1; end <= len(s.Layers); end++ {
		if isCut[end] {
			runs = append(runs, estimate.Range{First: first, End: end})
			first = end
		}
	}
	return runs, alike
}
