package machine

import (
	"encoding/json"
	"fmt"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner/policy"
)

// Reply is what a plug-in answered to a request.
type Reply struct {
	Plugin  string
	Data    []byte // an events.PolicyReply, as JSON
	Problem string // why there is no data; empty where there is
}

// judgement is what replies are worth.
type judgement struct {
	candidates []policy.Candidate
	claims     map[string]float64 // by plug-in: the seconds it claims a step takes
	refused    []events.Candidate
}

// judge checks every reply and figures it with our own cost model.
func judge(request events.PlanRequest, s policy.Situation, replies []Reply) judgement {
	j := judgement{claims: map[string]float64{}}
	for _, reply := range replies {
		candidate, claim, err := judgeOne(request, s, reply)
		if err != nil {
			j.refused = append(j.refused, events.Candidate{Policy: reply.Plugin, Rejected: events.Shorten(err.Error(), 512)})
			continue
		}
		j.candidates = append(j.candidates, candidate)
		j.claims[reply.Plugin] = claim
	}
	return j
}

// judgeOne reads a reply's pipelines and what it claims. All else in the plan is ours to say.
func judgeOne(request events.PlanRequest, s policy.Situation, reply Reply) (policy.Candidate, float64, error) {
	fail := func(err error) (policy.Candidate, float64, error) { return policy.Candidate{}, 0, err }
	if reply.Problem != "" {
		return fail(fmt.Errorf("%s", reply.Problem))
	}
	var theirs events.PolicyReply
	if err := json.Unmarshal(reply.Data, &theirs); err != nil {
		return fail(fmt.Errorf("expected a reply as JSON, see events/schema/policy-reply.json: %w", err))
	}
	if theirs.Negotiation != request.Negotiation {
		return fail(fmt.Errorf("negotiation: expected %q, got %.80q", request.Negotiation, theirs.Negotiation))
	}
	proposed, err := pipelines(runsOf(request.Job), theirs.Plan.Pipelines)
	if err != nil {
		return fail(fmt.Errorf("plan: %w", err))
	}
	candidate, err := policy.Judge(s, reply.Plugin, proposed)
	if err != nil {
		return fail(fmt.Errorf("plan: %w", err))
	}
	if err := proposal(request, s, candidate, nil).Validate(); err != nil {
		return fail(err)
	}
	return candidate, theirs.Plan.Predicted.StepSeconds, nil
}

// doubted adds to why a plug-in's plan lost what it had claimed, where that was more than one in a hundred too fast.
func (j judgement) doubted(considered []events.Candidate) []events.Candidate {
	for i, candidate := range considered {
		claim, isForeign := j.claims[candidate.Policy]
		if isForeign && candidate.Rejected != "" && claim > 0 && claim < 0.99*candidate.StepSeconds {
			considered[i].Rejected += fmt.Sprintf("; claimed a step of %.4g s", claim)
		}
	}
	return considered
}
