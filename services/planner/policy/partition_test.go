package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/planner/search"
)

func TestEachPartitionHasItsCopiesAndNoPipelineKeepsTwoMoreThanAnother(t *testing.T) {
	for pipelines := 1; pipelines <= 9; pipelines++ {
		for partitions := 1; partitions <= 6; partitions++ {
			for replicas := range 5 {
				s := Situation{Partitions: partitions, MinReplicas: replicas}
				holders, least, most := make([]int, partitions), partitions, 0
				for _, list := range s.lists(pipelines) {
					least, most = min(least, len(list)), max(most, len(list))
					for at, partition := range list {
						holders[partition]++
						if at > 0 && partition <= list[at-1] {
							t.Fatalf("%d pipelines: %v does not ascend", pipelines, list)
						}
					}
				}
				copies := min(max(1, replicas), pipelines)
				if slices.Min(holders) != copies || slices.Max(holders) != copies || most-least > 1 ||
					most != s.mostKept(pipelines) {
					t.Fatalf("%d pipelines, %d partitions, %d replicas: holders %v, %d to %d each, of %d",
						pipelines, partitions, replicas, holders, least, most, s.mostKept(pipelines))
				}
			}
		}
	}
}

func TestPartitionsAreDealtAsAgreed(t *testing.T) {
	s := Situation{Partitions: 4, MinReplicas: 2}
	for pipelines, want := range map[int]string{
		1: "[[0 1 2 3]]", 2: "[[0 1 2 3] [0 1 2 3]]", 3: "[[0 1] [0 2 3] [1 2 3]]", 4: "[[0 1] [2 3] [0 1] [2 3]]",
	} {
		if got := fmt.Sprint(s.lists(pipelines)); got != want {
			t.Errorf("%d pipelines: %s, want %s", pipelines, got, want)
		}
	}
}

// partitioned is usual with a quarter of each layer's 60 bytes of optimizer state in each of four partitions.
func partitioned(nodes int) Situation {
	s := usual(nodes)
	s.Partitions = 4
	for range s.Layers {
		s.OptimizerBytes = append(s.OptimizerBytes, 60)
	}
	return s
}

// inForce puts a plan in force with the partitions of a first plan.
func (s Situation) inForce(plan []Pipeline) Situation {
	s.Current = s.dealt(plan)
	return s
}

func TestWhateverIsPartitionedEveryPolicyKeepsTheRules(t *testing.T) {
	for _, policy := range Policies {
		t.Run(policy.Name, func(t *testing.T) {
			proposed := 0
			for seed := range uint64(300) {
				s := randomPartitioned(rand.New(rand.NewPCG(seed, 12)))
				candidates, err := policy.named(s)
				if again, _ := policy.named(s); !reflect.DeepEqual(candidates, again) || err != nil &&
					len(candidates) > 0 {
					t.Fatalf("seed %d: another answer the second time, or an error with candidates: %v", seed, err)
				}
				for _, candidate := range candidates {
					proposed++
					if err := s.soundPartitioned(candidate); err != nil {
						t.Fatalf("seed %d: %s %s: %v", seed, candidate.Policy, candidate.Shape(), err)
					}
				}
			}
			if proposed < 60 {
				t.Fatalf("only %d proposals in 300 situations", proposed)
			}
		})
	}
}

func (s Situation) soundPartitioned(c Candidate) error {
	counted := s.keeping(s.mostKept(len(c.Pipelines)))
	if c.Policy == "reroute" {
		counted = s.staying()
	}
	for _, rule := range []func(Situation, Candidate) error{
		holdsEveryLayerOnce, assignsEveryMicroBatch, seatsLiveNodesOnce, reroutesWhatIsLost, fitsInMemory, tellsTheTime,
		keepsEveryPartition,
	} {
		if err := rule(counted, c); err != nil {
			return err
		}
	}
	return nil
}

// Every partition of every layer has a live holder: as many as are asked for, or as the replicas say of a plan that is
// kept.
func keepsEveryPartition(s Situation, c Candidate) error {
	least := len(s.Nodes)
	for layer := range s.Layers {
		for partition := range s.Partitions {
			holders := 0
			for _, pipeline := range c.Pipelines {
				for _, stage := range pipeline.Stages {
					if slices.Contains(s.Nodes, stage.Node) && stage.Layers.First <= layer &&
						layer < stage.Layers.End && slices.Contains(pipeline.Partitions, partition) {
						holders++
					}
				}
			}
			least = min(least, holders)
		}
	}
	if asked := s.copies(len(c.Pipelines)); c.Policy != "reroute" &&
		(least != asked || c.Replicas != len(c.Pipelines)) {
		return fmt.Errorf("a partition has %d holders, %d are asked for, of %d replicas", least, asked, c.Replicas)
	}
	if c.Policy == "reroute" && (least < 1 || c.Replicas > least) {
		return fmt.Errorf("a partition has %d holders, the replicas are %d", least, c.Replicas)
	}
	return nil
}

// The twin asks for each degree on its own, with layers that small.
func TestTheLowerBoundHoldsForEveryNumberOfPartitionsKept(t *testing.T) {
	degrees := 0
	for seed := range uint64(300) {
		s := randomPartitioned(rand.New(rand.NewPCG(seed, 13)))
		candidates, err := anew.named(s)
		if err != nil {
			continue
		}
		fastest := math.Inf(1)
		for degree := min(s.MinReplicas, len(s.Nodes)); degree <= len(s.Nodes); degree++ {
			one := s.withPipelines(degree)
			one.Partitions, one.DataParallel = 0, search.Limits{Least: degree, Most: degree}
			// a search that is not exact may have found no plan there
			if bound := one.lowerBound(degree); s.unequal() && bound > 0 {
				fastest = min(fastest, bound)
			}
			degrees++
			alone, _ := repipeline(one)
			for _, candidate := range alone {
				fastest = min(fastest, candidate.StepSeconds)
			}
		}
		for _, candidate := range candidates {
			if candidate.LowerBoundSeconds <= 0 || candidate.LowerBoundSeconds > fastest {
				t.Fatalf("seed %d: the bound is %v s, a plan of one degree takes %v s", seed,
					candidate.LowerBoundSeconds, fastest)
			}
		}
	}
	if degrees < 400 {
		t.Fatalf("only %d degrees", degrees)
	}
}

func TestAJobThatFitsOnlyInPartitionsIsPlanned(t *testing.T) {
	s := partitioned(4)
	for i := range s.MemoryBytes {
		s.MemoryBytes[i] = 430 // half of each layer's 60 bytes makes 70 and an activation
	}
	s.DataParallel.Least = 4
	if taken := choose(t, s)[0]; len(taken.Pipelines) != 4 || taken.PeakBytes["n1"] != 426 {
		t.Errorf("%s with peaks %v", taken.Shape(), taken.PeakBytes)
	}
	s.Partitions = 0
	if found, err := Choose(s); err == nil {
		t.Errorf("it fits whole: %s", found[0].Shape())
	}
}

// In wider plans a node keeps less, so that a wider one fits where a narrower one does not.
func TestTheDegreeDecidesWhatANodeMustHold(t *testing.T) {
	s := partitioned(4)
	for i := range s.MemoryBytes {
		s.MemoryBytes[i] = 520 // of all six layers three quarters of the optimizer state are 516
	}
	s.PipelineLength.Most = 1
	for least, want := range map[int]string{2: "", 3: "1+1+1", 4: "1+1+1+1"} {
		s.DataParallel = search.Limits{Least: least, Most: least}
		found, err := Choose(s)
		if want == "" && (err == nil || !strings.Contains(err.Error(), "repipeline: search: 520 B of memory a node")) {
			t.Errorf("%d pipelines: %v", least, err)
		}
		if want != "" && (err != nil || found[0].Shape() != want) {
			t.Errorf("%d pipelines: %v", least, err)
		}
	}
}

// The restorer may have dealt the lists otherwise than we would.
func TestAPlanInForceThatIsFoundAgainKeepsItsPartitions(t *testing.T) {
	s := partitioned(8).inForce(grid(4, 2, 6, 12))
	for p, list := range [][]int{{2, 3}, {2, 3}, {0, 1}, {0, 1}} {
		s.Current[p].Partitions = list
	}
	again := s.figured(s.known(), s.Current)
	if !reflect.DeepEqual(again.Pipelines, s.Current) || again.TransitionSeconds != s.SwitchSeconds {
		t.Fatalf("%v became %v in %v s", s.Current, again.Pipelines, again.TransitionSeconds)
	}
}

// Two copies of four partitions are two in each of four pipelines, and up to three in each of three.
func TestFewerPipelinesFetchMorePartitionsOfTheLayersTheyKeep(t *testing.T) {
	s := partitioned(4).inForce(grid(4, 1, 6, 12)).lose("n4")
	s.Network.BytesPerSecond = 10
	s = s.keeping(3)
	if got, want := s.figured(s.known(), grid(3, 1, 6, 12)).TransitionSeconds, 0.05+6*15./10; math.Abs(got-want) > 1e-9 {
		t.Fatalf("a transition of %v s, want %v", got, want)
	}
}

func TestWhatASituationKeepsOfAPartitionedStateIsCountedOnce(t *testing.T) {
	s := partitioned(4)
	for partitions, want := range map[int]int64{0: 100, 1: 55, 3: 85, 4: 100} {
		some := s.keeping(2).keeping(partitions)
		if some.Layers[5].StaticBytes != want || some.StateBytes[5] != want-20 || s.Layers[5].StaticBytes != 100 {
			t.Errorf("%d of 4 partitions: %+v, want %d", partitions, some.Layers[5], want)
		}
	}
}

func TestTheOrderInWhichPipelinesOfOtherPartitionsAreToldChangesNothing(t *testing.T) {
	s := partitioned(8).inForce(grid(4, 2, 6, 12))
	for seed := range uint64(20) {
		if !s.Canonical().Same(s.shuffled(rand.New(rand.NewPCG(seed, 16))).Canonical()) {
			t.Fatalf("seed %d: another situation", seed)
		}
	}
}

func TestACanonicalSituationKeepsThePartitionsOfEachPipeline(t *testing.T) {
	kept := 0
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 14))
		s := randomPartitioned(random)
		canonical := s.Canonical()
		s.SecondsBetweenFailures = canonical.SecondsBetweenFailures
		candidates, _ := Adaptive.Answer(canonical.Situation)
		for _, candidate := range candidates {
			restored := canonical.Restored(candidate)
			if err := s.soundPartitioned(restored); err != nil {
				t.Fatalf("seed %d: %s: %v", seed, restored.Policy, err)
			}
			if candidate.Policy == "reroute" {
				kept++
				if !reflect.DeepEqual(restored.Pipelines, s.Current) {
					t.Fatalf("seed %d: rerouting made %v of %v", seed, restored.Pipelines, s.Current)
				}
			}
		}
		s.Network.Dear, s.Network.Links = nil, nil // which would tell equals apart
		if !s.Canonical().Same(s.shuffled(random).Canonical()) {
			t.Fatalf("seed %d: %+v", seed, s)
		}
		for p := range s.Current {
			other := s
			other.Current = slices.Clone(s.Current)
			other.Current[p].Partitions = append(slices.Clone(s.Current[p].Partitions), 9)
			if s.Canonical().Same(other.Canonical()) {
				t.Fatalf("seed %d: the same with other partitions in pipeline %d", seed, p)
			}
		}
	}
	if kept < 30 {
		t.Fatalf("only %d times rerouted", kept)
	}
}

func TestAPartitionedPlanOfOursThatSomebodyElseProposesHasOurFigures(t *testing.T) {
	judged := 0
	for seed := range uint64(100) {
		s := randomPartitioned(rand.New(rand.NewPCG(seed, 15)))
		candidates, _ := anew.named(s)
		for _, ours := range candidates {
			claimed := slices.Clone(ours.Pipelines)
			for p := range claimed {
				claimed[p].Partitions = []int{-1, 99}
			}
			theirs, err := Judge(s, "theirs", claimed)
			if err != nil || !reflect.DeepEqual(theirs.Pipelines, ours.Pipelines) ||
				!reflect.DeepEqual(theirs.PeakBytes, ours.PeakBytes) ||
				theirs.TransitionSeconds != ours.TransitionSeconds {
				t.Fatalf("seed %d: ours %+v, judged %+v, %v", seed, ours, theirs, err)
			}
			judged++
		}
	}
	if judged < 50 {
		t.Fatalf("only %d plans", judged)
	}
}

// A question to the search for each choice of nodes, and uneven.
func TestPartitionsAddFewCandidates(t *testing.T) {
	s := usual(24)
	for i := range s.Nodes {
		s.MemoryBytes[i] = int64(300 + 60*(i%4))
	}
	without, err := repipeline(s)
	if err != nil {
		t.Fatal(err)
	}
	s.Partitions = 64
	for range s.Layers {
		s.OptimizerBytes = append(s.OptimizerBytes, 60)
	}
	with, err := repipeline(s)
	if err != nil || len(with) > 3*len(without) || len(with) > search.Weighed*(1+len(s.choices())) {
		t.Fatalf("%d candidates, %d without partitions, %v", len(with), len(without), err)
	}
}

func TestPartitionsMakeNoFirstPlanOfEqualNodesSlower(t *testing.T) {
	compared, faster := 0, 0
	for seed := range uint64(600) {
		s := randomPartitioned(rand.New(rand.NewPCG(seed, 47)))
		s.Current, s.Empty, s.Speed, s.Network.Links, s.Network.Dear = nil, nil, nil, nil, nil
		for i := range s.MemoryBytes {
			s.MemoryBytes[i] = s.MemoryBytes[0]
		}
		without := s
		without.Partitions = 0
		whole, err := Choose(without)
		if err != nil {
			continue
		}
		compared++
		with := choose(t, s)
		if as := min(with[0].Replicas, s.MinReplicas) - min(whole[0].Replicas, s.MinReplicas); as < 0 || as == 0 &&
			with[0].StepSeconds > whole[0].StepSeconds {
			t.Fatalf("seed %d: %s in %v s, without partitions %s in %v s", seed, with[0].Shape(), with[0].StepSeconds,
				whole[0].Shape(), whole[0].StepSeconds)
		}
		if with[0].StepSeconds < whole[0].StepSeconds {
			faster++
		}
		for _, candidate := range with {
			if candidate.StepSeconds < candidate.LowerBoundSeconds {
				t.Fatalf("seed %d: %s in %v s, though none takes less than %v s", seed, candidate.Shape(),
					candidate.StepSeconds, candidate.LowerBoundSeconds)
			}
		}
	}
	if compared < 100 || faster < 10 {
		t.Fatalf("%d compared, %d of them faster", compared, faster)
	}
}
