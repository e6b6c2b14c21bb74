package plan

import (
	"context"
	"fmt"
	"slices"

	"github.com/reknit/reknit/events"
	planner "github.com/reknit/reknit/services/planner/machine"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/shared/bus"
)

// Ask reads from a cluster's log what would be planned now: the last request for a plan holds all there is to know,
// save the plan committed since and what was measured since.
func Ask(ctx context.Context, b *bus.Bus) (Question, error) {
	cluster := b.Cluster()
	last, found, err := b.LastEvent(ctx, events.EventStream, events.EventSubject(cluster, events.PlanRequested, "*"))
	if err != nil {
		return Question{}, err
	}
	if !found {
		return Question{}, fmt.Errorf("cluster %s: expected that a plan was requested once, found none: as long as too few "+
			"trainers joined it (reknit nodes), or no services serve it: start reknit up --cluster %s, or name by --cluster the one "+
			"that they serve", cluster, cluster)
	}
	request, err := events.Open[events.PlanRequest](last)
	if err != nil {
		return Question{}, err
	}
	q := Question{Request: request, Settings: planner.Settings{
		Cluster: cluster, MinReplicas: usualMinReplicas, SwitchSeconds: usualSwitchTime.Seconds(),
	}}
	if err := q.takeCommitted(ctx, b); err != nil {
		return q, err
	}
	return q, q.takeMeasured(ctx, b, last.Sequence)
}

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
	return nil
}

// takeMeasured reads the measurements after a position of the log: nothing else changes what a planner must know
// without a request of its own.
func (q *Question) takeMeasured(ctx context.Context, b *bus.Bus, after uint64) error {
	return connect.Read(ctx, b, []events.Kind{events.LinkMeasured, events.NodeProfiled}, connect.Span{After: after}, q.take)
}

// take notes one measurement. What does not decode is the log's to refuse, not ours.
func (q *Question) take(event events.Event) {
	if profile, err := events.Open[events.Profile](event); err == nil && event.Kind == events.NodeProfiled {
		for i := range q.Request.Nodes {
			if q.Request.Nodes[i].Node == profile.Node {
				q.Request.Nodes[i].SpeedFactor = profile.SpeedFactor
			}
		}
	}
	if measured, err := events.Open[events.Measurement](event); err == nil && event.Kind == events.LinkMeasured {
		at := slices.IndexFunc(q.Request.Links, func(link events.Link) bool {
			return link.From == measured.From && link.To == measured.To
		})
		if at < 0 {
			at = len(q.Request.Links)
			q.Request.Links = append(q.Request.Links, events.Link{})
		}
		q.Request.Links[at].Measurement = measured
	}
}

// lose takes nodes out, as a change of the given kind would. Fewer nodes fail less often.
func (q *Question) lose(kind string, nodes []string) error {
	before := float64(len(q.Request.Nodes))
	for _, node := range nodes {
		at := slices.IndexFunc(q.Request.Nodes, func(device events.Device) bool { return device.Node == node })
		if at < 0 {
			return fmt.Errorf("%s of %q: expected a node of the cluster that stays", kind, node)
		}
		q.Request.Nodes = slices.Delete(q.Request.Nodes, at, at+1)
		q.Request.Changes = append(q.Request.Changes, events.Change{Kind: kind, Node: node, Cause: "what-if"})
	}
	if left := float64(len(q.Request.Nodes)); left > 0 {
		q.Request.SecondsBetweenFailures *= before / left
	}
	return nil
}
