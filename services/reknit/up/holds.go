package up

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
	"github.com/reknit/reknit/shared/bus"
)

// holds tells why the cluster holds, each reason once in a row, and that a hold is over.
type holds struct {
	reason string // of the hold; empty: the cluster does not hold, as far as was heard
	resets changes.Resets
	say    func(string)
}

// tellHolds says why the cluster holds, when that is over, and that training begins anew: who started the cluster looks here first. It
// returns once it listens; that ends with ctx.
func tellHolds(ctx context.Context, config bus.Config, say func(string)) {
	b, err := bus.Connect(ctx, config)
	if err == nil {
		context.AfterFunc(ctx, b.Close)
		err = b.Provision(ctx)
	}
	if err == nil {
		var subjects []string
		for _, kind := range []events.Kind{events.ClusterHeld, events.StepReleased, events.TrainingReset, events.Committed} {
			subjects = append(subjects, events.EventSubject(config.Cluster, kind, "*"))
		}
		_, err = b.Follow(ctx, events.EventStream, subjects, bus.New, (&holds{say: say}).hear)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		slog.ErrorContext(ctx, "whether the cluster holds is not told here; reknit status tells", "error", err)
	}
}

// hear hears an event, of which the bus has looked at the size, the schema and the speaker.
func (h *holds) hear(event events.Event) {
	switch event.Kind {
	case events.ClusterHeld:
		if hold, err := events.Open[events.Hold](event); err == nil && hold.Reason != h.reason {
			h.reason = hold.Reason
			h.say("the cluster holds: " + hold.Reason)
		}
	case events.StepReleased:
		if release, err := events.Open[events.Release](event); err == nil {
			h.over(release.String())
		}
	case events.TrainingReset:
		if reset := h.resets.Take(event); reset != nil {
			h.reason = ""
			h.say(overlay.SaysReset(*reset))
		}
	case events.Committed:
		if commitment, err := events.Open[events.Commitment](event); err == nil {
			h.over(fmt.Sprintf("training goes on under generation %d", commitment.Generation))
		}
	}
}

// over says by what a hold ended, if there was one.
func (h *holds) over(by string) {
	if h.reason != "" {
		h.reason = ""
		h.say("the cluster holds no more: " + by)
	}
}
