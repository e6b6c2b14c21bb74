package inventory

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

const nodesHelp = `Lists the members of the plan in force by pipeline and stage, then who has no place or wants one, by name. Places come from the stream of plans, memory and speed
from the last request for a plan, states from the events that tell of nodes. Heartbeats are listened to for a second: of a node that
sends none the step is the last that the log tells.

Joined is when the node's process asked for its place, in local time; - where the log keeps that no more. A node is starting while its
script has announced itself (GET /v1/announce of its agent) and has not given its state yet: the log does not tell of it.

Speed is how many times as fast as its job declares a node computes a layer, as measured; without a measurement it is 1.
Peak memory is what the plan predicts at most, of what training may use on the node, which reknit plan calls its limit.`

// Nodes is `reknit nodes`.
func Nodes() *cobra.Command {
	return show(&cobra.Command{Use: "nodes", Short: "list the nodes: state, place, memory, step", Long: nodesHelp},
		func(ctx context.Context, b *bus.Bus, _ *overlay.Names, _ []string) (nodeList, error) {
			known, heard, err := look(ctx, b)
			if err != nil {
				return nil, err
			}
			all := known.Nodes(heard)
			slices.SortStableFunc(all, byPlace)
			plan, _ := known.Plan()
			return all, remember(ctx, b, all, plan)
		})
}

// byPlace orders nodes by pipeline and stage, and those without a place behind them by name, n2 before n10.
func byPlace(a, b overlay.Node) int {
	switch {
	case a.Pipeline != nil && b.Pipeline != nil:
		return cmp.Or(*a.Pipeline-*b.Pipeline, *a.Stage-*b.Stage)
	case a.Pipeline != nil:
		return -1
	case b.Pipeline != nil:
		return 1
	}
	one, other := cmp.Or(a.Name, a.Node), cmp.Or(b.Name, b.Node)
	return cmp.Or(len(one)-len(other), cmp.Compare(one, other))
}

// remember adds the step that each node told last under a plan whose end left no other trace of it.
func remember(ctx context.Context, b *bus.Bus, all nodeList, under *events.Plan) error {
	for i, node := range all {
		if node.State != overlay.Ended || node.Step > 0 {
			continue
		}
		last, found, err := b.LastEvent(ctx, events.EventStream, events.EventSubject(b.Cluster(), events.TrainingDigested, node.Node))
		if err != nil {
			return err
		}
		if told, err := events.Open[events.Digests](last); found && err == nil && under != nil && told.Generation == under.Generation {
			all[i].Step = told.Step
		}
	}
	return nil
}

type nodeList []overlay.Node

func (nodeList) wrong() []string { return nil }

func (l nodeList) tell(w io.Writer) {
	if len(l) == 0 {
		fmt.Fprintln(w, "There are no nodes.")
		return
	}
	table := tell.Table(w)
	fmt.Fprintln(table, "node\tstate\tplace\tlayers\tpeak memory\tspeed\tstep\tstep time\tjoined\tsite")
	for _, node := range l {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", node.Node, node.State, strings.Join(cells(node), "\t"), node.Site)
	}
	table.Flush()
	if slices.ContainsFunc(l, func(node overlay.Node) bool { return node.Stepless }) {
		fmt.Fprintln(w, "Steps, what they take and memory are not known: --unchanged")
	}
	for _, node := range l {
		if why := waits(node); why != "" {
			fmt.Fprintf(w, "%s is %s: %s\n", node.Node, node.State, why)
		}
	}
}

// waits says why a node is in its state; empty where its turn, for which it waited, has come.
func waits(node overlay.Node) string {
	if !node.Until.IsZero() && node.Until.Before(time.Now()) {
		return ""
	}
	return node.Reason
}

// cells are those from its place to when it joined.
func cells(n overlay.Node) []string {
	place, layers, memory, speed, step, takes, joined := "-", "-", "-", "-", "-", "-", "-"
	if n.Layers != nil {
		place = fmt.Sprintf("pipeline %d, stage %d", *n.Pipeline, *n.Stage)
		layers = strings.TrimPrefix(strings.TrimPrefix(tell.Layers(*n.Layers), "layers "), "layer ")
	}
	if n.MemoryBytes > 0 && !n.Stepless {
		memory = tell.Bytes(n.PeakBytes) + " of " + tell.Bytes(n.MemoryBytes)
	}
	if n.SpeedFactor > 0 {
		speed = fmt.Sprintf("%.3g", n.SpeedFactor)
	}
	if (n.Step > 0 || n.Pulse != nil) && !n.Stepless {
		step = fmt.Sprint(n.Step)
	}
	if n.Pulse != nil && !n.Stepless {
		takes = tell.Seconds(n.Pulse.StepSeconds)
	}
	if !n.Joined.IsZero() {
		joined = n.Joined.Local().Format(time.DateTime)
	}
	return []string{place, layers, memory, speed, step, takes, joined}
}
