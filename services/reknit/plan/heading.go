package plan

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/tell"
)

// reportWaiting writes that there would be nothing to do but to wait.
func reportWaiting(w io.Writer, q Question, deferral events.Deferral, why bool) {
	preview(w, q, fmt.Sprintf("it would wait: %s; after %s it would be planned without", deferral.Reason, tell.Seconds(deferral.Seconds)))
	if why {
		Candidates(w, deferral.Considered, false)
		ofReturn(w, q)
	}
}

// ofReturn says what the candidates' samples a second are if lost nodes are expected back: not those of the candidate alone.
func ofReturn(w io.Writer, q Question) {
	if back := q.Request.SecondsUntilReturn; back > 0 {
		fmt.Fprintf(w, "(samples/s until the next failure: the lost nodes are expected back in %s, and from then on the plan before counts, "+
			"where it is better)\n", tell.Seconds(back))
	}
}

// preview says that an answer is none of the cluster's, what was asked, and what was taken for granted.
func preview(w io.Writer, q Question, answer string) {
	fmt.Fprintf(w, "A preview for %s, which changes nothing\n\n", q.Request.Cluster)
	table := tell.Table(w)
	fmt.Fprintf(table, "asked\t%s\n", said(q.Request))
	tell.Row(table, answer, answerWidth, "answer")
	for _, assumed := range q.Assumed {
		tell.Row(table, "("+assumed+")", answerWidth, "")
	}
	table.Flush()
}

// answerWidth is that of the text of a preview.
const answerWidth = 90

func heading(w io.Writer, q Question, answer events.Restoration) {
	plan, predicted := answer.Plan, answer.Plan.Predicted
	preview(w, q, verdict(q, plan))
	fmt.Fprintln(w)
	table := tell.Table(w)
	step, throughput := tell.Seconds(predicted.StepSeconds), fmt.Sprintf("%.4g samples/s", predicted.SamplesPerSecond)
	if predicted.Unmeasured {
		step, throughput = "-", "-"
	}
	fmt.Fprintf(table, "step\t%s\t%s\n", step, gap(q, plan))
	learnt(table, predicted)
	compared(table, q, plan, answer.BytesMoved)
	fmt.Fprintf(table, "throughput\t%s\tof %d samples a step, %d a micro-batch\n", throughput, plan.Data.GlobalBatch, plan.Data.MicroBatch)
	if scale := plan.LearningRateScale; scale != 1 {
		fmt.Fprintf(table, "learning rate\tx %.4g\tof what the job says for %d samples a step\n", scale,
			q.Request.Job.GlobalBatch)
	}
	transition(table, q, answer)
	fmt.Fprintf(table, "next failure\t%s\texpected, anywhere in the cluster\n",
		tell.Seconds(q.Request.SecondsBetweenFailures))
	table.Flush()
}

// transition tells what it takes to get to a plan: what the layers take to come, by the restorer, and besides what the planner charged.
func transition(w io.Writer, q Question, answer events.Restoration) {
	seconds, s := answer.Plan.Predicted.TransitionSeconds, q.Settings.Situation(q.Request)
	what := fmt.Sprintf("to move %s once all stopped", tell.Bytes(answer.BytesMoved))
	switch {
	case q.Request.Current == nil || q.keeps(answer.Plan):
	case answer.BytesMoved > 0:
		besides := max(s.RestartSeconds, s.SwitchSeconds)
		what = fmt.Sprintf("%s %s, %s besides (restart)", tell.Seconds(seconds), what, tell.Seconds(besides))
		seconds += besides
	default:
		what = "where nothing moves (switchTime)"
		seconds = s.SwitchSeconds
	}
	fmt.Fprintf(w, "transition\t%s\t%s\n\t\ta restart would load %s\n", tell.Seconds(seconds), what, tell.Bytes(answer.NaiveBytes))
}

// learnt says what of the step was not computed, but measured under the plan before.
func learnt(w io.Writer, predicted events.Predicted) {
	times := cmp.Or(predicted.Correction, 1)
	if predicted.Unmeasured || times == 1 && predicted.OverheadSeconds == 0 {
		return
	}
	beside := ""
	if predicted.OverheadSeconds > 0 {
		beside = fmt.Sprintf("; where several train, %s of a step beside them", tell.Seconds(predicted.OverheadSeconds))
	}
	if predicted.OwnSeconds > 0 {
		beside += fmt.Sprintf("; where one does, %s", tell.Seconds(predicted.OwnSeconds))
	}
	fmt.Fprintf(w, "learnt\tx %.3g\tof what layers say, as passes took before%s\n", times, beside)
}

// verdict says what would become of the plan in force.
func verdict(q Question, plan events.Plan) string {
	if q.keeps(plan) {
		return fmt.Sprintf("generation %d would be kept as it is: no other plan is better by more than moving is worth", plan.Generation-1)
	}
	return fmt.Sprintf("generation %d would be planned so, by %s", plan.Generation, tell.Policy(plan))
}

// keeps reports whether nothing changed, and a plan is the one in force.
func (q *Question) keeps(plan events.Plan) bool {
	return q.isHealthy() && slices.EqualFunc(plan.Pipelines, q.Request.Current.Pipelines, alike)
}

// isHealthy reports whether all that is asked is what a plan anew would gain.
func (q *Question) isHealthy() bool { return q.Request.Current != nil && len(q.Request.Changes) == 0 }

// alike reports whether the same nodes train the same in two pipelines, whichever samples it is.
func alike(a, b events.Pipeline) bool {
	return a.MicroBatches == b.MicroBatches && slices.Equal(a.Stages, b.Stages) && slices.Equal(a.Partitions, b.Partitions)
}

func gap(q Question, plan events.Plan) string {
	if q.keeps(plan) {
		return "of the plan in force, by what is measured now"
	}
	return Gap(plan.Predicted)
}

// compared sets a plan for a healthy cluster beside the one in force, by the model and what was measured.
func compared(w io.Writer, q Question, plan events.Plan, moved int64) {
	if !q.isHealthy() || q.keeps(plan) || plan.Predicted.Unmeasured {
		return
	}
	now := q.Settings.Situation(q.Request).CurrentStepSeconds()
	gain := fmt.Sprintf("%.1f%% shorter", 100*(1-plan.Predicted.StepSeconds/now))
	if plan.Predicted.StepSeconds > now {
		gain = fmt.Sprintf("%.1f%% longer", 100*(plan.Predicted.StepSeconds/now-1))
	}
	fmt.Fprintf(w, "in force\t%s\ta step now; %s for %s that move\n", tell.Seconds(now), gain, tell.Bytes(moved))
}

// NotKnown stands in place of a prediction of which the seconds say nothing.
const NotKnown = "not known before the first steps are measured"

// Gap says how far the step is from the best there could be.
func Gap(predicted events.Predicted) string {
	bound := predicted.StepSecondsLowerBound
	if predicted.Unmeasured {
		return NotKnown
	}
	if bound <= 0 {
		return "this policy has no lower bound"
	}
	return fmt.Sprintf("lower bound %s, gap %.1f%%", tell.Seconds(bound), 100*(predicted.StepSeconds/bound-1))
}

// said tells the changes in a line.
func said(request events.PlanRequest) string {
	switch {
	case request.Current == nil:
		return "what if these nodes came: the first plan"
	case len(request.Changes) == 0:
		return "what if nothing changed: a plan anew for the nodes that are there"
	}
	var parts []string
	for _, change := range request.Changes {
		part := change.Kind + " of " + change.Node
		if change.Peer != "" {
			part += " and " + change.Peer
		}
		parts = append(parts, part)
	}
	return "what if: " + strings.Join(parts, ", ")
}
