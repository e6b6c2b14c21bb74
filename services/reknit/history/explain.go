package history

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/plan"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

const explainHelp = `Tells for whom a change that is under way waits, or why none is possible; and of the plan in force, or of that of a
generation, what it answers, how far it is from the best there could be, and why every other candidate lost.`

// Explanation is why a plan is as it is, and why another is not there yet.
type Explanation struct {
	Pending []changes.Change `json:"pending"`          // that have no plan yet
	Change  *changes.Change  `json:"change,omitempty"` // that led to the plan, where the log still holds it
	Plan    *events.Plan     `json:"plan,omitempty"`
	Delay   *Delay           `json:"delay,omitempty"` // the last under the plan: others waited for a node in their step
	End     *changes.End     `json:"end,omitempty"`   // of the job; left out while it goes on
	Stop    *changes.Stop    `json:"stop,omitempty"`  // of training under the plan; left out while it goes on
	Reset   *events.JobReset `json:"reset,omitempty"` // since the plan, which counts no more; left out while it does

	Names map[string]string `json:"names,omitempty"` // what people call the nodes, by id, where ids are keys
}

// Delay is that others waited for a node in their step, when that was said.
type Delay struct {
	At time.Time `json:"at"`
	events.StepDelay
}

// ExplainCommand is `reknit explain`.
func ExplainCommand() *cobra.Command {
	var o options
	command := tell.Command(&cobra.Command{
		Use: "explain [GENERATION]", Short: "tell why the plan is this one, or why there is none yet", Long: explainHelp,
		Args: optionalGeneration,
		RunE: func(c *cobra.Command, given []string) error { return o.explain(c.Context(), given, c.OutOrStdout()) },
	})
	o.live.Add(command.Flags())
	command.Flags().BoolVar(&o.json, "json", false, "print the explanation as JSON")
	return command
}

func (o options) explain(ctx context.Context, given []string, w io.Writer) error {
	b, err := o.live.Open(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	var why Explanation
	if generation := generationOf(given); generation > 0 {
		why, err = explainOne(ctx, b, generation)
	} else {
		why, err = explainNow(ctx, b)
	}
	if err != nil {
		return err
	}
	names, err := connect.Names(ctx, b)
	switch {
	case err != nil:
		return err
	case o.json:
		why.Names = names.In(why)
		return tell.Document(w, why)
	}
	why.tell(tell.Showing(w, names.Shown))
	return nil
}

// explainNow explains what is under way, and the plan in force.
func explainNow(ctx context.Context, b *bus.Bus) (why Explanation, err error) {
	if why.Plan, err = planOf(ctx, b, "*"); err != nil {
		return why, err
	}
	rest, err := connect.Resting(ctx, b)
	if err != nil {
		return why, err
	}
	why.End, why.Stop, why.Reset = rest.End, rest.Stop, rest.Reset
	if why.Delay, err = delayOf(ctx, b, why.Plan); err != nil {
		return why, err
	}
	last, err := Last(ctx, b, 1)
	for i, change := range last {
		switch {
		case why.isUnderWay(change):
			why.Pending = append(why.Pending, change)
		case why.Plan != nil && change.Generation == why.Plan.Generation:
			why.Change = &last[i]
		}
	}
	return why, err
}

// isUnderWay reports whether a change is to bring another plan about. A change that was under way before training was given up is not, once
// nothing is left of it.
func (e *Explanation) isUnderWay(change changes.Change) bool {
	switch change.State {
	case changes.Committed, changes.Working, changes.Stopped:
		return false
	case changes.Pending:
		return e.End == nil && (e.Reset == nil || change.Held != nil)
	}
	return e.End == nil
}

// delayOf returns the last time that others waited for a node under a plan; nil where they did not.
func delayOf(ctx context.Context, b *bus.Bus, under *events.Plan) (*Delay, error) {
	event, found, err := b.LastEvent(ctx, events.EventStream, events.EventSubject(b.Cluster(), events.StepDelayed, "*"))
	if err != nil || !found || under == nil {
		return nil, err
	}
	told, err := events.Open[events.StepDelay](event)
	if err != nil || told.Generation != under.Generation {
		return nil, nil
	}
	return &Delay{event.Logged, told}, nil
}

// explainOne explains a plan. Plans are kept for ever, and what led to them is not.
func explainOne(ctx context.Context, b *bus.Bus, generation uint64) (why Explanation, err error) {
	if why.Plan, err = planOf(ctx, b, fmt.Sprint(generation)); err != nil {
		return why, err
	}
	change, err := Of(ctx, b, generation)
	switch {
	case err != nil && why.Plan == nil:
		return why, err
	case err != nil:
		return why, nil
	case why.Plan == nil:
		why.Pending = []changes.Change{change}
	default:
		why.Change = &change
	}
	return why, nil
}

// planOf returns a committed plan, nil where there is none; generation may be "*" for the last one.
func planOf(ctx context.Context, b *bus.Bus, generation string) (*events.Plan, error) {
	event, found, err := b.LastEvent(ctx, events.PlanStream, events.PlanSubject(b.Cluster(), generation))
	if err != nil || !found {
		return nil, err
	}
	committed, err := events.Open[events.Plan](event)
	return &committed, err
}

func (e Explanation) tell(w io.Writer) {
	if e.End != nil {
		fmt.Fprintf(w, "The job is complete since %s: %v. Nothing is left to plan; the last plan was this one.\n\n", clock(e.End.At), e.End)
	}
	if rest := (connect.Rest{Stop: e.Stop, Reset: e.Reset}).String(); rest != "" {
		fmt.Fprintf(w, "%s. The last plan was that of generation %d.\n\n", capital(rest), e.Plan.Generation)
	}
	if e.Delay != nil && e.End == nil && e.Stop == nil && e.Reset == nil {
		says := "Others waited for %s in a step, at %s: %s.\n\n"
		if e.Delay.By == e.Delay.Node {
			says = "The script of %s did nothing, at %s: %s.\n\n"
		}
		fmt.Fprintf(w, says, e.Delay.Node, clock(e.Delay.At), e.Delay.Reason)
	}
	for _, change := range e.Pending {
		says := "Generation %d is not there yet: %s\n"
		switch change.State {
		case changes.Refused:
			says = "Nothing is under way to generation %d. Refused was: %s\n"
		case changes.Withdrawn:
			says = "Nothing is under way to generation %d. Nobody asks any more for: %s\n"
		}
		fmt.Fprintf(w, says, change.Generation, change.What())
		waits(w, change)
		attempts(w, change.Attempts, change.Held)
		refusals(w, change.Refusals)
		fmt.Fprintln(w)
	}
	if e.Plan == nil {
		text := "There is no plan."
		if len(e.Pending) == 0 {
			text = "There is no plan, for no trainer has asked for a place: the first to come are told in their own log what is waited for."
		}
		fmt.Fprintln(w, text)
		return
	}
	e.tellPlan(w)
}

func (e Explanation) tellPlan(w io.Writer) {
	fmt.Fprintf(w, "Generation %d, by %s", e.Plan.Generation, tell.Policy(*e.Plan))
	if e.Change != nil {
		fmt.Fprintf(w, ": %s", e.Change.What())
	}
	predicted := e.Plan.Predicted
	says := plan.NotKnown
	if !predicted.Unmeasured {
		says = fmt.Sprintf("step %s, %s; %.4g samples/s", tell.Seconds(predicted.StepSeconds), plan.Gap(predicted), predicted.SamplesPerSecond)
	}
	fmt.Fprintf(w, "\n\npredicted: %s\n", says)
	fmt.Fprintln(w, "\nPipelines (layers counted from 0, both ends included)")
	plan.Picture(w, *e.Plan)
	plan.Idle(w, *e.Plan)
	if len(e.Plan.Considered) > 0 {
		plan.Candidates(w, e.Plan.Considered, predicted.Unmeasured)
	}
	if e.Change != nil {
		attempts(w, e.Change.Attempts, nil)
		refusals(w, e.Change.Refusals)
	}
}
