package plan

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	planner "github.com/reknit/reknit/services/planner/machine"
	"github.com/reknit/reknit/services/reknit/cluster"
	restorer "github.com/reknit/reknit/services/restorer/machine"
)

// answer plans as the services do: the planner's machine proposes, and the restorer says who becomes whom and what
// moves from whom. It fails with their reason where no plan exists, and with planner.Deferred where
// waiting is better than any.
func (q *Question) answer() (events.Restoration, error) {
	asker := events.Speaker{Source: "/negotiator", Cluster: q.Request.Cluster}
	request := q.Request
	request.Usual = q.usual()
	asked := asker.First(time.Unix(0, 0), "what-if", events.PlanRequested, q.Request.Negotiation, &request)
	said, err := planner.New(q.Settings).Handle(asked)
	if err != nil {
		return events.Restoration{}, err
	}
	switch said[0].Kind {
	case events.PlanRefused:
		refused, err := events.Open[events.Failure](said[0])
		return events.Restoration{}, errors.Join(err, errors.New(refused.Reason))
	case events.PlanDeferred:
		deferral, err := events.Open[events.Deferral](said[0])
		return events.Restoration{}, errors.Join(err, planner.Deferred{Deferral: deferral})
	}
	proposal, err := events.Open[events.Proposal](said[0])
	if err != nil {
		return events.Restoration{}, err
	}
	answer, err := restorer.Restore(q.restoration(proposal))
	events.Fill(&answer) // whoever reads it as a document reads no null
	return answer, err
}

// usual is what links are taken for that are not told of, by the planner and the restorer alike; nil where nothing is known of any.
func (q *Question) usual() *events.Usual {
	if q.Request.Usual != nil {
		return q.Request.Usual
	}
	site := map[string]string{}
	for _, node := range slices.Concat(q.before, q.Request.Nodes) {
		site[node.Node] = node.Site
	}
	return events.UsualOf(q.Request.Links, site)
}

// restoration asks what the negotiator would, once it has the proposal.
func (q *Question) restoration(proposal events.Proposal) events.RestorationRequest {
	return events.RestorationRequest{
		Negotiation: q.Request.Negotiation, Proposal: proposal, Holders: q.holders(), Links: q.Request.Links,
		Usual: q.usual(), Current: q.Request.Current,
		Unreachable: cluster.Unreachable(q.Request.Links), Units: q.Request.Job.UnitBytes(),
		Gradients: q.Request.Job.GradientBytes(),
	}
}

// heeding is what work finds, or an error once the context ends: pure packages, which search for seconds, heed none. Work
// that is not waited for any more goes on until the process ends.
func heeding[T any](ctx context.Context, work func() (T, error)) (T, error) {
	type outcome struct {
		found T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		found, err := work()
		done <- outcome{found, err}
	}()
	select {
	case o := <-done:
		return o.found, o.err
	case <-ctx.Done():
		var none T
		return none, errors.New("interrupted before a plan was found")
	}
}
