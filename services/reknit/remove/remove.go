// Package remove takes away what a cluster has at a NATS server that is done or was only tried.
package remove

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/cluster"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/tell"
)

const help = `Removes the log, the plans, the payloads and the memories of a cluster from the NATS server, for ever: of one whose job is done, or
that was only tried. It says what there is and asks before. Where services act for the cluster, or heartbeats of its nodes are
heard, it refuses: end them first. Who is cut off from the server is not heard, and trains on for a cluster that is no more: --yes
removes only one whose job is complete, or that never had a plan; its name, typed, or --force removes any. What agents keep on their
own machines, and snapshots, stay.

Exit status: 0 all is removed; 1 somebody lives there, or it could not be removed; 2 and 4 as everywhere.`

// options are the flags.
type options struct {
	live       connect.Flags
	yes, force bool
}

// Command is `reknit cluster` with the one that removes one.
func Command() *cobra.Command {
	var o options
	remove := tell.Command(&cobra.Command{
		Use: "remove NAME", Short: "remove what a cluster that is done has at the server", Long: help, Args: oneCluster,
		RunE: func(c *cobra.Command, given []string) error {
			asks := c.InOrStdin() != os.Stdin || term.IsTerminal(int(os.Stdin.Fd()))
			return o.run(c.Context(), given[0], asks, c.InOrStdin(), c.OutOrStdout())
		},
	})
	o.live.AddServer(remove.Flags())
	remove.Flags().BoolVar(&o.yes, "yes", false, "remove it without asking, if its job is complete or it never had a plan")
	remove.Flags().BoolVar(&o.force, "force", false, "remove it without asking, though nodes that are cut off may train on")
	command := tell.Command(&cobra.Command{
		Use: "cluster", Short: "begin a job anew, or remove a cluster that is done",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	})
	command.AddCommand(remove)
	return command
}

func oneCluster(_ *cobra.Command, given []string) error {
	switch {
	case len(given) == 0:
		return errors.New("expected the name of the cluster that is to go (the first line of reknit status has it): reknit cluster remove NAME")
	case len(given) > 1:
		return fmt.Errorf("expected the name of one cluster, got %d: %s", len(given), strings.Join(given, " "))
	case !events.Token(given[0]):
		return fmt.Errorf("expected the name of a cluster, %s, got %q", cluster.Tokens, given[0])
	}
	return nil
}

// isAbandoned fails where somebody of a cluster is heard.
func isAbandoned(conn *nats.Conn, name string) error {
	living, err := connect.WhoLives(conn, "", []string{name}, func(map[string]*connect.Living) bool { return false })
	if err == nil && !living[name].Nobody() {
		err = fmt.Errorf("%s is not removed, for it lives: %s; end them first, but for NATS, which has to run", name, living[name])
	}
	return err
}

func (o options) run(ctx context.Context, name string, asks bool, in io.Reader, out io.Writer) error {
	conn, js, err := o.live.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	there, err := streams(ctx, js, name)
	switch {
	case err != nil:
		return err
	case len(there) == 0:
		return connect.Missing(ctx, js, name)
	}
	if err := isAbandoned(conn, name); err != nil {
		return err
	}
	fmt.Fprintf(out, "Of the cluster %s this goes, for ever:\n", name)
	show(out, there)
	isOver, err := isOver(ctx, js, name, there)
	if err != nil {
		return err
	}
	if !isOver {
		fmt.Fprintf(out, unfinished, connect.Listening)
	}
	switch {
	case o.force || o.yes && isOver:
	case o.yes:
		return fmt.Errorf("%s is not removed by --yes, for its job is not complete: remove it without, and type its name, or by --force", name)
	case !asks:
		return tell.UsageError{Err: errors.New("nobody is there to ask: --yes removes it where its job is complete, --force always")}
	default:
		fmt.Fprintf(out, "Type %s to remove it: ", name)
		if typed, _ := bufio.NewReader(in).ReadString('\n'); strings.TrimSpace(typed) != name {
			return errors.New("nothing was removed")
		}
	}
	if err := isAbandoned(conn, name); err != nil { // by now
		return err
	}
	for _, stream := range there {
		if err := js.DeleteStream(ctx, stream.Config.Name); err != nil {
			return fmt.Errorf("stream %s: %w", stream.Config.Name, err)
		}
	}
	fmt.Fprintf(out, "%s is removed\n", name)
	return nil
}

const unfinished = "Its job is not complete. No service answered, and no heartbeat came for %v; but nodes that are cut off from here " +
	"may train on: they would find no cluster, and no plan to go on with.\n"

// isOver reports whether nobody can be training there: the job is complete, or there never was a plan.
func isOver(ctx context.Context, js jetstream.JetStream, name string, there []*jetstream.StreamInfo) (bool, error) {
	plans, log := events.Lane(name, events.PlanStream.Name), events.Lane(name, events.EventStream.Name)
	if !slices.ContainsFunc(there, func(s *jetstream.StreamInfo) bool { return s.Config.Name == plans && s.State.LastSeq > 0 }) {
		return true, nil
	}
	stream, err := js.Stream(ctx, log)
	if err == nil {
		return isComplete(ctx, stream, name)
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	return false, fmt.Errorf("stream %s: %w", log, err)
}

// isComplete reports whether the job is, and nobody had training begin anew since.
func isComplete(ctx context.Context, stream jetstream.Stream, name string) (bool, error) {
	var last [2]uint64
	for i, kind := range []events.Kind{events.TrainingReset, events.TrainingCompleted} {
		message, err := stream.GetLastMsgForSubject(ctx, events.EventSubject(name, kind, name))
		switch {
		case err == nil:
			last[i] = message.Sequence
		case !errors.Is(err, jetstream.ErrMsgNotFound):
			return false, fmt.Errorf("%s of %s: %w", kind, name, err)
		}
	}
	return last[1] > last[0], nil
}

// streams returns what a cluster has: its streams, and those under its buckets.
func streams(ctx context.Context, js jetstream.JetStream, name string) (there []*jetstream.StreamInfo, err error) {
	sorts := []string{events.EventStream.Name, events.PlanStream.Name}
	for _, bucket := range events.KeyValues {
		sorts = append(sorts, "KV_"+bucket.Bucket)
	}
	for _, store := range events.ObjectStores {
		sorts = append(sorts, "OBJ_"+store.Bucket)
	}
	for _, sort := range sorts {
		stream, err := js.Stream(ctx, events.Lane(name, sort))
		switch {
		case err == nil:
			there = append(there, stream.CachedInfo())
		case !errors.Is(err, jetstream.ErrStreamNotFound):
			return nil, fmt.Errorf("stream %s: %w", events.Lane(name, sort), err)
		}
	}
	return there, nil
}

func show(w io.Writer, there []*jetstream.StreamInfo) {
	table := tell.Table(w)
	for _, stream := range there {
		last := ""
		if at := stream.State.LastTime; stream.State.Msgs > 0 && !at.IsZero() {
			last = "the last of " + at.Local().Format("2006-01-02 15:04:05")
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", stream.Config.Name, tell.Count(int(stream.State.Msgs), "message", "messages"),
			tell.Bytes(int64(stream.State.Bytes)), last)
	}
	table.Flush()
}
