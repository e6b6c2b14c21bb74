package bus

import (
	"context"
	"log/slog"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// trimEvery is after how many plans those are dropped that are too many: it takes a few requests for each.
const trimEvery = 64

// trimPlans drops the plans of this cluster but the newest, and their payloads, now and then. A removal that fails is
// tried again with later plans: nobody waits for it.
func (b *Bus) trimPlans(ctx context.Context, newest events.Event) {
	generation, err := strconv.ParseUint(newest.Subject, 10, 64)
	if err != nil || generation%trimEvery != 0 || generation <= events.PlansKept {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if err := b.dropPlans(ctx, generation-events.PlansKept); err != nil {
		slog.WarnContext(ctx, "old plans are kept", "before", generation-events.PlansKept, "error", err)
	}
}

// dropPlans drops the plans up to a generation, payloads first: without its plan nobody would find one.
func (b *Bus) dropPlans(ctx context.Context, last uint64) error {
	stream, err := b.leader(ctx, events.PlanStream)
	if err != nil {
		return err
	}
	for generation := last; generation > 0; generation-- {
		subject := events.PlanSubject(b.cluster, strconv.FormatUint(generation, 10))
		plan, found, err := b.last(ctx, events.PlanStream, subject)
		if err != nil || !found { // all before it are gone, too
			break
		}
		if err := b.dropPayload(ctx, plan); err != nil {
			return err
		}
	}
	return stream.Purge(ctx, jetstream.WithPurgeSubject(events.PlanSubject(b.cluster, "*")),
		jetstream.WithPurgeKeep(events.PlansKept))
}

func (b *Bus) dropPayload(ctx context.Context, plan stored) error {
	_, wrapped, err := decode(plan.data)
	if err != nil || wrapped.dataref == "" {
		return nil // it is in the plan
	}
	return b.remove(ctx, events.PlanStream.Payloads, wrapped.dataref)
}
