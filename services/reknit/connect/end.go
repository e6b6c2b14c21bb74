package connect

import (
	"context"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
	"github.com/reknit/reknit/shared/bus"
)

// End returns that of the cluster's job; nil where it goes on, or was begun anew, as far as the log holds.
func End(ctx context.Context, b *bus.Bus) (*changes.End, error) {
	last := func(kind events.Kind) (events.Event, bool, error) {
		return b.LastEvent(ctx, events.EventStream, events.EventSubject(b.Cluster(), kind, b.Cluster()))
	}
	completed, found, err := last(events.TrainingCompleted)
	if err != nil || !found {
		return nil, err
	}
	reset, _, err := last(events.TrainingReset)
	if err != nil || reset.Sequence > completed.Sequence {
		return nil, err
	}
	return changes.EndOf(completed), nil
}
