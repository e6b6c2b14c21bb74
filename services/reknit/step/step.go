// Package step says what becomes of a step that is held because trainers ended in it one after the other.
package step

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/history"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

const help = `Trainers that end in one step, one after the other, end by what they train rather than by themselves: by a record that cannot be
read, a batch too large for their memory, a bug behind that step. The cluster holds such a step before the last trainer is given it, so that
what that holds is not lost. reknit status names the step, its samples, and whose trainers ended in it; their logs say by what. Step 30 is
that whose step.index is 30: 30 steps are made before it.
`

const retryHelp = help + `
Retry goes on with the step as it is: mend the record, the mount or the script first. The step is held again where as many end in it again.
Processes that run have the script as it was: one that you mended must be started again before the retry. End each (kill PID, by the pid that
its agent's log tells): the agent keeps the state, and starts the new one. If the agent starts it no more, leave the agent running, for it
keeps the state, and start another one: reknit agent run -- COMMAND.
`

const skipHelp = help + `
Skip goes on behind the step's samples, which are trained in no step: the plan says so (data.skipped), and the ledger. The number of
steps stays: the held one trains the samples that come next. If the batch is another one since, fewer samples than fill a batch may be
passed over before them, too. It is of no use where a bug of the script ends that step whatever it trains.
`

const exits = `
Asked for again, each says again what was done. Exit status: 0 training goes on with the step; 1 no step is held, or it was released the other way;
2 and 4 as everywhere.`

// options are the flags.
type options struct {
	live   connect.Flags
	reason string
	skip   bool
}

// Command is `reknit step`, which has two commands.
func Command() *cobra.Command {
	command := tell.Command(&cobra.Command{
		Use: "step", Short: "try a held step again, or pass over its samples", Long: help,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	})
	command.AddCommand(release("retry", "try the step that is held again", retryHelp+exits, false),
		release("skip", "go on behind the samples of the step that is held", skipHelp+exits, true))
	return command
}

func release(use, short, long string, skip bool) *cobra.Command {
	o := options{skip: skip}
	command := tell.Command(&cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context(), c.OutOrStdout()) },
	})
	o.live.Add(command.Flags())
	command.Flags().StringVar(&o.reason, "reason", "asked by "+whoami(), "that the log keeps")
	tell.Yes(command)
	return command
}

// whoami names who runs the command, as far as the machine knows.
func whoami() string {
	name, host := "a user", ""
	if current, err := user.Current(); err == nil {
		name = current.Username
	}
	if at, err := os.Hostname(); err == nil {
		host = " on " + at
	}
	return name + host
}

func (o options) run(ctx context.Context, w io.Writer) error {
	b, err := o.live.Open(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	held, err := lastHeld(ctx, b)
	if err != nil {
		return err
	}
	answer := &answer{hold: held.Hold, skip: o.skip}
	err = history.Watch(ctx, b, func(uint64) error { return o.ask(ctx, b, held) }, answer.hear)
	switch {
	case err != nil:
		return err
	case answer.refused != "":
		return fmt.Errorf("step %d is not released: %s", held.Step, answer.refused)
	case answer.done == nil:
		return errors.New("interrupted: the request stands, unless no negotiator hears it within a minute")
	}
	fmt.Fprintf(w, "%v; reknit watch shows how\n", answer.done)
	if !answer.done.Skip {
		fmt.Fprintf(w, "the step is held again if as many end in it again: %s\n", history.BeforeARetry(*held))
	}
	if answer.done.Skip {
		fmt.Fprintln(w, "if the batch is another one since, samples before these that fill none of it are passed over, too: "+
			"the plan says so (data.skipped)")
	}
	return nil
}

// lastHeld returns the step that the cluster held last.
func lastHeld(ctx context.Context, b *bus.Bus) (*events.HeldStep, error) {
	last, found, err := b.LastEvent(ctx, events.EventStream, events.EventSubject(b.Cluster(), events.ClusterHeld, b.Cluster()))
	if err != nil {
		return nil, err
	}
	if found {
		hold, err := events.Open[events.Hold](last)
		if err != nil {
			return nil, err
		}
		if hold.Step != nil {
			return hold.Step, nil
		}
	}
	return nil, errors.New("no step is held: reknit status says how it is")
}

// ask says what is to become of the step. Each command asks anew.
func (o options) ask(ctx context.Context, b *bus.Bus, held *events.HeldStep) error {
	now := time.Now()
	speaker := events.Speaker{Source: "/user", Cluster: b.Cluster()}
	_, err := b.Publish(ctx, speaker.First(now, now.Format(time.RFC3339Nano), events.ReleaseRequested, b.Cluster(),
		&events.ReleaseRequest{Hold: held.Hold, Step: held.Step, Skip: o.skip, Reason: o.reason}))
	return err
}

// answer waits for what the negotiator says.
type answer struct {
	hold    int
	skip    bool // asked for
	done    *events.Release
	refused string
}

func (a *answer) hear(_ history.News, event events.Event) (enough bool) {
	switch event.Kind {
	case events.StepReleased:
		if release, err := events.Open[events.Release](event); err == nil && release.Hold == a.hold {
			if a.done = &release; release.Skip != a.skip {
				a.refused = fmt.Sprintf("another request came first: %v", a.done)
			}
		}
	case events.ReleaseRefused:
		if refusal, err := events.Open[events.ReleaseRefusal](event); err == nil && refusal.Hold == a.hold {
			a.refused = refusal.Reason
		}
	}
	return a.done != nil || a.refused != ""
}
