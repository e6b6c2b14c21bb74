package plan

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
	planner "github.com/reknit/reknit/services/planner/machine"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

// Ask reads from a cluster's log what would be planned now: the last request for a plan holds all there is to know but the plan
// committed since, and what was measured since (takeMeasured).
func Ask(ctx context.Context, b *bus.Bus) (Question, error) {
	cluster := b.Cluster()
	last, found, err := b.LastEvent(ctx, events.EventStream, events.EventSubject(cluster, events.PlanRequested, "*"))
	if err != nil {
		return Question{}, err
	}
	if !found {
		return Question{}, neverAsked(b)
	}
	request, err := events.Open[events.PlanRequest](last)
	if err != nil {
		return Question{}, err
	}
	q := Question{Request: request, Settings: planner.Settings{
		Cluster: cluster, MinReplicas: usualMinReplicas, SwitchSeconds: usualSwitchTime.Seconds(),
		RestartSeconds: usualRestartTime.Seconds(),
	}}
	if err := q.takeCommitted(ctx, b); err != nil {
		return q, err
	}
	return q, q.takeMeasured(ctx, b, last.Sequence)
}

// neverAsked says why no plan was requested of a cluster, by who lives there.
func neverAsked(b *bus.Bus) error {
	living, err := whoLives(b)
	switch {
	case err != nil:
		return err
	case len(living.Services) == 0:
		return fmt.Errorf("no plan was ever asked for in cluster %s, and no service acts for it: name by --cluster the one that they serve, "+
			"or start some: reknit up --cluster %[1]s --dir %[1]s-data --port 0", b.Cluster())
	case len(living.Nodes) == 0:
		return fmt.Errorf("no trainer is there: none has joined cluster %s yet, so that there is nothing to plan for; "+
			"reknit agent run -- COMMAND starts one", b.Cluster())
	}
	return fmt.Errorf("no plan was asked for in cluster %s yet, though %s there: reknit explain says for whom the first one waits",
		b.Cluster(), tell.Count(len(living.Nodes), "node is", "nodes are"))
}

func whoLives(b *bus.Bus) (connect.Living, error) {
	if err := connect.MayListen(b); err != nil {
		return connect.Living{}, err
	}
	all, err := connect.WhoLives(b.Conn(), b.Identity().Key, []string{b.Cluster()}, func(map[string]*connect.Living) bool { return false })
	if err != nil {
		return connect.Living{}, err
	}
	return *all[b.Cluster()], nil
}

// takeLiving says of whom it is taken for granted that they train, though nobody hears them.
func (q *Question) takeLiving(ctx context.Context, b *bus.Bus) error {
	living, err := whoLives(b)
	if err != nil {
		return err
	}
	rest, err := connect.Resting(ctx, b)
	if err != nil {
		return err
	}
	if rest.End != nil {
		q.Assumed = append(q.Assumed, "the job is complete, and nothing is left to plan")
	}
	var silent []string
	for _, node := range q.Request.Nodes {
		if !slices.Contains(living.Nodes, node.Node) {
			silent = append(silent, node.Node)
		}
	}
	switch few := silent[:min(len(silent), mostSilent)]; {
	case len(living.Nodes) == 0:
		q.Assumed = append(q.Assumed, "no trainer is there now: the nodes are those of the last request for a plan")
	case len(silent) > len(few):
		q.Assumed = append(q.Assumed,
			fmt.Sprintf("%s and %d more: not heard, and counted as there", strings.Join(few, ", "), len(silent)-len(few)))
	case len(silent) > 0:
		q.Assumed = append(q.Assumed, strings.Join(few, ", ")+": not heard, and counted as there")
	}
	return nil
}

// mostSilent is of how many silent nodes the names are told.
const mostSilent = 6

// takeCommitted asks for the plan after the last committed one. While that one's generation is still negotiated, the
// request stands as it is.
func (q *Question) takeCommitted(ctx context.Context, b *bus.Bus) error {
	last, found, err := b.LastEvent(ctx, events.PlanStream, events.PlanSubject(b.Cluster(), "*"))
	if err != nil || !found {
		return err
	}
	plan, err := events.Open[events.Plan](last)
	if err != nil {
		return err
	}
	if plan.Generation < q.Request.Generation {
		q.Assumed = append(q.Assumed,
			fmt.Sprintf("generation %d was asked for and is not committed", q.Request.Generation))
		return nil
	}
	q.Request.Current, q.Request.Generation, q.Request.Changes = &plan, plan.Generation+1, nil
	q.Request.Negotiation = "what-if"
	q.Request.CurrentStepSeconds, q.Request.CurrentLeastSeconds, q.Request.CurrentComputeRatio = 0, 0, 0 // they are of the plan before
	return nil
}

// lose takes nodes out, as a change of the given kind would. Fewer nodes fail less often.
func (q *Question) lose(kind string, nodes []string) error {
	before := float64(len(q.Request.Nodes))
	for _, node := range nodes {
		at := slices.IndexFunc(q.Request.Nodes, func(device events.Device) bool { return device.Node == node })
		isNamed := func(change events.Change) bool { return change.Node == node }
		switch {
		case at < 0 && slices.ContainsFunc(q.Request.Changes, isNamed):
			return fmt.Errorf("%s of %q: expected one that does not go already", kind, node)
		case at < 0:
			return fmt.Errorf("%s of %q: expected a node of the cluster; reknit nodes lists them", kind, node)
		}
		q.Request.Nodes = slices.Delete(q.Request.Nodes, at, at+1)
		q.Request.Changes = append(q.Request.Changes, events.Change{Kind: kind, Node: node, Cause: "what-if"})
	}
	if left := float64(len(q.Request.Nodes)); left > 0 {
		q.Request.SecondsBetweenFailures *= before / left
	}
	q.pace()
	return nil
}
