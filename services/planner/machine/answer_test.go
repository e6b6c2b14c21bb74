package machine

import (
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

func considered(t *testing.T, plan events.Plan, policy string) events.Candidate {
	t.Helper()
	for _, candidate := range plan.Considered {
		if candidate.Policy == policy {
			return candidate
		}
	}
	t.Fatalf("%s is not among %+v", policy, plan.Considered)
	return events.Candidate{}
}

// A survivor's memory holds its own activations, and not those of a lost node too.
func TestAPlanTellsWhyAPolicyHadNoAnswer(t *testing.T) {
	for memory := int64(700_000); memory > 300_000; memory -= 10_000 {
		r := afterALoss()
		for i := range r.Nodes {
			r.Nodes[i].MemoryBytes = memory
		}
		for i := range r.Job.Layers {
			r.Job.Layers[i].ActivationBytes = 20_000
		}
		plan := proposed(t, r).Plan
		silent := considered(t, plan, "reroute")
		if silent.Weighed() {
			continue
		}
		if plan.Policy != "repipeline" || !strings.Contains(silent.Rejected, "no survivor has memory for all micro-batches at layers") {
			t.Errorf("%s, and of rerouting %+v", plan.Policy, silent)
		}
		return
	}
	t.Error("rerouting had an answer with whatever memory")
}

func TestWhatChangesCostIsAsMeasuredOnceThatIsKnown(t *testing.T) {
	r := afterALoss()
	before := considered(t, proposed(t, r).Plan, "reroute").TransitionSeconds
	r.SwitchSeconds, r.RestartSeconds = 4, 40
	plan := proposed(t, r).Plan
	if got := considered(t, plan, "reroute").TransitionSeconds; got != 4 || before == 4 {
		t.Errorf("a reroute cost %v s, and %v s as measured", before, got)
	}
	if got := considered(t, plan, "repipeline").TransitionSeconds; got < 40 {
		t.Errorf("a plan that moves costs %v s, measured was a restart of 40 s", got)
	}
}
