package policy

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

func TestLosingEitherOfTwoEqualNodesIsOneSituation(t *testing.T) {
	for _, c := range []struct {
		a, b  string
		empty []string
		same  bool
	}{
		{"n2", "n5", nil, true},
		{"n1", "n4", []string{"n3", "n6"}, true},
		{"n1", "n2", nil, false},
		{"n1", "n4", []string{"n3"}, false},
	} {
		s := beforeALoss()
		s.Empty = c.empty
		if same := s.lose(c.a).Canonical().Same(s.lose(c.b).Canonical()); same != c.same {
			t.Errorf("%s or %s with %v empty: same is %v", c.a, c.b, c.empty, same)
		}
	}
}

// shuffled is the same cluster, told in another order.
func (s Situation) shuffled(random *rand.Rand) Situation {
	order := random.Perm(len(s.Nodes))
	other := s
	other.Nodes, other.MemoryBytes, other.Speed = nil, nil, nil
	other.Current, other.Empty = slices.Clone(s.Current), slices.Clone(s.Empty)
	for _, i := range order {
		other.Nodes, other.MemoryBytes = append(other.Nodes, s.Nodes[i]), append(other.MemoryBytes, s.MemoryBytes[i])
		if s.Speed != nil {
			other.Speed = append(other.Speed, s.Speed[i])
		}
	}
	random.Shuffle(len(other.Current),
		func(i, j int) { other.Current[i], other.Current[j] = other.Current[j], other.Current[i] })
	random.Shuffle(len(other.Empty), func(i, j int) { other.Empty[i], other.Empty[j] = other.Empty[j], other.Empty[i] })
	return other
}

func TestTheOrderInWhichAClusterIsToldChangesNothing(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 8))
		s := randomSituation(random)
		s.Network.Dear, s.Network.Links = nil, nil // which would tell equals apart
		if !s.Canonical().Same(s.shuffled(random).Canonical()) {
			t.Fatalf("seed %d: %+v", seed, s)
		}
	}
}

func TestAnAnswerInNumbersIsSoundInNames(t *testing.T) {
	kept := 0
	for seed := range uint64(300) {
		s := randomSituation(rand.New(rand.NewPCG(seed, 9)))
		canonical := s.Canonical()
		s.SecondsBetweenFailures = canonical.SecondsBetweenFailures
		candidates, _ := Adaptive.Answer(canonical.Situation)
		for _, candidate := range candidates {
			restored := canonical.Restored(candidate)
			for _, rule := range []func(Situation, Candidate) error{
				holdsEveryLayerOnce, assignsEveryMicroBatch, seatsLiveNodesOnce, reroutesWhatIsLost, fitsInMemory,
				tellsTheTime,
			} {
				if err := rule(s, restored); err != nil {
					t.Fatalf("seed %d: %s: %v", seed, restored.Policy, err)
				}
			}
			if candidate.Policy == "reroute" {
				kept++
				if !reflect.DeepEqual(restored.Pipelines, s.Current) {
					t.Fatalf("seed %d: rerouting made %v of %v", seed, restored.Pipelines, s.Current)
				}
			}
		}
	}
	if kept < 30 {
		t.Fatalf("only %d times rerouted", kept)
	}
}

// Whatever a situation comes to hold of its nodes must be numbered like them, or answers go to the wrong nodes.
func TestEveryFieldAboutNodesIsNumbered(t *testing.T) {
	known := map[string][]string{
		"Situation": {"Kind", "Nodes", "MemoryBytes", "Speed", "Layers", "StateBytes", "GradientBytes", "Partitions",
			"OptimizerBytes", "KeptPartitions", "StateCopies", "PreCopies", "Relayed", "currentSeconds",
			"MicroBatches", "GlobalBatch", "DataParallel", "PipelineLength", "MinReplicas", "Current", "Empty",
			"Network", "SecondsBetweenFailures", "SecondsUntilReturn", "SwitchSeconds", "RestartSeconds", "Find", "Slowdown", "KeepsAll",
			"Correction", "OverheadSeconds", "OwnSeconds"},
		"Network": {
			"TransferSeconds", "BytesPerSecond", "LatencySeconds", "Dear", "DearSeconds", "ActivationBytes", "Links", "SiteLinks", "Sites",
		},
		"Pipeline": {"MicroBatches", "Stages", "Partitions"},
		"Candidate": {"Policy", "Pipelines", "Reroutes", "StepSeconds", "LowerBoundSeconds", "TransitionSeconds",
			"CopySeconds", "PeakBytes", "Replicas",
			"Classes", "Idle", "Score", "Rejected"},
	}
	for _, value := range []any{Situation{}, Network{}, Pipeline{}, Candidate{}} {
		about := reflect.TypeOf(value)
		for _, field := range reflect.VisibleFields(about) {
			if !slices.Contains(known[about.Name()], field.Name) {
				t.Errorf("%s.%s is new: number it in Canonical and Restored if it tells of nodes, then list it here",
					about.Name(), field.Name)
			}
		}
	}
}
