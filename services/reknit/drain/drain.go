// Package drain asks for a node to leave, and waits until training does without it.
package drain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/history"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

const help = `Asks in the name of a user that a node leaves, shows what comes of that, and ends once every trainer that stays has completed a
step under a plan without the node. The node trains on until then, and its layers move first. Its trainer then ends as after a
leave that it asked for itself.

Interrupted, the command ends and the request stands. Exit status: 0 the node has left; 1 it may not, or is no member of the plan;
2 and 4 as everywhere.`

// options are the flags.
type options struct {
	live     connect.Flags
	json     bool
	reason   string
	deadline time.Duration
}

// Command is `reknit drain`.
func Command() *cobra.Command {
	var o options
	command := tell.Command(&cobra.Command{
		Use: "drain NODE", Short: "have a node leave, and wait until training does without it", Long: help,
		Args: oneNode,
		RunE: func(c *cobra.Command, given []string) error { return o.run(c.Context(), given[0], c.OutOrStdout()) },
	})
	o.live.Add(command.Flags())
	command.Flags().BoolVar(&o.json, "json", false, "print what happens as a JSON document a line")
	command.Flags().StringVar(&o.reason, "reason", "drained by a user", "that the log keeps")
	command.Flags().DurationVar(&o.deadline, "deadline", 0, "after which training must not need the node; 0: there is none")
	return command
}

func oneNode(_ *cobra.Command, given []string) error {
	if len(given) != 1 || !events.Token(strings.TrimSuffix(given[0], "…")) {
		return fmt.Errorf("expected the name or the id of one node, got %q", given)
	}
	return nil
}

func (o options) run(ctx context.Context, node string, w io.Writer) error {
	if o.deadline < 0 {
		return tell.UsageError{Err: fmt.Errorf("--deadline: expected 0 or more, got %s", o.deadline)}
	}
	b, err := o.live.Open(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	names, err := connect.Names(ctx, b)
	if err != nil {
		return err
	}
	given := node
	if node, err = names.Node(node); err != nil {
		return tell.UsageError{Err: err}
	}
	switch is, plan, err := isMember(ctx, b, node, "*"); {
	case err != nil:
		return err
	case !is:
		return fmt.Errorf("%s is no member of generation %d of %s; reknit nodes lists them", given, plan.Generation, b.Cluster())
	}
	if node != given && !o.json {
		fmt.Fprintf(w, "%s is asked to leave: the node with the key %s\n", names.Shown(node), node)
	}
	watching := &watcher{ctx: ctx, bus: b, node: node, tell: history.Teller(w, names, o.json), names: names}
	err = history.Watch(ctx, b, func(uint64) error { return o.ask(ctx, b, node) }, watching.hear)
	if err = errors.Join(err, watching.err); err == nil && !watching.left {
		err = errors.New("interrupted: the request stands")
	}
	return err
}

// ask says that the node is to leave. Each command asks anew: who was refused may try again.
func (o options) ask(ctx context.Context, b *bus.Bus, node string) error {
	now := time.Now()
	user := events.Speaker{Source: "/user", Cluster: b.Cluster()}
	_, err := b.Publish(ctx, user.First(now, now.Format(time.RFC3339Nano), events.LeaveRequested, node,
		&events.Leave{Node: node, Reason: o.reason, DeadlineSeconds: o.deadline.Seconds()}))
	return err
}

// isMember reports whether the plan of a generation has the node; "*" is the plan in force.
func isMember(ctx context.Context, b *bus.Bus, node, generation string) (is bool, plan events.Plan, err error) {
	last, found, err := b.LastEvent(ctx, events.PlanStream, events.PlanSubject(b.Cluster(), generation))
	if err != nil || !found {
		return false, plan, err
	}
	if plan, err = events.Open[events.Plan](last); err == nil {
		_, is = plan.Member(node)
	}
	return is, plan, err
}

// watcher waits for what becomes of the request.
type watcher struct {
	ctx   context.Context
	bus   *bus.Bus
	node  string
	tell  func(history.News)
	names *overlay.Names
	left  bool
	err   error // why the node does not leave
}

func (w *watcher) hear(news history.News, event events.Event) (enough bool) {
	w.names.Take(event)
	w.tell(news)
	if event.Kind == events.MembershipRefused {
		refusal, err := events.Open[events.Refusal](event)
		if err == nil && refusal.Refused == events.ChangeLeave && refusal.Node == w.node {
			w.err = errors.New(w.names.Shown(fmt.Sprintf("%s may not leave: %s", w.node, refusal.Reason)))
		}
		return w.err != nil
	}
	if event.Kind != events.PlanActivated { // all trainers work under a plan
		return false
	}
	activation, err := events.Open[events.Activation](event)
	is := true
	if err == nil { // the plan in force may be a later one already
		is, _, err = isMember(w.ctx, w.bus, w.node, strconv.FormatUint(activation.Generation, 10))
	}
	w.left, w.err = !is && err == nil, err
	return w.left || w.err != nil
}
