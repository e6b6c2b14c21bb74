package policy

import (
	"math/rand/v2"
	"testing"
)

// oneIsLost is 2 x 3 that must stay two pipelines, without the node of two light layers. Memory forbids its twin to
// take over; two survivors could hold all layers, once they have moved a heavy one for 80 s.
func oneIsLost(secondsUntilReturn float64) Situation {
	s := usual(6)
	s.DataParallel.Least = 2
	s.Current = grid(2, 3, 6, 12)
	for i := range s.Nodes {
		s.MemoryBytes[i] = 430
	}
	for i := range s.Layers {
		s.Layers[i].ActivationBytes = 20
		if i >= 2 {
			s.StateBytes[i] = 80e9
		}
	}
	s = s.lose("n1")
	s.SecondsBetweenFailures, s.SecondsUntilReturn, s.MinReplicas = 600, secondsUntilReturn, 1
	return s
}

func TestLostNodesAreWaitedForWhereTheyAreBackBeforeLayersCouldMove(t *testing.T) {
	for seconds, want := range map[float64]string{0: "repipeline", 20: Waiting, 3000: "repipeline"} {
		found := choose(t, oneIsLost(seconds))
		if taken := found[0]; taken.Policy != want {
			t.Errorf("back in %v s: took %s, %s", seconds, taken.Policy, found[1].Rejected)
		}
	}
}

func TestNobodyIsWaitedForWhereALayerHasNoHolderLeft(t *testing.T) {
	s := usual(4)
	s.Current = grid(2, 2, 6, 12)
	s = s.lose("n2", "n4")
	s.SecondsUntilReturn = 1
	if waiting := Adaptive.Wait(s); len(waiting) > 0 {
		t.Fatalf("waits for nodes that come back empty: %+v", waiting)
	}
}

func TestOnlyAPolicyThatWaitsWaits(t *testing.T) {
	s := oneIsLost(20)
	for _, policy := range Policies {
		if waiting := policy.Wait(s); len(waiting) > 0 != policy.Waits {
			t.Errorf("%s: %+v", policy.Name, waiting)
		}
	}
}

// Who reroutes can go back to the old plan as well as who waits, and has trained meanwhile.
func TestWaitingNeverBeatsReroutingWhatIsRerouted(t *testing.T) {
	rerouted := 0
	for seed := range uint64(1200) {
		random := rand.New(rand.NewPCG(seed, 9))
		s := randomSituation(random)
		s.SecondsUntilReturn = random.Float64() * 1000
		waiting := Adaptive.Wait(s)
		keeping, err := reroute(s)
		if err != nil || len(waiting) == 0 || len(s.Empty) > 0 {
			continue
		}
		rerouted++
		if wait, rerouting := s.score(waiting[0]), s.score(keeping[0]); wait > rerouting*(1+1e-12) {
			t.Fatalf("seed %d: waiting trains %v samples a second, rerouting %v", seed, wait, rerouting)
		}
	}
	if rerouted < 20 {
		t.Fatalf("only %d situations could be rerouted", rerouted)
	}
}
