package policy

import (
	"math"
	"strings"
	"testing"
)

// A reroute pays the switch. A policy that moves state pays its transfer and its restart, so that it loses once these are dear.
func TestEachPolicyPaysItsOwnPrice(t *testing.T) {
	s := usual(6)
	s.Current = grid(3, 2, 6, 12)
	s = s.lose("n2")
	s.Network.BytesPerSecond, s.SecondsBetweenFailures, s.SwitchSeconds = 1e9, 3600, 2
	for restart, want := range map[float64]string{2: "repipeline", 60: "repipeline", 3000: "reroute"} {
		s.RestartSeconds = restart
		found := choose(t, s)
		if found[0].Policy != want {
			t.Errorf("a restart of %v s: took %s, want %s", restart, found[0].Policy, want)
		}
		for _, candidate := range found {
			price := 2.0
			if candidate.CopySeconds > 0 {
				price = restart + candidate.CopySeconds
			}
			if math.Abs(candidate.TransitionSeconds-price) > 1e-9 {
				t.Errorf("%s that copies for %v s: a transition of %v s, want %v", candidate.Policy, candidate.CopySeconds,
					candidate.TransitionSeconds, price)
			}
		}
	}
}

// Answers that were found ahead know no prices: measured later, these count where the answers are weighed.
func TestPricesAreThoseOfTheSituationThatIsWeighed(t *testing.T) {
	s := usual(6)
	s.Current = grid(3, 2, 6, 12)
	s = s.lose("n2")
	s.RestartSeconds = 7
	canonical := s.Canonical()
	s.SwitchSeconds, s.RestartSeconds = 3, 11
	if !canonical.Same(s.Canonical()) {
		t.Error("other prices make another question")
	}
	candidates, _ := Adaptive.Answer(canonical.Situation)
	found, err := Weigh(s, candidates, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := of(t, "reroute", found).TransitionSeconds; got != 3 {
		t.Errorf("a reroute costs %v s, want 3", got)
	}
	if got := of(t, "repipeline", found); got.CopySeconds == 0 || got.TransitionSeconds != 11+got.CopySeconds {
		t.Errorf("a plan that moves costs %v s for copies of %v s, want 11 s more", got.TransitionSeconds, got.CopySeconds)
	}
}

func TestAPolicyWithoutAnAnswerSaysWhyThoughAnotherHasOne(t *testing.T) {
	s := usual(6)
	s.Current = grid(2, 3, 6, 12)
	s.PipelineLength.Most = 6
	for i := range s.MemoryBytes {
		s.MemoryBytes[i] = 206 // a stage and its activations in flight, and not those of another
	}
	s.Layers[0].ActivationBytes, s = 1, s.lose("n1")
	candidates, err := repipeline(s)
	if err != nil {
		t.Fatal(err)
	}
	for i := range candidates {
		candidates[i].Policy = anew.Name
	}
	unanswered := Adaptive.Unanswered(s, candidates)
	if len(unanswered) == 0 || unanswered[0].Policy != rerouting || !strings.Contains(unanswered[0].Reason.Error(), "memory") {
		t.Errorf("%+v: expected why nothing is rerouted", unanswered)
	}
	if got := (Policy{Name: rerouting, Propose: reroute}).Unanswered(s, candidates); len(got) != 1 {
		t.Errorf("%+v: expected why nothing is rerouted, once", got)
	}
	s.Kind = DataParallel
	if got := Adaptive.Unanswered(s, candidates); len(got) > 0 {
		t.Errorf("%+v of a kind of job that has its own plans", got)
	}
}
