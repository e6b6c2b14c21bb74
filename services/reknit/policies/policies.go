// Package policies tells what became of each policy's plans, and what one of them would plan now.
package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/reknit/reknit/events"
	planner "github.com/reknit/reknit/services/planner/machine"
	"github.com/reknit/reknit/services/planner/policy"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/plan"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

const help = `Tells of each policy how often its plans were weighed and taken in the last plans, and why they lost: that is what the stream of
plans keeps. With a name it tells what that policy would have the cluster do now, and changes nothing. A name that is none of the
planner's own is that of a plug-in: it is asked as the planner would ask it, and its plan is judged as the planner would.

Which policy is in force, and which plug-ins are asked, are settings of the planner: REKNIT_POLICY and REKNIT_POLICY_PLUGINS.

Exit status: 0 done; 1 there is no plan, or the plug-in does not answer or may not be taken; 2 and 4 as everywhere.`

// options are the flags.
type options struct {
	live connect.Flags
	json bool
	most int
}

// Command is `reknit policy`.
func Command() *cobra.Command {
	var o options
	command := tell.Command(&cobra.Command{
		Use: "policy [NAME]", Short: "tell what became of each policy's plans, or try one", Long: help, Args: optionalName,
		RunE: func(c *cobra.Command, given []string) error { return o.run(c.Context(), given, c.OutOrStdout()) },
	})
	o.live.Add(command.Flags())
	command.Flags().BoolVar(&o.json, "json", false, "print the answer as JSON")
	command.Flags().IntVar(&o.most, "last", 20, "so many plans")
	return command
}

func optionalName(_ *cobra.Command, given []string) error {
	if len(given) > 1 || len(given) == 1 && !events.Token(given[0]) {
		return fmt.Errorf("expected the name of one policy, got %q", given)
	}
	if len(given) == 1 && policy.IsUnchosen(given[0]) {
		_, err := policy.Named(given[0])
		return fmt.Errorf("%w, or a plug-in: plans of that name come of the kind of a job, or are to wait, and nobody chooses them", err)
	}
	return nil
}

func (o options) run(ctx context.Context, given []string, w io.Writer) error {
	if o.most < 1 {
		return tell.UsageError{Err: fmt.Errorf("--last: expected at least 1, got %d", o.most)}
	}
	b, err := o.live.Open(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	if len(given) == 1 {
		return o.try(ctx, b, given[0], w)
	}
	records, err := past(ctx, b, o.most)
	switch {
	case err != nil:
		return err
	case o.json:
		return tell.Document(w, records)
	}
	list(w, records)
	return nil
}

// Record is what became of a policy's plans.
type Record struct {
	Policy   string         `json:"policy"`
	Weighed  int            `json:"weighed"` // in so many plans
	Taken    int            `json:"taken"`
	Rejected map[string]int `json:"rejected"` // reasons, with how often each was given
}

// past reads the last plans, of which each lists what was weighed.
func past(ctx context.Context, b *bus.Bus, most int) ([]Record, error) {
	var records []Record
	generation := "*" // the last one
	for range most {
		event, found, err := b.LastEvent(ctx, events.PlanStream, events.PlanSubject(b.Cluster(), generation))
		if err != nil || !found {
			return records, err
		}
		committed, err := events.Open[events.Plan](event)
		if err != nil {
			return records, err
		}
		records = count(records, committed)
		generation = fmt.Sprint(committed.Generation - 1)
	}
	return records, nil
}

// count adds what a plan tells. The one that was taken stands first.
func count(records []Record, committed events.Plan) []Record {
	seen := map[string]bool{}
	for i, candidate := range committed.Considered {
		at := slices.IndexFunc(records, func(r Record) bool { return r.Policy == candidate.Policy })
		if at < 0 {
			at = len(records)
			records = append(records, Record{Policy: candidate.Policy, Rejected: map[string]int{}})
		}
		switch {
		case i == 0:
			records[at].Taken++
		case !seen[candidate.Policy]: // its best plan's reason says more than those of others
			records[at].Rejected[candidate.Rejected]++
		}
		if !seen[candidate.Policy] && candidate.Weighed() {
			records[at].Weighed++
		}
		seen[candidate.Policy] = true
	}
	return records
}

func list(w io.Writer, records []Record) {
	if len(records) == 0 {
		fmt.Fprintln(w, "There is no plan yet.")
		return
	}
	table := tell.Table(w)
	fmt.Fprintln(table, "policy\tweighed\ttaken\tlost, most often because of")
	for _, record := range records {
		reason, most := "-", 0
		for text, times := range record.Rejected {
			if times > most || times == most && text < reason {
				reason, most = text, times
			}
		}
		tell.Row(table, reason, 70, record.Policy, fmt.Sprint(record.Weighed), fmt.Sprint(record.Taken))
	}
	table.Flush()
}

// askTimeout is the longest that a planner may be set to wait for a plug-in.
const askTimeout = 3 * time.Second

// Trial is what a policy would do now.
type Trial struct {
	Policy     string             `json:"policy"`
	Seconds    float64            `json:"seconds"` // that it took
	Considered []events.Candidate `json:"considered"`
	Plan       *events.Plan       `json:"plan,omitempty"`    // the best of all
	Waiting    *events.Deferral   `json:"waiting,omitempty"` // where waiting is better than any
}

// try has a policy plan now.
func (o options) try(ctx context.Context, b *bus.Bus, name string, w io.Writer) error {
	q, err := plan.Ask(ctx, b)
	if err != nil {
		return err
	}
	trial, err := plans(ctx, b, name, q)
	if err != nil {
		return err
	}
	if !o.json {
		trial.tell(w)
	} else if err := tell.Document(w, trial); err != nil {
		return err
	}
	return trial.refused()
}

// plans has a policy of ours answer the question, or a plug-in beside those.
func plans(ctx context.Context, b *bus.Bus, name string, q plan.Question) (Trial, error) {
	var replies []planner.Reply
	named, notOurs := policy.Named(name)
	began := time.Now()
	if notOurs != nil {
		named, replies = policy.Adaptive, []planner.Reply{ask(ctx, b, name, q.Request)}
	}
	asked := time.Since(began)
	q.Settings.Policy = named
	proposal, err := planner.New(q.Settings).Plan(q.Request, replies...)
	trial := Trial{Policy: name, Seconds: time.Since(began).Seconds()}
	if notOurs != nil {
		trial.Seconds = asked.Seconds()
	}
	var deferred planner.Deferred
	switch {
	case errors.As(err, &deferred):
		trial.Considered, trial.Waiting = deferred.Considered, &deferred.Deferral
	case err != nil:
		return trial, err
	default:
		trial.Considered, trial.Plan = proposal.Plan.Considered, &proposal.Plan
	}
	return trial, nil
}

// ask asks a plug-in as the planner does.
func ask(ctx context.Context, b *bus.Bus, name string, request events.PlanRequest) planner.Reply {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	data, err := json.Marshal(request)
	if err != nil {
		return planner.Reply{Plugin: name, Problem: err.Error()}
	}
	subject := events.PolicySubject(b.Cluster(), name)
	answer, err := b.Conn().RequestWithContext(ctx, subject, data)
	if errors.Is(err, nats.ErrNoResponders) {
		err = errors.New("nobody answers there: expected a plug-in that runs and has subscribed to it")
	}
	if err != nil {
		return planner.Reply{Plugin: name, Problem: fmt.Sprintf("%s: %v", subject, err)}
	}
	return planner.Reply{Plugin: name, Data: answer.Data}
}

// refused says why a plug-in's plan cannot be weighed: then it has no figures.
func (t Trial) refused() error {
	for _, candidate := range t.Considered {
		if candidate.Policy == t.Policy && !candidate.Weighed() {
			return fmt.Errorf("%s: %s", t.Policy, candidate.Rejected)
		}
	}
	return nil
}

func (t Trial) tell(w io.Writer) {
	unmeasured := t.Plan != nil && t.Plan.Predicted.Unmeasured
	switch {
	case t.Waiting != nil:
		fmt.Fprintf(w, "Now: wait for at most %s, %s\n", tell.Seconds(t.Waiting.Seconds), t.Waiting.Reason)
	case unmeasured:
		fmt.Fprintf(w, "Now: %s by %s, a step of a length %s\n", tell.Folded(t.Plan.Shape()), tell.Policy(*t.Plan), plan.NotKnown)
	default:
		fmt.Fprintf(w, "Now: %s by %s, a step in %s, %s\n", tell.Folded(t.Plan.Shape()), tell.Policy(*t.Plan),
			tell.Seconds(t.Plan.Predicted.StepSeconds), plan.Gap(t.Plan.Predicted))
	}
	if t.refused() == nil {
		fmt.Fprintf(w, "The policy %s answered in %s.\n", t.Policy, tell.Seconds(t.Seconds))
	}
	plan.Candidates(w, t.Considered, unmeasured)
}
