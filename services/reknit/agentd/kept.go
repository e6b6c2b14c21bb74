package agentd

import (
	"context"
	"strconv"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// keptFrom returns the generation of the newest plan that names this node, if that is the newest of all or the one before:
// what its agent before kept is the same byte. So a cluster of which all agents ended goes on, also where the others made one
// more plan without this node before they ended.
func (s *standIn) keptFrom(ctx context.Context) (generation uint64, err error) {
	b, err := bus.Connect(ctx, bus.Config{
		URL: s.config.URL, Name: s.config.Node, Cluster: s.config.Cluster, Kit: s.config.Kit,
	})
	if err != nil {
		return 0, err
	}
	defer b.Close()
	if err := b.Provision(ctx); err != nil {
		return 0, err
	}
	last, placed, err := s.readPlan(ctx, b, "*")
	switch {
	case err != nil || last.Generation == 0:
		return 0, err
	case placed:
		s.done = last.ResumeStep + farAhead
		return last.Generation, nil
	}
	before, placed, err := s.readPlan(ctx, b, strconv.FormatUint(last.Generation-1, 10))
	if err != nil || !placed {
		return 0, err
	}
	s.done = last.ResumeStep
	return before.Generation, nil
}

// readPlan reads the newest plan of a generation, or of all, and whether it has a place for this node. The plan is empty if there is none.
func (s *standIn) readPlan(ctx context.Context, b *bus.Bus, generation string) (plan events.Plan, placed bool, err error) {
	event, found, err := b.LastEvent(ctx, events.PlanStream, events.PlanSubject(s.config.Cluster, generation))
	if err != nil || !found {
		return events.Plan{}, false, err
	}
	if plan, err = events.Open[events.Plan](event); err != nil {
		return events.Plan{}, false, err
	}
	_, placed = plan.Holds(s.config.Node)
	return plan, placed, nil
}
