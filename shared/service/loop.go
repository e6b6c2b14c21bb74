package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/telemetry"
)

type taken struct {
	bus.Delivery
	err error
}

// loop gives the machine one thing at a time. Time does not pass for the machine, and nothing comes in from elsewhere,
// until it has handled what was in the log at the start.
func (r *runner) loop(ctx context.Context, consumer *bus.Consumer) error {
	deliveries := make(chan taken)
	go take(ctx, consumer, deliveries)
	var ticks <-chan time.Time
	if r.TickEvery > 0 {
		ticker := time.NewTicker(r.TickEvery)
		defer ticker.Stop()
		ticks = ticker.C
	}
	for {
		ticks, inputs := ticks, r.Inputs
		if r.backlog > 0 {
			ticks, inputs = nil, nil
		}
		r.health.caughtUp.Store(r.backlog == 0)
		var err error
		select {
		case <-ctx.Done():
			return nil
		case delivery := <-deliveries:
			err = r.deliver(ctx, delivery)
		case <-ticks:
			err = r.say(ctx, r.Machine.Tick(r.now()))
		case input := <-inputs:
			err = r.say(ctx, input(r.now()))
		}
		if err != nil {
			return err
		}
	}
}

func take(ctx context.Context, consumer *bus.Consumer, deliveries chan<- taken) {
	for {
		delivery, err := consumer.Next(ctx)
		select {
		case deliveries <- taken{delivery, err}:
		case <-ctx.Done():
		}
		if err != nil || ctx.Err() != nil {
			return
		}
	}
}

func (r *runner) deliver(ctx context.Context, delivery taken) error {
	if delivery.err != nil {
		return delivery.err
	}
	r.backlog -= min(r.backlog, 1)
	if delivery.Event.Sequence <= r.memory.Sequence {
		acknowledge(ctx, delivery)
		return nil
	}
	if err := r.handle(ctx, delivery.Delivery); err != nil {
		if errors.Is(err, bus.ErrFenced) {
			_ = delivery.Nak() // the instance that holds the lease need not wait for it
		}
		return err
	}
	acknowledge(ctx, delivery)
	return nil
}

// acknowledge may fail while there is no connection: the message comes again, and is known.
func acknowledge(ctx context.Context, delivery taken) {
	if err := delivery.Ack(); err != nil {
		slog.WarnContext(ctx, "not acknowledged", "sequence", delivery.Event.Sequence, "error", err)
	}
}

// handle brings about what a message brings about, up to remembering it.
func (r *runner) handle(ctx context.Context, delivery bus.Delivery) error {
	event, outputs := delivery.Event, []events.Event(nil)
	start := time.Now()
	if delivery.Refusal != nil {
		outputs = []events.Event{r.quarantine(ctx, delivery)}
	} else {
		var end func()
		ctx, event.Traceparent, end = telemetry.Process(ctx, r.Name, event)
		defer end()
		outputs = r.ask(ctx, event)
	}
	for _, output := range outputs {
		ack, err := r.publish(ctx, output)
		if err != nil {
			return err
		}
		if ack.Duplicate && !delivery.Redelivered {
			r.metrics.duplicates.add(ctx, "kind", string(output.Kind))
			slog.ErrorContext(ctx, "said before, though its cause is new", "event", output.Kind, "subject", output.Subject, "id", output.ID)
		}
	}
	r.metrics.seconds.Record(ctx, time.Since(start).Seconds())
	return r.memory.remember(ctx, r.Machine, event.Sequence, event.ID)
}

func (r *runner) ask(ctx context.Context, event events.Event) []events.Event {
	outputs, err := r.Machine.Handle(event)
	if err != nil {
		r.metrics.senseless.add(ctx, "kind", string(event.Kind))
		slog.WarnContext(ctx, "event makes no sense here", "event", event.Kind, "subject", event.Subject, "error", err)
	}
	r.metrics.heard.add(ctx, "kind", string(event.Kind))
	slog.DebugContext(ctx, "heard", "event", event.Kind, "subject", event.Subject, "source", event.Source, "id", event.ID, "sequence", event.Sequence)
	return outputs
}

// quarantine keeps a refused message as an event, once whoever refuses it and however often it comes.
func (r *runner) quarantine(ctx context.Context, delivery bus.Delivery) events.Event {
	r.metrics.refused.add(ctx, "reason", delivery.Refusal.Reason)
	slog.WarnContext(ctx, "message refused", "reason", delivery.Refusal.Reason, "detail", delivery.Refusal.Detail, "subject", delivery.Refusal.Subject)
	sequence := strconv.FormatUint(delivery.Event.Sequence, 10)
	return r.speaker.First(delivery.Event.Logged, sequence, events.EventRefused, sequence, delivery.Refusal)
}

// say publishes what came without a message, and remembers that it was said.
func (r *runner) say(ctx context.Context, outputs []events.Event) error {
	if len(outputs) == 0 {
		return nil
	}
	for _, output := range outputs {
		if _, err := r.publish(ctx, output); err != nil {
			return err
		}
	}
	return r.memory.remember(ctx, r.Machine, r.memory.Sequence, r.memory.ID)
}

// publish says one event. An event that may not be said, or was said with other words, is a fault of the machine: it
// is logged and counted, what was said first stands, and the service goes on. What forbids going on is an error.
func (r *runner) publish(ctx context.Context, event events.Event) (bus.Ack, error) {
	ack, err := r.Bus.Publish(ctx, event)
	if errors.Is(err, bus.ErrOtherWords) || bus.IsRefusal(err) {
		r.metrics.unsaid.add(ctx, "kind", string(event.Kind))
		slog.ErrorContext(ctx, "event was not said", "event", event.Kind, "subject", event.Subject, "error", err)
		return bus.Ack{}, nil
	}
	if err != nil {
		return bus.Ack{}, fmt.Errorf("say %s of %s: %w", event.Kind, event.Subject, err)
	}
	r.metrics.said.add(ctx, "kind", string(event.Kind))
	slog.InfoContext(ctx, "said", "event", event.Kind, "subject", event.Subject, "id", event.ID, "cause", event.Cause, "sequence", ack.Sequence)
	return ack, nil
}
