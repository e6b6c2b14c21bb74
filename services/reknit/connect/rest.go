package connect

import (
	"context"
	"fmt"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
	"github.com/reknit/reknit/shared/bus"
)

// Rest is why nobody has to train: at most one of these is known.
type Rest struct {
	End   *changes.End     // of the job
	Stop  *changes.Stop    // of training, under the plan in force
	Reset *events.JobReset // of training, since the plan in force was committed
}

// String tells it as a person would; empty where training goes on.
func (r Rest) String() string {
	switch {
	case r.End != nil:
		return fmt.Sprintf("the job is complete: %v", r.End)
	case r.Stop != nil:
		return fmt.Sprintf("training has %v", r.Stop)
	case r.Reset != nil:
		return overlay.SaysReset(*r.Reset)
	}
	return ""
}

// Brief tells it in few words.
func (r Rest) Brief() string {
	switch {
	case r.End != nil:
		return "the job is complete"
	case r.Stop != nil:
		return "training has stopped"
	case r.Reset != nil:
		return "training is to begin anew"
	}
	return ""
}

// Resting returns why nobody has to train in the cluster, as far as the log holds.
func Resting(ctx context.Context, b *bus.Bus) (rest Rest, err error) {
	committed, _, err := b.LastEvent(ctx, events.PlanStream, events.PlanSubject(b.Cluster(), "*"))
	if err != nil {
		return Rest{}, err
	}
	plan, err := events.Open[events.Plan](committed)
	if err != nil { // there is none, or one that a later build made
		plan.Generation = 0
	}
	var told [3]events.Event
	for i, kind := range []events.Kind{events.TrainingCompleted, events.TrainingStopped, events.TrainingReset} {
		last, _, err := b.LastEvent(ctx, events.EventStream, events.EventSubject(b.Cluster(), kind, b.Cluster()))
		if err != nil {
			return Rest{}, err
		}
		told[i] = InLines(last)
	}
	completed, stopped, begun := told[0], told[1], told[2]
	if completed.Sequence > begun.Sequence {
		return Rest{End: changes.EndOf(completed)}, nil
	}
	if stop := changes.StopOf(stopped); stop != nil && stopped.Sequence > begun.Sequence && stop.Generation == plan.Generation {
		return Rest{Stop: stop}, nil
	}
	if reset, err := events.Open[events.JobReset](begun); err == nil && reset.Generation == plan.Generation {
		rest.Reset = &reset
	}
	return rest, nil
}
