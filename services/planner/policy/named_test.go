package policy

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestAWrongNameListsTheRightOnes(t *testing.T) {
	_, err := Named("reruote")
	if want := `policy "reruote": expected one of adaptive, repipeline, reroute`; err == nil || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
	for _, policy := range Policies {
		if named, err := Named(policy.Name); err != nil || named.Name != policy.Name {
			t.Errorf("%s: %v, %v", policy.Name, named.Name, err)
		}
	}
}

func TestAPolicyWithoutAnAnswerLeavesItToRepipeline(t *testing.T) {
	policy, err := Named("reroute")
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		situation Situation
		want      string
	}{"before the first plan": {usual(6), "repipeline"}, "after a loss": {afterALoss(), "reroute"}} {
		candidates, err := policy.Answer(c.situation)
		if err != nil || candidates[0].Policy != c.want {
			t.Errorf("%s: %v of %d, %v", what, candidates[0].Policy, len(candidates), err)
		}
	}
}

func TestWithoutAPlanEveryPolicyInvolvedSaysWhy(t *testing.T) {
	s := afterALoss()
	for i := range s.MemoryBytes {
		s.MemoryBytes[i] = 50
	}
	for _, policy := range Policies {
		_, err := policy.Answer(s)
		if err == nil || !strings.Contains(err.Error(), policy.Name+": ") ||
			!strings.Contains(err.Error(), "repipeline: ") {
			t.Errorf("%s: %v", policy.Name, err)
		}
	}
}

func TestTheAdaptiveChoiceIsExpectedToTrainAboutAsMuchAsEachOfWhatItWeighs(t *testing.T) {
	for seed := range uint64(300) {
		s := randomSituation(rand.New(rand.NewPCG(seed, 6)))
		taken, err := Choose(s)
		if err != nil {
			continue
		}
		for _, policy := range weighed {
			candidates, err := policy.named(s)
			alone, err := Weigh(s, candidates, err)
			if err != nil || alone[0].Replicas < min(taken[0].Replicas, s.MinReplicas) {
				continue
			}
			if alone[0].Score*(1-worthMoving) > taken[0].Score {
				t.Fatalf("seed %d: %s would train %v, taken %v", seed, policy.Name, alone[0].Score, taken[0].Score)
			}
		}
	}
}
