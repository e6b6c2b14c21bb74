package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/reknit/reknit/services/planner/estimate"
)

// Each policy by itself must keep these, whatever the situation.
func TestWhateverTheSituationEveryPolicyKeepsTheRules(t *testing.T) {
	for _, policy := range Policies {
		t.Run(policy.Name, func(t *testing.T) {
			proposed := 0
			for seed := range uint64(300) {
				s := randomSituation(rand.New(rand.NewPCG(seed, 2)))
				candidates, err := policy.Propose(s)
				again, _ := policy.Propose(s)
				if !reflect.DeepEqual(candidates, again) {
					t.Fatalf("seed %d: another answer the second time", seed)
				}
				if err != nil && len(candidates) > 0 {
					t.Fatalf("seed %d: %d candidates and an error: %v", seed, len(candidates), err)
				}
				for _, candidate := range candidates {
					proposed++
					for _, rule := range []func(Situation, Candidate) error{
						holdsEveryLayerOnce, assignsEveryMicroBatch, seatsLiveNodesOnce, reroutesWhatIsLost,
						fitsInMemory, tellsTheTime,
					} {
						if err := rule(s, candidate); err != nil {
							t.Fatalf("seed %d: %s: %v", seed, candidate.Shape(), err)
						}
					}
				}
			}
			if proposed < 100 {
				t.Fatalf("expected 100 proposals in 300 situations at least, got %d", proposed)
			}
		})
	}
}

func holdsEveryLayerOnce(s Situation, c Candidate) error {
	for p, pipeline := range c.Pipelines {
		next := 0
		for _, stage := range pipeline.Stages {
			if stage.Layers.First != next || stage.Layers.Len() < 1 {
				return fmt.Errorf("pipeline %d: layers %v after %d", p, stage.Layers, next)
			}
			next = stage.Layers.End
		}
		if next != len(s.Layers) {
			return fmt.Errorf("pipeline %d ends at layer %d of %d", p, next, len(s.Layers))
		}
	}
	return nil
}

func assignsEveryMicroBatch(s Situation, c Candidate) error {
	sum := 0
	for _, pipeline := range c.Pipelines {
		if pipeline.MicroBatches < 1 {
			return fmt.Errorf("a pipeline without micro-batches")
		}
		sum += pipeline.MicroBatches
	}
	if sum != s.MicroBatches {
		return fmt.Errorf("%d of %d micro-batches", sum, s.MicroBatches)
	}
	return nil
}

func seatsLiveNodesOnce(s Situation, c Candidate) error {
	lost := map[string]bool{}
	for _, reroute := range c.Reroutes {
		lost[reroute.From] = true
	}
	seated := map[string]bool{}
	for _, pipeline := range c.Pipelines {
		for _, stage := range pipeline.Stages {
			if seated[stage.Node] || slices.Contains(s.Nodes, stage.Node) == lost[stage.Node] {
				return fmt.Errorf("%s: seated twice, or neither there nor rerouted", stage.Node)
			}
			seated[stage.Node] = true
		}
	}
	return nil
}

// The reroutes of a lost node add up to its micro-batches at each of its layers, and go to nodes that hold the layer.
func reroutesWhatIsLost(s Situation, c Candidate) error {
	at := map[string]Stage{}
	due := map[string]map[int]int{} // by lost node and layer
	for _, pipeline := range c.Pipelines {
		for st, stage := range pipeline.Stages {
			at[stage.Node] = stage
			if !slices.Contains(s.Nodes, stage.Node) {
				due[stage.Node] = map[int]int{}
				for layer := stage.Layers.First; layer < stage.Layers.End; layer++ {
					due[stage.Node][layer] = pipeline.MicroBatches
				}
			}
			for _, reroute := range c.Reroutes {
				if reroute.From == stage.Node && reroute.Stage != st {
					return fmt.Errorf("%+v, but the stage is %d", reroute, st)
				}
			}
		}
	}
	for _, reroute := range c.Reroutes {
		layers := covered(c, reroute)
		if layers.Len() < 1 || layers.Shared(at[reroute.From].Layers) != layers.Len() ||
			layers.Shared(at[reroute.To].Layers) != layers.Len() || !slices.Contains(s.Nodes, reroute.To) || reroute.MicroBatches < 1 {
			return fmt.Errorf("%+v from %v to %v", reroute, at[reroute.From], at[reroute.To])
		}
		for layer := layers.First; layer < layers.End; layer++ {
			due[reroute.From][layer] -= reroute.MicroBatches
		}
	}
	for node, layers := range due {
		for layer, left := range layers {
			if left != 0 {
				return fmt.Errorf("%d micro-batches of %s are left at layer %d", left, node, layer)
			}
		}
	}
	return nil
}

// covered is the layers of a reroute.
func covered(c Candidate, reroute Reroute) estimate.Range {
	if reroute.Layers != (estimate.Range{}) {
		return reroute.Layers
	}
	places := seats(c.Pipelines)
	from, to := places[reroute.From].Layers, places[reroute.To].Layers
	return estimate.Range{First: max(from.First, to.First), End: min(from.End, to.End)}
}

// The peak of a survivor is what the pipeline asks for, or more; nobody's is more than the node has.
func fitsInMemory(s Situation, c Candidate) error {
	seats := 0
	for p, member := range members(c.Pipelines) {
		for st, least := range estimate.PeakBytes(s.Layers, member.Stages, member.MicroBatches) {
			node := slices.Index(s.Nodes, c.Pipelines[p].Stages[st].Node)
			if node < 0 {
				continue
			}
			seats++
			peak := c.PeakBytes[s.Nodes[node]]
			if peak < least || len(c.Reroutes) == 0 && peak != least || peak > s.MemoryBytes[node] {
				return fmt.Errorf("%s: peak of %d bytes, of %d; its own stage needs %d", s.Nodes[node], peak,
					s.MemoryBytes[node], least)
			}
		}
	}
	if seats != len(c.PeakBytes) {
		return fmt.Errorf("%d peaks for %d nodes", len(c.PeakBytes), seats)
	}
	return nil
}

// The step is the slowest pipeline with what it takes over, the all-reduces and the detours; no less than its bound.
func tellsTheTime(s Situation, c Candidate) error {
	want := 0.0
	for p, member := range members(c.Pipelines) {
		pipeline := s.slowPipeline(c.Pipelines[p], member)
		extra := 0.0
		for _, stage := range c.Pipelines[p].Stages {
			own := 0.0
			for _, reroute := range c.Reroutes {
				if layers := covered(c, reroute); reroute.To == stage.Node {
					timed := s.slowPipeline(Pipeline{Stages: []Stage{stage}}, estimate.Member{Stages: []estimate.Range{layers}})
					own += float64(reroute.MicroBatches) * (timed.ForwardSeconds[0] + timed.BackwardSeconds[0])
				}
			}
			extra = max(extra, own)
		}
		want = max(want, estimate.OneForwardOneBackward(pipeline).MakespanSeconds+extra)
	}
	want += s.slowSync(c.Pipelines) + s.dearSeconds(c.Pipelines)
	if math.Abs(c.StepSeconds-want) > 1e-9*want || c.StepSeconds < c.LowerBoundSeconds ||
		c.TransitionSeconds < c.CopySeconds {
		return fmt.Errorf("step of %v s, want %v; at least %v; transition of %v s", c.StepSeconds, want,
			c.LowerBoundSeconds, c.TransitionSeconds)
	}
	return nil
}

// slowPipeline looks every link up in the list.
func (s Situation) slowPipeline(p Pipeline, member estimate.Member) estimate.Pipeline {
	pipeline := estimate.OfLayers(s.Layers, member.Stages, member.MicroBatches, 0)
	for st, stage := range p.Stages {
		if node := slices.Index(s.Nodes, stage.Node); node >= 0 && s.Speed != nil {
			pipeline.ForwardSeconds[st] /= s.Speed[node]
			pipeline.BackwardSeconds[st] /= s.Speed[node]
		}
		if st > 0 {
			there, back := s.link(p.Stages[st-1].Node, stage.Node), s.link(stage.Node, p.Stages[st-1].Node)
			pipeline.ForwardTransferSeconds = append(pipeline.ForwardTransferSeconds, s.transfer(there))
			pipeline.BackwardTransferSeconds = append(pipeline.BackwardTransferSeconds, s.transfer(back))
		}
	}
	return pipeline
}

func (s Situation) link(from, to string) *Link {
	for i, link := range s.Network.Links {
		if s.Nodes[link.From] == from && s.Nodes[link.To] == to {
			return &s.Network.Links[i]
		}
	}
	return nil
}

func (s Situation) transfer(link *Link) float64 {
	if link == nil {
		return s.Network.TransferSeconds
	}
	return link.LatencySeconds + float64(s.Network.ActivationBytes)/link.BytesPerSecond
}

// slowSync adds up, for every node, what it exchanges with every other over their own link instead of a usual one.
func (s Situation) slowSync(pipelines []Pipeline) float64 {
	equal := s
	equal.Network.Links = nil
	slowest := equal.syncSeconds(equal.wires(), pipelines)
	if len(s.Network.Links) == 0 || len(pipelines) < 2 {
		return slowest
	}
	slowest = 0
	for p, pipeline := range pipelines {
		for _, stage := range pipeline.Stages {
			bytes := sum(s.GradientBytes[stage.Layers.First:stage.Layers.End])
			seconds := estimate.RingSeconds(bytes, len(pipelines), s.Network.BytesPerSecond, s.Network.LatencySeconds)
			for q, other := range pipelines {
				for _, peer := range other.Stages {
					if p == q {
						continue
					}
					first, end := max(stage.Layers.First, peer.Layers.First), min(stage.Layers.End, peer.Layers.End)
					there, back := s.link(stage.Node, peer.Node), s.link(peer.Node, stage.Node)
					if first >= end || there == nil && back == nil {
						continue
					}
					usual := &Link{0, 0, s.Network.LatencySeconds, s.Network.BytesPerSecond, false}
					if there == nil {
						there = usual
					}
					if back == nil {
						back = usual
					}
					share := float64(sum(s.GradientBytes[first:end])) / float64(len(pipelines))
					seconds += there.LatencySeconds + back.LatencySeconds - 2*usual.LatencySeconds
					seconds += 4*share/(there.BytesPerSecond+back.BytesPerSecond) - 2*share/usual.BytesPerSecond
				}
			}
			slowest = max(slowest, seconds)
		}
	}
	return slowest
}

func TestOfPlansAboutAsGoodTheOneThatMovesLeastIsTaken(t *testing.T) {
	for seed := range uint64(600) {
		s := randomSituation(rand.New(rand.NewPCG(seed, 3)))
		found, err := Choose(s)
		if err != nil {
			continue
		}
		for _, other := range found[1:] {
			asSafe := min(other.Replicas, s.MinReplicas) == min(found[0].Replicas, s.MinReplicas)
			if asSafe && other.Score >= found[0].Score && other.TransitionSeconds < found[0].TransitionSeconds {
				t.Fatalf("seed %d: took a transition of %v s, left one as good of %v s", seed,
					found[0].TransitionSeconds, other.TransitionSeconds)
			}
		}
	}
}

func TestTheOneTakenIsAboutAsGoodAsTheBestTheMoreSoIfItMovesSomethingAndTheOthersKnowWhy(t *testing.T) {
	moving, staying := 0, 0
	for seed := range uint64(600) {
		s := randomSituation(rand.New(rand.NewPCG(seed, 3)))
		found, err := Choose(s)
		if err != nil {
			continue
		}
		for i, candidate := range found {
			if (candidate.Rejected == "") != (i == 0) {
				t.Fatalf("seed %d: candidate %d rejected for %q", seed, i, candidate.Rejected)
			}
			enough, worth := min(found[0].Replicas, s.MinReplicas)-min(candidate.Replicas, s.MinReplicas), found[0].margin()
			if enough < 0 || enough == 0 && candidate.Score*(1-worth) > found[0].Score {
				t.Fatalf("seed %d: took %v replicas at %v after %v s, left %v at %v", seed, found[0].Replicas, found[0].Score,
					found[0].CopySeconds, candidate.Replicas, candidate.Score)
			}
			switch {
			case enough > 0 || candidate.CopySeconds == 0 || candidate.Score == found[0].Score:
			case found[0].CopySeconds > 0:
				moving++
			case candidate.Score > found[0].Score:
				staying++
			}
		}
	}
	if moving < 1000 || staying < 5 {
		t.Errorf("%d times another that moves something lost to one that does, %d times to one that does not", moving, staying)
	}
}

func TestANodeMoreNeverMakesAFirstPlanOfAFewUnequalNodesSlower(t *testing.T) {
	compared := 0
	for seed := range uint64(60) {
		with := randomSituation(rand.New(rand.NewPCG(seed, 6)))
		with.Current, with.Empty, with.MinReplicas = nil, nil, 1
		if len(with.Nodes) < 2 || len(with.Nodes) > mostTried {
			continue
		}
		most, _ := Choose(with)
		for _, node := range with.Nodes {
			without, err := Choose(with.lose(node))
			if err != nil {
				continue
			}
			compared++
			if len(most) == 0 || most[0].StepSeconds > without[0].StepSeconds*(1+1e-12) {
				t.Fatalf("seed %d: %v s without %s, and with it %+v", seed, without[0].StepSeconds, node, most)
			}
		}
	}
	if compared < 50 {
		t.Fatalf("only %d compared", compared)
	}
}

// However unequal nodes and links are: the plan in force stays a candidate.
func TestANodeThatJoinsNeverMakesTheStepSlower(t *testing.T) {
	joined := 0
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 5))
		with := randomSituation(random)
		with.Current, with.Empty, with.MinReplicas = nil, nil, 1
		joiner := with.Nodes[random.IntN(len(with.Nodes))]
		before, err := Choose(with.lose(joiner))
		if len(with.Nodes) < 2 || err != nil {
			continue
		}
		joined++
		with.Current, with.Empty = before[0].Pipelines, []string{joiner}
		after, err := Choose(with)
		if err != nil || after[0].StepSeconds > before[0].StepSeconds*(1+1e-12) {
			t.Fatalf("seed %d: a step of %v s became %v s with %s (%v)", seed, before[0].StepSeconds,
				after[0].StepSeconds, joiner, err)
		}
	}
	if joined < 200 {
		t.Fatalf("only %d joined", joined)
	}
}
