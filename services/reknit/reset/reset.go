// Package reset has a job begin anew whose state is gone, is complete, or is not wanted any more.
package reset

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/history"
	"github.com/reknit/reknit/services/reknit/inventory"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

const help = `Gives up what a cluster has trained, and has training begin at its first step: of the job that the first node to join brings, the
same or another. It says what is given up and asks before. Nobody may train: while members live it is refused. A node that fell
silent is no member and may live: it is named, what it trains is given up too, and what it brings back counts for nothing. Nodes
that wait for a place begin at once. Asked while no negotiator works it lapses within a minute. The log and its history stay, and
the next plan is of the next generation. No snapshot counts any more, and those of before are removed as new ones are taken: copy
what you want to keep. With --from-snapshot training goes on from the newest that the nodes can read, to as many steps as their
scripts say now: they wait for those that can read it.

Exit status: 0 training begins anew; 1 somebody trains, or nothing was given up; 2 and 4 as everywhere.`

// options are the flags.
type options struct {
	live      connect.Flags
	yes       bool
	snapshots bool
	reason    string
}

// Command is `reknit cluster reset`.
func Command() *cobra.Command {
	var o options
	command := tell.Command(&cobra.Command{
		Use: "reset", Short: "give up what was trained, and begin anew", Long: help, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			asks := c.InOrStdin() != os.Stdin || term.IsTerminal(int(os.Stdin.Fd()))
			return o.run(c.Context(), asks, c.InOrStdin(), c.OutOrStdout())
		},
	})
	o.live.Add(command.Flags())
	command.Flags().BoolVar(&o.yes, "yes", false, "give it up without asking")
	command.Flags().BoolVar(&o.snapshots, "from-snapshot", false, "go on from the newest snapshot that nodes can read, and wait for one")
	command.Flags().StringVar(&o.reason, "reason", "reset by a user", "that the log keeps")
	return command
}

func (o options) run(ctx context.Context, asks bool, in io.Reader, out io.Writer) error {
	b, err := o.live.Open(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	last, found, err := b.LastEvent(ctx, events.PlanStream, events.PlanSubject(b.Cluster(), "*"))
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("nothing was trained in %s yet: start trainers (reknit agent run -- COMMAND)", b.Cluster())
	}
	plan, err := events.Open[events.Plan](last)
	if err != nil {
		return err
	}
	names, err := connect.Names(ctx, b)
	if err != nil {
		return err
	}
	trained, err := inventory.TrainedIn(ctx, b)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, o.givesUp(b.Cluster(), trained, plan, last.Logged))
	for _, one := range trained.Missing {
		fmt.Fprintln(out, names.Shown(one))
	}
	switch {
	case o.yes:
	case !asks:
		return tell.UsageError{Err: errors.New("nobody is there to ask: --yes gives it up without asking")}
	default:
		fmt.Fprintf(out, "Type %s to do so: ", b.Cluster())
		if typed, _ := bufio.NewReader(in).ReadString('\n'); strings.TrimSpace(typed) != b.Cluster() {
			return errors.New("nothing was given up")
		}
	}
	return o.ask(ctx, b, names, out)
}

// givesUp says what is given up of what was trained, the last plan being one that was committed then.
func (o options) givesUp(cluster string, trained inventory.Trained, plan events.Plan, committed time.Time) string {
	step, newest := max(trained.Step, plan.ResumeStep), trained.Newest
	began := fmt.Sprintf("Generation %d began at step %d on ", plan.Generation, plan.ResumeStep)
	says := ""
	switch {
	case trained.Unchanged:
		began = fmt.Sprintf("Generation %d began on ", plan.Generation)
		says = fmt.Sprintf("The scripts of %s keep their own state (--unchanged): they begin with their own checkpoints, which nobody "+
			"touches; to have them begin at the first step, move those away", cluster)
	case !o.snapshots:
		says = fmt.Sprintf("All is given up that was trained in %s, to step %d or further", cluster, step)
	case newest.Step == 0:
		says = fmt.Sprintf("What was trained in %s is given up behind the newest snapshot that nodes can read, to step %d or further; "+
			"the log tells of no snapshot that is complete", cluster, step)
	case newest.Step >= step:
		says = fmt.Sprintf("Nothing is given up that is known: training in %s has come to step %d, and the snapshot of step %d is "+
			"complete (%s)", cluster, step, newest.Step, newest.Tier)
	default:
		says = fmt.Sprintf("What was trained in %s is given up behind step %d, of which a snapshot is complete (%s): to step %d or "+
			"further", cluster, newest.Step, newest.Tier, step)
	}
	return says + ". " + began + committed.Local().Format("01-02 15:04:05")
}

func (o options) goesOn() string {
	if o.snapshots {
		return "goes on from the newest snapshot that the nodes can read, and waits for one"
	}
	return "begins anew"
}

// answerTime bounds the wait for the negotiator, which decides at once.
const answerTime = 15 * time.Second

// ask says that training is to begin anew, and waits for what the negotiator says to that.
func (o options) ask(ctx context.Context, b *bus.Bus, names *overlay.Names, out io.Writer) error {
	limited, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	now := time.Now()
	user := events.Speaker{Source: "/user", Cluster: b.Cluster()}
	request := user.First(now, now.Format(time.RFC3339Nano), events.ResetRequested, b.Cluster(),
		&events.ResetRequest{Reason: o.reason, Snapshots: o.snapshots})
	waiting := &answer{request: request.ID, names: names}
	err := history.Watch(limited, b, func(uint64) error { _, err := b.Publish(ctx, request); return err }, waiting.hear)
	switch err = errors.Join(err, waiting.refused); {
	case err == nil && waiting.granted == nil:
		return errors.New("no negotiator answered, and the request counts for a minute only: reknit status says whether one works")
	case err == nil:
		fmt.Fprintln(out, "training "+o.goesOn()+": nodes that wait begin at once; for others start the scripts again")
		if silent := waiting.granted.Silent; len(silent) > 0 {
			fmt.Fprintf(out, "nobody knows that these have ended: %s. What they hold%s counts for nothing: end them\n",
				names.Shown(strings.Join(silent, ", "))+beyond(silent), reaching(waiting.granted.Step))
		}
	}
	return err
}

// reaching says how far training had come, where somebody knows that.
func reaching(step uint64) string {
	if step == 0 {
		return ""
	}
	return fmt.Sprintf(", to step %d or further,", step)
}

// beyond says that there may be more nodes than are named, where as many are as may be.
func beyond(silent []string) string {
	if len(silent) < events.MostSilent {
		return ""
	}
	return ", and perhaps more"
}

// answer is what the negotiator says to a request.
type answer struct {
	request string
	names   *overlay.Names
	granted *events.JobReset // nil: it is not yet
	refused error
}

func (a *answer) hear(_ history.News, event events.Event) (enough bool) {
	a.names.Take(event)
	if event.Cause != a.request {
		return false
	}
	switch event.Kind {
	case events.TrainingReset:
		if reset, err := events.Open[events.JobReset](event); err == nil {
			a.granted = &reset
		}
	case events.ResetRefused:
		if refusal, err := events.Open[events.ResetRefusal](event); err == nil {
			a.refused = errors.New(a.names.Shown("nothing is given up: " + refusal.Reason))
		}
	}
	return a.granted != nil || a.refused != nil
}
