package policy

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/planner/estimate"
)

func choose(t *testing.T, s Situation) []Candidate {
	t.Helper()
	found, err := Choose(s)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func of(t *testing.T, policy string, found []Candidate) Candidate {
	t.Helper()
	i := slices.IndexFunc(found, func(c Candidate) bool { return c.Policy == policy })
	if i < 0 {
		t.Fatalf("no candidate of %s among %d", policy, len(found))
	}
	return found[i]
}

// beforeALoss is 2 x 3 on nodes that cannot hold the whole model.
func beforeALoss() Situation {
	s := usual(6)
	for i := range s.MemoryBytes {
		s.MemoryBytes[i] = 500
	}
	s.Current = grid(2, 3, 6, 12)
	return s
}

func afterALoss() Situation { return beforeALoss().lose("n2") }

func TestALostNodeOfTwoByThreeLeavesUnequalPipelinesThatUseAllFive(t *testing.T) {
	taken := choose(t, afterALoss())[0]
	used := map[string]bool{}
	for _, pipeline := range taken.Pipelines {
		for _, stage := range pipeline.Stages {
			used[stage.Node] = true
		}
	}
	if taken.Policy != "repipeline" || taken.Shape() != "2+3" || len(used) != 5 || used["n2"] {
		t.Fatalf("%s %s on %v", taken.Policy, taken.Shape(), used)
	}
}

func TestRerouteLosesWhereItLeavesALayerOneHolder(t *testing.T) {
	rejected := of(t, "reroute", choose(t, afterALoss()))
	if want := "a layer would have 1 holder(s), where 2 are possible"; rejected.Rejected != want ||
		rejected.Replicas != 1 {
		t.Fatalf("%d replicas, rejected for %q, want %q", rejected.Replicas, rejected.Rejected, want)
	}
	if want := []Reroute{{From: "n2", To: "n5", Stage: 1, MicroBatches: 6}}; !reflect.DeepEqual(rejected.Reroutes,
		want) {
		t.Fatalf("reroutes %v, want %v", rejected.Reroutes, want)
	}
}

// A third layer fits nowhere: only one pipeline could be built. It has no more replicas, and moving its layers costs
// more than its tenth of a faster step brings until the next failure.
func TestRerouteWinsWhereMemoryForbidsShorterPipelines(t *testing.T) {
	s := afterALoss()
	for i := range s.MemoryBytes {
		s.MemoryBytes[i] = 220
	}
	for i := range s.StateBytes {
		s.StateBytes[i] = 80e9
	}
	s.SecondsBetweenFailures = 600
	found := choose(t, s)
	if found[0].Policy != "reroute" || of(t, "repipeline", found).Replicas != 1 {
		t.Fatalf("took %s with %d replicas", found[0].Policy, found[0].Replicas)
	}
	for node, peak := range found[0].PeakBytes {
		if peak > 220 {
			t.Errorf("%s: %d bytes of 220", node, peak)
		}
	}
}

// With three pipelines a loss leaves two holders; what decides is whether a better plan pays before the next failure.
func TestRerouteWinsWhereReplicasSufficeAndTheNextFailureIsNear(t *testing.T) {
	s := usual(6)
	s.Current = grid(3, 2, 6, 12)
	s = s.lose("n2")
	s.Network.BytesPerSecond = 10 // a layer takes eight seconds
	for seconds, want := range map[float64]string{30: "reroute", 1e6: "repipeline"} {
		s.SecondsBetweenFailures = seconds
		if taken := choose(t, s)[0]; taken.Policy != want {
			t.Errorf("%v s between failures: took %s, want %s", seconds, taken.Policy, want)
		}
	}
}

func TestRerouteHasNoAnswerWhereNobodyHoldsTheLostLayers(t *testing.T) {
	s := usual(6)
	s.Current = grid(2, 3, 6, 12)
	if _, err := reroute(s.lose("n2", "n5")); err == nil ||
		err.Error() != "no survivor holds layers 2-3 of n2" {
		t.Fatalf("got %v", err)
	}
}

// Alone each would give the first survivor the odd micro-batch.
func TestMicroBatchesOfTwoLostNodesAreDealtEvenly(t *testing.T) {
	s := usual(8)
	s.Current = grid(4, 2, 6, 12)
	candidates, err := reroute(s.lose("n2", "n4"))
	if err != nil {
		t.Fatal(err)
	}
	taken := map[string]int{}
	for _, reroute := range candidates[0].Reroutes {
		taken[reroute.To] += reroute.MicroBatches
	}
	if want := map[string]int{"n6": 3, "n8": 3}; !reflect.DeepEqual(taken, want) {
		t.Fatalf("dealt %v, want %v", taken, want)
	}
}

// The twin is the paper's formula with whole micro-batches, and of the activations in flight.
func TestAReroutedGridCostsWhatThePaperSays(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		width, length := 2+random.IntN(4), 1+random.IntN(4)
		perStage, microBatches := 1+random.IntN(2), 1+random.IntN(9)
		s := usual(width * length)
		s.Network = Network{}
		s.Layers = slices.Repeat(s.Layers[:1], perStage*length)
		s.MicroBatches, s.Current = microBatches*width, grid(width, length, len(s.Layers), microBatches*width)
		var names []string
		failed := make([]int, length) // per stage
		for _, i := range random.Perm(width * length)[:random.IntN(width)] {
			names = append(names, s.Nodes[i])
			failed[i%length]++
		}
		share := func(work, stage int) int {
			return (work*failed[stage] + width - failed[stage] - 1) / (width - failed[stage])
		}
		worst := 0
		for stage := range length {
			worst = max(worst, microBatches+share(microBatches, stage))
		}
		candidates, err := reroute(s.lose(names...))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if want := float64(3 * perStage * (worst + length - 1)); candidates[0].StepSeconds != want {
			t.Fatalf("seed %d: %v seconds without %v, want %v", seed, candidates[0].StepSeconds, names, want)
		}
		for st := range length {
			got, inFlight := int64(0), estimate.InFlight(st, length, microBatches)
			for p := range width {
				got = max(got, candidates[0].PeakBytes[s.Nodes[p*length+st]])
			}
			if want := int64(perStage * (100 + inFlight + share(inFlight, st))); got != want {
				t.Fatalf("seed %d: stage %d peaks at %d, want %d", seed, st, got, want)
			}
		}
	}
}

func TestANodeThatCameBackEmptyMustFetchItsLayersAgain(t *testing.T) {
	s := usual(6)
	s.Current = grid(2, 3, 6, 12)
	s.Network.BytesPerSecond = 10
	for _, c := range []struct {
		empty []string
		want  float64
	}{{nil, 0.05}, {[]string{"n4"}, 16.05}} {
		s.Empty = c.empty
		for _, candidate := range choose(t, s) {
			if len(candidate.Pipelines) == 2 && candidate.TransitionSeconds != c.want {
				t.Errorf("%s with %v empty: %v s of transition, want %v", candidate.Policy, c.empty,
					candidate.TransitionSeconds, c.want)
			}
		}
	}
}

func TestAPlanOfAnotherJobIsNotContinued(t *testing.T) {
	s := usual(6)
	s.Current = grid(2, 3, 6, 10)
	if _, err := reroute(s); err == nil ||
		err.Error() != "the plan in force: expected the 12 micro-batches of the job, got 10" {
		t.Errorf("got %v", err)
	}
	s.Current = grid(2, 3, 9, 12)
	if _, err := reroute(s); err == nil ||
		err.Error() != "pipeline 0 of the plan in force: expected the 6 layers of the job" {
		t.Errorf("got %v", err)
	}
	if taken := choose(t, s)[0]; taken.Policy != "repipeline" {
		t.Errorf("took %s", taken.Policy)
	}
}

func TestTooLittleMemoryIsRefusedByName(t *testing.T) {
	s := usual(2)
	s.MemoryBytes = []int64{300, 250}
	if _, err := Choose(s); err == nil || !strings.Contains(err.Error(), "repipeline: search: 250 B of memory a node") {
		t.Fatalf("got %v", err)
	}
}

func TestFiguresThatMakeNoSenseAreNoPlan(t *testing.T) {
	for what, spoil := range map[string]func(*Situation){
		"layers that take no time": func(s *Situation) {
			clear(s.Layers)
			s.PipelineLength.Most, s.DataParallel.Most = 1, 1
		},
		"links that take for ever": func(s *Situation) {
			s.Network.BytesPerSecond = 1e-307
			s.StateBytes[0], s.DataParallel.Least = 1e9, 2
		},
		"no time between two failures": func(s *Situation) {
			s.SecondsBetweenFailures, s.SwitchSeconds = 0, 0
			clear(s.StateBytes)
		},
		"nobody":                          func(s *Situation) { *s = s.lose(s.Nodes...) },
		"pipelines longer than the model": func(s *Situation) { s.PipelineLength.Least = 7 },
	} {
		s := usual(3)
		spoil(&s)
		if found, err := Choose(s); err == nil || !strings.HasPrefix(err.Error(), "no plan") {
			t.Errorf("%s: %d candidates, error %v", what, len(found), err)
		}
	}
}

func TestAnyTwoNodesWithoutALinkAreKeptApart(t *testing.T) {
	for _, s := range []Situation{beforeALoss(), afterALoss()} {
		for a := range s.Nodes {
			for b := range a {
				s.Network.Dear = [][2]int{{b, a}}
				s.Network.DearSeconds = 1
				taken := choose(t, s)[0]
				if seconds := s.dearSeconds(taken.Pipelines); seconds != 0 {
					t.Errorf("%s and %s talk in %s %s", s.Nodes[a], s.Nodes[b], taken.Policy, taken.Shape())
				}
			}
		}
	}
}

// Four nodes in two places far apart, named so that no order of names helps.
func TestPipelinesStayWhereTheirLinksAreFast(t *testing.T) {
	s := usual(4)
	s.DataParallel.Least, s.PipelineLength.Least = 2, 2
	s.Network.ActivationBytes, s.Network.TransferSeconds = 1e6, 0.0015
	east := map[int]bool{0: true, 3: true}
	for a := range 4 {
		for b := range 4 {
			if east[a] != east[b] {
				s.Network.Links = append(s.Network.Links, Link{a, b, 0.2, 1e6, false})
			}
		}
	}
	s.GradientBytes = make([]int64, 6) // all-reduces cost the delay only, whoever takes part
	taken := choose(t, s)[0]
	for _, pipeline := range taken.Pipelines {
		if pipeline.Stages[0].Node == "n1" != (pipeline.Stages[1].Node == "n4") &&
			pipeline.Stages[1].Node == "n1" != (pipeline.Stages[0].Node == "n4") {
			t.Errorf("%v crosses the slow link", pipeline.Stages)
		}
	}
}

func TestNodesOfOneRegionAreOneClass(t *testing.T) {
	s := usual(9)
	for a := range 9 {
		for b := range 9 {
			if a%3 != b%3 {
				s.Network.Links = append(s.Network.Links, Link{a, b, 0.01 * float64(1+a%3+b%3), 1e6, false})
			}
		}
	}
	want := [][]string{{"n1", "n4", "n7"}, {"n2", "n5", "n8"}, {"n3", "n6", "n9"}}
	if got := choose(t, s)[0].Classes; !reflect.DeepEqual(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestAPipelineOfFastNodesTakesMoreMicroBatches(t *testing.T) {
	s := usual(4)
	s.DataParallel.Least, s.PipelineLength.Least = 2, 2
	s.Speed = []float64{1, 3, 1, 3}
	s.Layers, s.StateBytes, s.GradientBytes = s.Layers[:2], s.StateBytes[:2], s.GradientBytes[:2] // one a stage
	taken := choose(t, s)[0]
	for _, pipeline := range taken.Pipelines {
		fast := pipeline.Stages[0].Node == "n2" || pipeline.Stages[0].Node == "n4"
		if fast != (pipeline.MicroBatches > 6) ||
			fast != (pipeline.Stages[1].Node == "n2" || pipeline.Stages[1].Node == "n4") {
			t.Errorf("%v take %d of 12 micro-batches", pipeline.Stages, pipeline.MicroBatches)
		}
	}
}

func TestNodesOfMoreMemoryAreUsedForWhatOthersCannotHold(t *testing.T) {
	s := usual(3)
	s.MinReplicas, s.MemoryBytes = 1, []int64{90, 330, 330} // three layers and their activations need 306, and one 101
	taken := choose(t, s)[0]
	if len(taken.PeakBytes) != 2 || taken.PeakBytes["n1"] != 0 {
		t.Fatalf("peaks %v", taken.PeakBytes)
	}
}

// Another plan is 3.5 % better, which measurements can pretend, and a link that is there again cannot.
func TestAGainThatMeasurementsCanPretendIsHeededOnlyWhereSomethingElseChanged(t *testing.T) {
	for name, change := range map[string]func(*Situation){
		"nothing":                          func(*Situation) {},
		"a node restarted":                 func(s *Situation) { s.Empty = []string{"n2"} },
		"a node is lost":                   func(s *Situation) { *s = s.lose("n4") },
		"a link is missing":                func(s *Situation) { s.Network.Dear = [][2]int{{0, 1}} },
		"a link that was missing is there": func(s *Situation) { s.Relayed = true },
	} {
		s := usual(4)
		s.Current = grid(2, 2, 6, 12)
		change(&s)
		all, err := Weigh(s, []Candidate{
			{Policy: rerouting, Pipelines: s.Current, StepSeconds: 10.35, TransitionSeconds: s.SwitchSeconds, Replicas: 2},
			{Policy: "repipeline", StepSeconds: 10, TransitionSeconds: 1, Replicas: 2},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if kept := all[0].Policy == rerouting; kept != (name == "nothing") {
			t.Errorf("%s changed beside measurements: taken %s, and beside it %+v", name, all[0].Policy, all[1].Rejected)
		}
	}
}
