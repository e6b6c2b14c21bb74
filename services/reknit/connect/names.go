package connect

import (
	"context"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
	"github.com/reknit/reknit/shared/bus"
)

// Names returns what people call the nodes of the plan in force and of all that asked to join, as far as the log holds.
func Names(ctx context.Context, b *bus.Bus) (*overlay.Names, error) {
	names := overlay.NewNames()
	last, found, err := b.LastEvent(ctx, events.PlanStream, events.PlanSubject(b.Cluster(), "*"))
	if err != nil {
		return nil, err
	}
	if found {
		names.Take(last)
	}
	return names, Read(ctx, b, []events.Kind{events.JoinRequested}, Span{}, names.Take)
}
