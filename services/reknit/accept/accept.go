// Package accept has a cluster go on with a log that is older than what its nodes trained.
package accept

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

const help = `Accepts a log of which reknit status says that "the log is an older one" than what living nodes trained, as after NATS' store was
restored from a backup. Nothing is decided until then. The cluster goes on from what these nodes hold, under a plan behind the newest
that they know. All else that
the newer log had is lost: history, links that were disconnected on purpose, leaves that were asked for. If the newer store is still
there, put it back instead.

Exit status: 0 the request is in the log; 1 the cluster does not wait for it; 2 and 4 as everywhere.`

// options are the flags.
type options struct {
	live   connect.Flags
	reason string
}

// Command is `reknit log`, which has one command.
func Command() *cobra.Command {
	var o options
	accept := tell.Command(&cobra.Command{
		Use: "accept", Short: "go on with a log that is older than what nodes trained", Long: help, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context(), c.OutOrStdout()) },
	})
	o.live.Add(accept.Flags())
	accept.Flags().StringVar(&o.reason, "reason", "accepted by a user", "that the log keeps")
	tell.Yes(accept)
	command := tell.Command(&cobra.Command{
		Use: "log", Short: "accept a log that is an older one",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	})
	command.AddCommand(accept)
	return command
}

func (o options) run(ctx context.Context, w io.Writer) error {
	b, err := o.live.Open(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := waits(ctx, b); err != nil {
		return err
	}
	now := time.Now()
	user := events.Speaker{Source: "/user", Cluster: b.Cluster()}
	accepted := &events.Acceptance{Reason: o.reason}
	_, err = b.Publish(ctx, user.First(now, now.Format(time.RFC3339Nano), events.LogAccepted, b.Cluster(), accepted))
	if err == nil {
		fmt.Fprintln(w, "the log is accepted: the cluster goes on from what its nodes hold; reknit watch shows how")
	}
	return err
}

// waits fails where the cluster does not wait for an older log to be accepted: its last hold is about something else.
func waits(ctx context.Context, b *bus.Bus) error {
	last, found, err := b.LastEvent(ctx, events.EventStream, events.EventSubject(b.Cluster(), events.ClusterHeld, b.Cluster()))
	if err != nil {
		return err
	}
	if found {
		hold, err := events.Open[events.Hold](last)
		if err != nil {
			return err
		}
		if strings.HasPrefix(hold.Reason, events.OlderLog) {
			return nil
		}
	}
	return errors.New("the cluster does not wait for that: no node has said that it trained more than the log has; reknit status says how it is")
}
