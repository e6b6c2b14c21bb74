package drain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/history"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

const stopHelp = `Stops a job so that it can go on another time: all trainers stop after one step, write a snapshot of it, and end with status 0 once it
is complete. A step that broke before is mended first. Start the same scripts again, with the snapshots that they wrote (and reknit up, if that
ended): training goes on from that step. If no snapshots are taken (REKNIT_SNAPSHOT_FOLDER, REKNIT_SNAPSHOT_BUCKET), or one cannot
be written, the job is not stopped, and trains on. Scripts under --unchanged need none: they get SIGTERM, and have 30 s to write the
checkpoint from which they go on.

Interrupted, the command ends and the request stands; it lapses where no negotiator hears it within a minute. Exit status: 0 training has stopped, or the job is complete; 1 it may not, and the
reason is printed; 2 and 4 as everywhere.`

// StopCommand is `reknit stop`.
func StopCommand() *cobra.Command {
	var o options
	command := tell.Command(&cobra.Command{
		Use: "stop", Short: "stop a job after a step that all make, with a snapshot to go on from", Long: stopHelp,
		RunE: func(c *cobra.Command, _ []string) error { return o.stop(c.Context(), c.OutOrStdout()) },
	})
	o.live.Add(command.Flags())
	command.Flags().BoolVar(&o.json, "json", false, "print what happens as a JSON document a line")
	command.Flags().StringVar(&o.reason, "reason", "stopped by a user", "that the log keeps")
	return command
}

func (o options) stop(ctx context.Context, w io.Writer) error {
	b, err := o.live.Open(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	names, err := connect.Names(ctx, b)
	if err != nil {
		return err
	}
	watching := &stopping{tell: history.Teller(w, names, o.json), names: names}
	err = history.Watch(ctx, b, func(uint64) error { return o.askToStop(ctx, b) }, watching.hear)
	if err = errors.Join(err, watching.err); err == nil && !watching.done {
		err = errors.New("interrupted: the request stands, unless no negotiator hears it within a minute")
	}
	return err
}

// askToStop says that training is to stop. Each command asks anew.
func (o options) askToStop(ctx context.Context, b *bus.Bus) error {
	now := time.Now()
	user := events.Speaker{Source: "/user", Cluster: b.Cluster()}
	_, err := b.Publish(ctx, user.First(now, now.Format(time.RFC3339Nano), events.StopRequested, b.Cluster(),
		&events.StopRequest{Reason: o.reason}))
	return err
}

// stopping waits for what becomes of the request.
type stopping struct {
	tell  func(history.News)
	names *overlay.Names
	done  bool
	err   error // why training does not stop
}

func (s *stopping) hear(news history.News, event events.Event) (enough bool) {
	s.names.Take(event)
	s.tell(news)
	switch event.Kind {
	case events.StopRefused:
		if refusal, err := events.Open[events.StopRefusal](event); err == nil {
			s.err = errors.New(s.names.Shown(fmt.Sprintf("training does not stop: %s", refusal.Reason)))
		}
	case events.TrainingStopped, events.TrainingCompleted:
		s.done = changes.StopOf(event) != nil || changes.EndOf(event) != nil
	}
	return s.done || s.err != nil
}
