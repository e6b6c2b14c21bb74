package policy

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// dataParallelJob is usual without the pipelines.
func dataParallelJob(nodes int) Situation {
	s := usual(nodes)
	s.Kind, s.PipelineLength.Most, s.OptimizerBytes = DataParallel, 1, make([]int64, len(s.Layers))
	return s
}

// shardedJob is usual with shards instead of pipelines: a layer has 40 bytes of parameters and 40 of optimizer state.
func shardedJob(nodes int) Situation {
	s := usual(nodes)
	s.Kind = Sharded
	for range s.Layers {
		s.OptimizerBytes = append(s.OptimizerBytes, 40)
	}
	return s
}

// onlyCandidate returns the one candidate of a job.
func onlyCandidate(t *testing.T, s Situation) Candidate {
	t.Helper()
	candidates, err := Adaptive.Answer(s)
	if err != nil || len(candidates) != 1 {
		t.Fatalf("%d candidates, %v: expected one", len(candidates), err)
	}
	return candidates[0]
}

func microBatches(c Candidate) map[string]int {
	batches := map[string]int{}
	for _, pipeline := range c.Pipelines {
		batches[pipeline.Stages[0].Node] += pipeline.MicroBatches
	}
	return batches
}

func TestEveryNodeOfADataParallelJobIsAReplica(t *testing.T) {
	s := dataParallelJob(4)
	c := onlyCandidate(t, s)
	if batches := microBatches(c); len(batches) != 4 || batches["n4"] != 3 {
		t.Errorf("12 micro-batches are dealt as %v: expected three for each of four nodes", batches)
	}
	if _, err := Judge(s, "same", c.Pipelines); err != nil {
		t.Error(err)
	}
}

func TestReplicasTakeMicroBatchesBySpeed(t *testing.T) {
	s := dataParallelJob(3)
	s.Speed = []float64{1, 2, 3}
	c := onlyCandidate(t, s)
	if got := microBatches(c); got["n1"] != 2 || got["n2"] != 4 || got["n3"] != 6 {
		t.Errorf("speeds of 1, 2 and 3 take %v", got)
	}
	if c.StepSeconds < c.LowerBoundSeconds || c.LowerBoundSeconds < 35.9 {
		t.Errorf("a step of %v s, at least %v: expected 12 micro-batches of 18 s at a speed of 6", c.StepSeconds,
			c.LowerBoundSeconds)
	}
}

func TestALossMovesNothingAndAJoinerFetchesTheModel(t *testing.T) {
	s := dataParallelJob(4)
	s.Current = onlyCandidate(t, s).Pipelines
	s = s.lose("n2")
	lost := onlyCandidate(t, s)
	if batches := microBatches(lost); len(batches) != 3 || lost.TransitionSeconds != s.SwitchSeconds {
		t.Errorf("after a loss %v, in %v s: expected that nothing moves", batches, lost.TransitionSeconds)
	}
	s.Nodes, s.MemoryBytes, s.Empty = append(s.Nodes, "n5"), append(s.MemoryBytes, 1<<40), []string{"n5"}
	joined := onlyCandidate(t, s)
	if _, placed := microBatches(joined)["n5"]; !placed || joined.TransitionSeconds <= s.SwitchSeconds {
		t.Errorf("a joiner in %v, in %v s: expected a place and six layers to fetch", microBatches(joined),
			joined.TransitionSeconds)
	}
}

func TestOnlyWhoCannotHoldTheModelHasNoPlace(t *testing.T) {
	s := dataParallelJob(3)
	s.MemoryBytes[1] = 605 // of 606
	if batches := microBatches(onlyCandidate(t, s)); len(batches) != 2 || batches["n2"] > 0 {
		t.Errorf("a node that cannot hold the model takes part: %v", batches)
	}
	s.DataParallel.Least = 3
	if _, err := Adaptive.Answer(s); err == nil || !strings.Contains(err.Error(), "expected 3 nodes") {
		t.Errorf("two of the three nodes that there must be: %v", err)
	}
}

func TestWhereNodesOutnumberMicroBatchesThoseWithStateStay(t *testing.T) {
	s := dataParallelJob(3)
	s.MicroBatches, s.GlobalBatch = 2, 2
	s.Current, s.Empty = onlyCandidate(t, s.lose("n1")).Pipelines, []string{"n1"}
	if batches := microBatches(onlyCandidate(t, s)); len(batches) != 2 || batches["n1"] > 0 {
		t.Errorf("two micro-batches are trained by %v: expected by those who hold the model", batches)
	}
}

func TestGradientsAreReducedWhileTheLastMicroBatchGoesBackward(t *testing.T) {
	s := dataParallelJob(4)
	pipelines := onlyCandidate(t, s).Pipelines
	const computed, backward = 3 * 18.0, 12.0 // three micro-batches; six layers backward
	for rate, want := range map[float64]float64{1e9: computed, 10: computed - backward + 18} {
		s.Network.BytesPerSecond, s.Network.LatencySeconds = rate, 0
		if got := s.stepSeconds(s.wires(), pipelines); math.Abs(got-want) > 1e-9 {
			t.Errorf("at %v bytes a second a step takes %v s, expected %v", rate, got, want)
		}
	}
}

func TestAGroupOfShardsTrainsTogetherWithoutABubble(t *testing.T) {
	s := shardedJob(6)
	s.PipelineLength.Least, s.PipelineLength.Most = 3, 3
	c := onlyCandidate(t, s)
	if c.Shape() != "3+3" {
		t.Fatalf("groups of %s", c.Shape())
	}
	sync := s.syncSeconds(s.wires(), c.Pipelines)
	if want := 6 * 18.0 / 3; math.Abs(c.StepSeconds-sync-want) > 1e-9 {
		t.Errorf("a step of %v s: expected six micro-batches of 18 s by three nodes, %v", c.StepSeconds-sync, want)
	}
	// Two layers of 100 bytes, a third of 6 bytes of activations, and 40 bytes of gathered parameters.
	if peak := c.PeakBytes["n1"]; peak != 242 {
		t.Errorf("a peak of %d bytes", peak)
	}
	s.Network.BytesPerSecond = 10 // the ring carries 2/3 of 2*240 bytes of parameters and 120 of gradients
	if got := s.pipelineSeconds(s.wires(), c.Pipelines[0]); math.Abs(got-6*40) > 1e-9 {
		t.Errorf("on slow links %v s: expected the time to gather, 240", got)
	}
}

func TestAModelTooLargeForANodeIsShardedOverMore(t *testing.T) {
	s := shardedJob(7)
	for i := range s.MemoryBytes {
		s.MemoryBytes[i] = 350
	}
	s.PipelineLength.Most = 2
	if got := onlyCandidate(t, s).Shape(); got != "2+2+2" {
		t.Errorf("groups of %s: expected three of two nodes, and a spare", got)
	}
	s.PipelineLength.Most = 1
	if _, err := Choose(s); err == nil {
		t.Error("a model that fits no node is planned for one")
	}
	s.PipelineLength.Most, s.DataParallel.Least = 0, 8
	if _, err := Choose(s); err == nil || !strings.Contains(err.Error(), "expected 8 groups of 1 nodes") {
		t.Errorf("eight groups of seven nodes: %v", err)
	}
}

// An agent whose script is gone takes part with next to no memory, and gives what that left.
func TestAShardedJobIsPlannedForThoseWhoHaveTheMemoryForAShard(t *testing.T) {
	s := shardedJob(7)
	s.MemoryBytes[2] = 1
	s.PipelineLength.Least, s.PipelineLength.Most = 2, 2
	c := onlyCandidate(t, s)
	if _, placed := c.PeakBytes["n3"]; c.Shape() != "2+2+2" || placed {
		t.Errorf("groups of %s, n3 has a place: %v", c.Shape(), placed)
	}
	s.MemoryBytes[4], s.MemoryBytes[5] = 1, 1
	if c = onlyCandidate(t, s); c.Shape() != "2+2" {
		t.Errorf("groups of %s: expected two of four nodes", c.Shape())
	}
	s.DataParallel.Least = 3
	if _, err := Choose(s); err == nil || !strings.Contains(err.Error(), "memory") {
		t.Errorf("three groups of four nodes: %v", err)
	}
}

func TestPlansOfEachKindKeepEveryRule(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 12))
	for range 300 {
		for _, kind := range []Kind{DataParallel, Sharded} {
			s := randomSituation(random)
			s.Kind, s.Current, s.Empty, s.Partitions = kind, nil, nil, 0
			s.OptimizerBytes = make([]int64, len(s.Layers))
			if kind == DataParallel {
				s.PipelineLength.Least, s.PipelineLength.Most, s.DataParallel.Most = 0, 1, 0
			}
			candidates, err := Adaptive.Answer(s)
			if len(candidates) == 0 && err == nil {
				t.Fatalf("%+v: neither a plan nor a reason", s)
			}
			for _, c := range candidates {
				if _, err := Judge(s, "same", c.Pipelines); err != nil {
					t.Fatalf("%+v\n%s: %v", s, c.Shape(), err)
				}
				isSpare := func(node string) bool { return microBatches(c)[node] == 0 }
				allFit := slices.Min(s.MemoryBytes) >= c.PeakBytes[c.Pipelines[0].Stages[0].Node]
				mayHaveSpares := kind != DataParallel || !allFit || len(s.Nodes) > s.MicroBatches || len(c.Idle) > 0
				if !mayHaveSpares && slices.ContainsFunc(s.Nodes, isSpare) {
					t.Fatalf("%+v: a spare in %v", s, c.Pipelines)
				}
			}
		}
	}
}
