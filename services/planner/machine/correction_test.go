package machine

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner/policy"
)

// corrected is the plan for the request, where a step of the plan in force takes so many times what the model says.
func corrected(t *testing.T, r events.PlanRequest, times float64) events.Plan {
	t.Helper()
	model := settings.Situation(r).CurrentSeconds()
	r.CurrentStepSeconds = times * model
	return proposed(t, r).Plan
}

func TestTheNextPredictionUsesHowFarTheLastOneWasOff(t *testing.T) {
	r := afterALoss()
	plain := proposed(t, r).Plan
	if plain.Predicted.Correction != 1 {
		t.Fatalf("nothing was measured, and seconds are multiplied by %v", plain.Predicted.Correction)
	}
	for _, times := range []float64{0.5, 1.3, 3.8} {
		plan := corrected(t, r, times)
		near := func(got, want float64) bool { return math.Abs(got-want) < 1e-9*want }
		if !near(plan.Predicted.Correction, times) || !near(plan.Predicted.StepSeconds, times*plain.Predicted.StepSeconds) ||
			!near(plan.Predicted.StepSecondsLowerBound, times*plain.Predicted.StepSecondsLowerBound) {
			t.Errorf("%v times: %+v, without %+v", times, plan.Predicted, plain.Predicted)
		}
	}
}

func TestACorrectionIsBounded(t *testing.T) {
	for times, want := range map[float64]float64{1e9: mostCorrection, 1e-9: 1.0 / mostCorrection} {
		if plan := corrected(t, afterALoss(), times); math.Abs(plan.Predicted.Correction-want) > 1e-9 {
			t.Errorf("%v times: corrected by %v, expected %v", times, plan.Predicted.Correction, want)
		}
	}
}

func TestWhatWasLearntBeforeCountsWhereNothingWasMeasuredSince(t *testing.T) {
	r := afterALoss()
	r.Current.Predicted.Correction = 1.7
	if plan := proposed(t, r).Plan; plan.Predicted.Correction != 1.7 {
		t.Errorf("corrected by %v, expected 1.7 as the plan before", plan.Predicted.Correction)
	}
	rerouted := afterALoss()
	rerouted.CurrentStepSeconds = 1000
	rerouted.Current.Predicted.Correction = 1.2
	rerouted.Current.Reroutes = []events.Reroute{{From: "n2", To: "n5", Stage: 1, MicroBatches: 6}}
	rerouted.Current.Predicted.OverheadSeconds, rerouted.Current.Predicted.OwnSeconds = 0.3, 0.1
	if got := lessonOf(settings.Situation(rerouted), rerouted); got != (lesson{1.2, 0.3, 0.1}) {
		t.Errorf("%+v: steps in which some stand in for others are no measure", got)
	}
}

// measuredWith is a request after steps that took so many times what the model says, of which passes took so many times theirs.
func measuredWith(r events.PlanRequest, step, passes float64) events.PlanRequest {
	r.CurrentStepSeconds, r.CurrentComputeRatio = step*settings.Situation(r).CurrentSeconds(), passes
	return r
}

func TestWhatAStepTakesBeyondItsPassesIsAddedAndNotMultiplied(t *testing.T) {
	r := afterALoss()
	model := settings.Situation(r).CurrentSeconds()
	plain := proposed(t, r).Plan.Predicted
	got := proposed(t, measuredWith(r, 1.8, 1.2)).Plan.Predicted
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-9*want }
	if !near(got.Correction, 1.2) || !near(got.OverheadSeconds, 0.6*model) || !near(got.StepSeconds, 1.2*plain.StepSeconds+0.6*model) ||
		!near(got.StepSecondsLowerBound, 1.2*plain.StepSecondsLowerBound+0.6*model) {
		t.Errorf("%+v: expected 1.2 times %v s and %v s beside", got, plain.StepSeconds, 0.6*model)
	}
	for what, test := range map[string]struct{ step, passes, times, beside float64 }{
		"nobody told of passes":             {1.8, 0, 1.8, 0},
		"passes take longer than the step":  {1.2, 1.8, 1.2, 0},
		"passes are said to take no time":   {1.2, 1e-300, 1.0 / mostCorrection, 1.2 - 1.0/mostCorrection},
		"they are said to take for ever":    {1.2, 1e300, 1.2, 0},
		"the step is said to take for ever": {1e300, 1, 1, mostCorrection - 1},
	} {
		learnt := lessonOf(settings.Situation(r), measuredWith(r, test.step, test.passes))
		if !near(learnt.times, test.times) || math.Abs(learnt.overheadSeconds-test.beside*model) > 1e-9*model {
			t.Errorf("%s: %+v of models of %v s, expected %+v", what, learnt, model, test)
		}
	}
}

// A node that is lost takes its slow links along, and nobody told which node's they were.
func TestNoMoreIsExpectedWithoutALostNodeThanStepsTookAtTheirLeast(t *testing.T) {
	lost := afterALoss()
	there := afterALoss()
	for _, member := range there.Current.Nodes {
		if !slices.ContainsFunc(there.Nodes, func(node events.Device) bool { return node.Node == member.Node }) {
			there.Nodes = append(there.Nodes, events.Device{Member: member, MemoryBytes: 1 << 20, SpeedFactor: 1})
		}
	}
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-9 }
	for what, test := range map[string]struct {
		request             events.PlanRequest
		step, least, passes float64 // of what the model says
		times, beside       float64
	}{
		"all are there":                         {there, 9, 1.3, 1.1, 1.1, 7.9},
		"one is lost":                           {lost, 9, 1.3, 1.1, 1.1, 0.2},
		"the model knows of the slow link":      {lost, 1.1, 0.2, 1.1, 1.1, 0},
		"and steps take less than it says":      {lost, 0.9, 0.2, 1.1, 0.9, 0},
		"nobody told of passes":                 {lost, 9, 1.3, 0, 1.3, 0},
		"nor of them, and the model knows":      {lost, 1.1, 0.2, 0, 1, 0},
		"steps are at their least":              {lost, 1.3, 1.3, 1.1, 1.1, 0.2},
		"the least is not told, as by old ones": {lost, 9, 0, 1.1, 1.1, 7.9},
	} {
		r := measuredWith(test.request, test.step, test.passes)
		model := settings.Situation(r).CurrentSeconds()
		r.CurrentLeastSeconds = test.least * model
		learnt := lessonOf(settings.Situation(r), r)
		if !near(learnt.times, test.times) || !near(learnt.overheadSeconds/model, test.beside) {
			t.Errorf("%s: %+v of models of %v s, expected %+v", what, learnt, model, test)
		}
	}
}

// Two replicas sum their gradients, and the one that is left has nobody to wait for.
func TestWhoTrainsAloneIsSparedWhatOthersCost(t *testing.T) {
	r := wholes("n1", "n2")
	first := proposed(t, r).Plan
	r.Generation, r.Current = 2, &first
	both := proposed(t, measuredWith(r, 2, 1)).Plan.Predicted
	r.Nodes = r.Nodes[:1]
	plain, alone := proposed(t, r).Plan.Predicted, proposed(t, measuredWith(r, 2, 1)).Plan.Predicted
	if both.OverheadSeconds <= 0 || alone.StepSeconds != plain.StepSeconds || both.StepSeconds < both.OverheadSeconds {
		t.Errorf("both: %+v; alone: %+v, expected %v s", both, alone, plain.StepSeconds)
	}
}

// wholes is a request of a data-parallel job, whose nodes hold all of the model.
func wholes(nodes ...string) events.PlanRequest {
	r := request(nodes...)
	r.Job.Kind = events.DataParallel
	for i := range r.Nodes {
		r.Nodes[i].MemoryBytes = 1 << 40
	}
	return r
}

// An optimizer updates the whole model at a node that trains alone, and at each of two replicas.
func TestWhatANodeAloneTakesBesidePassesIsNotSharedByReplicas(t *testing.T) {
	r := wholes("n1")
	first := proposed(t, r).Plan
	model := first.Predicted.StepSeconds
	r = wholes("n1", "n2")
	r.Generation, r.Current = 2, &first
	plain := proposed(t, r).Plan.Predicted
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-9*want }
	both := proposed(t, measuredWith(r, 1.8, 1.08)).Plan
	if got := both.Predicted; !near(got.StepSeconds, 1.08*plain.StepSeconds+0.72*model) || !near(got.OwnSeconds, 0.72*model) {
		t.Errorf("%+v: expected 1.08 times %v s, and %v s beside", got, plain.StepSeconds, 0.72*model)
	}
	r = wholes("n1")
	r.Generation, r.Current = 3, &both // two take twice what the model says, and one node is left
	if got := proposed(t, measuredWith(r, 3, 1.1)).Plan.Predicted; !near(got.StepSeconds, (1.1+0.72)*model) {
		t.Errorf("%+v: expected %v s, as the node took alone beside its passes", got, (1.1+0.72)*model)
	}
	if got := proposed(t, measuredWith(r, 1.2, 1.1)).Plan.Predicted; got.OwnSeconds > got.OverheadSeconds {
		t.Errorf("%+v: a node's own seconds are a part of the overhead", got)
	}
}

// Optimizer and data loading take a node's time when it trains alone, too: the same plan takes as long again.
func TestTheSameNodeAloneIsExpectedToTakeAsLongAgain(t *testing.T) {
	r := request("n1")
	r.Nodes[0].MemoryBytes = 1 << 40
	first := proposed(t, r).Plan
	r.Generation, r.Current = 2, &first
	slow := measuredWith(r, 1.8, 1.08)
	got := proposed(t, slow).Plan.Predicted
	if math.Abs(got.StepSeconds-slow.CurrentStepSeconds) > 1e-9 || math.Abs(got.Correction-1.08) > 1e-9 {
		t.Errorf("%+v: expected the %v s that were measured", got, slow.CurrentStepSeconds)
	}
}

// A correction scales all plans alike: which of two is the faster it cannot change, and so noise in it moves nothing.
func TestACorrectionMovesNobody(t *testing.T) {
	r := afterALoss()
	for _, times := range []float64{0.7, 0.95, 1.05, 1.4} {
		if got, want := corrected(t, r, times).Pipelines, proposed(t, r).Plan.Pipelines; !slices.EqualFunc(got, want, func(a, b events.Pipeline) bool {
			return a.MicroBatches == b.MicroBatches && slices.Equal(a.Stages, b.Stages)
		}) {
			t.Errorf("%v times: %+v, expected %+v", times, got, want)
		}
	}
}

// untimed is a pipelined job, as PyTorch's, of which nobody has measured anything.
func untimed(nodes ...string) events.PlanRequest {
	r := request(nodes...)
	for i := range r.Job.Layers {
		r.Job.Layers[i].ForwardSeconds, r.Job.Layers[i].BackwardSeconds = 0, 0
	}
	return r
}

func TestAPipelineThatNobodyMeasuredIsPlannedByAGuessThatSaysSo(t *testing.T) {
	plan := proposed(t, untimed("n1", "n2")).Plan
	if !plan.Predicted.Unmeasured {
		t.Errorf("predicted as if it were known: %+v", plan.Predicted)
	}
	r := request("n1", "n2") // once measured
	if proposed(t, r).Plan.Predicted.Unmeasured {
		t.Error("told as a guess, and layers were measured")
	}
}

// The activations that a trainer measured, times those in flight, do not fit beside those of the lost node: rerouting is refused
// for that, and the same job fits otherwise.
func TestAPlanThatATrainerCouldNotHoldIsRefusedWithTheReason(t *testing.T) {
	reroute, err := policy.Named("reroute")
	if err != nil {
		t.Fatal(err)
	}
	r, rerouting := afterALoss(), settings
	rerouting.Policy = reroute
	for i := range r.Job.Layers {
		r.Job.Layers[i].ActivationBytes = 70e3 // n5 would keep 2 layers, their own activations twice and n2's twice: 880e3
	}
	said, err := New(rerouting).Handle(asked(r))
	if err != nil || said[0].Kind != events.PlanProposed {
		t.Fatalf("%v: %s %s", err, said[0].Kind, said[0].Data)
	}
	proposal, err := events.Open[events.Proposal](said[0])
	if err != nil {
		t.Fatal(err)
	}
	for node, peak := range proposal.Plan.Predicted.PeakBytes {
		if peak > 850e3 {
			t.Errorf("%s is to hold %d bytes of its 850000", node, peak)
		}
	}
	if says := "no survivor has memory for all micro-batches at layers 2-3 of n2"; !slices.ContainsFunc(proposal.Plan.Considered, func(candidate events.Candidate) bool {
		return strings.Contains(candidate.Rejected, says)
	}) {
		t.Errorf("expected %q among %+v", says, proposal.Plan.Considered)
	}
}
