package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/telemetry"
)

const insistPause = 2 * time.Second

// regroup is the time that others have to come back and speak after an outage, before the machine's clock goes on.
var regroup = bus.Regroup

// mostOpened is how many messages may be open before the machine has them, beside one for each processor. Without them the
// machine and who opens waited for each other at each: a kill among 1,000 nodes took 336 ms, and 283 with them.
const mostOpened = 16

// taken is a message that is opened, or one that the loop is to open.
type taken struct {
	bus.Delivery
	sealed *bus.Sealed   // nil: it is opened
	done   chan struct{} // closed when the loop is done with what it was to open
	err    error
}

// loop gives the machine one thing at a time. Time does not pass for the machine, and nothing comes in from elsewhere,
// until it has handled what was in the log at the start.
func (r *runner) loop(ctx context.Context, consumer *bus.Consumer) error {
	deliveries := make(chan taken, mostOpened)
	go take(ctx, consumer, openSealed, r.doubts(), deliveries)
	everyTick, renewals := time.Tick(r.TickEvery), time.Tick(consumer.LogAge/renewals)
	lasting, cancel := outlasting(ctx)
	defer cancel()
	for {
		ticks, inputs := everyTick, r.Inputs
		if r.backlog > 0 {
			ticks, inputs = nil, nil
		}
		r.health.caughtUp.Store(r.backlog == 0)
		r.health.busy.Store(nil)
		if r.Halted != nil {
			r.health.halts(r.Halted())
		}
		var err error
		select {
		case <-ctx.Done():
			return r.leave(ctx)
		case delivery := <-deliveries:
			if ctx.Err() != nil { // it comes again, to the next instance
				return r.leave(ctx)
			}
			err = r.deliver(lasting, delivery)
		case <-ticks:
			err = r.tick(lasting)
		case input := <-inputs:
			err = r.admit(lasting, "what came at the service's own door", input)
		case <-r.recent.due:
			r.health.begin()
			err = r.remember(lasting)
		case <-renewals:
			err = r.renew(lasting)
		}
		if err != nil && !errors.Is(err, errPanicked) {
			return err
		}
	}
}

// take opens as many messages at a time as there are processors: to verify a signature takes about as long as all that a
// machine does about most messages. Each is delivered behind the one before. The goroutines stay: one for each message would
// have its stack grown each time, which was 8 % of what the negotiator of 1,000 nodes spent. Doubtful messages are left to the loop, and
// nothing behind one is read before the loop is done with it.
func take(ctx context.Context, consumer *bus.Consumer, open opener, isDoubtful func(bus.Sealed) bool, deliveries chan<- taken) {
	defer consumer.Stop()
	var opening sync.WaitGroup
	var reading sync.Mutex
	last := make(chan struct{}) // closed once the message that was read last is delivered
	close(last)
	for range runtime.GOMAXPROCS(0) {
		opening.Go(func() {
			for ctx.Err() == nil {
				reading.Lock()
				sealed, err := consumer.Next(ctx)
				before, delivered := last, make(chan struct{})
				last = delivered
				next := taken{err: err}
				if err == nil && isDoubtful(sealed) {
					next.sealed, next.done = &sealed, make(chan struct{})
				} else {
					reading.Unlock()
				}
				if err == nil && next.sealed == nil {
					next.Delivery, next.err = open(sealed, ctx, nil)
				}
				<-before
				select {
				case deliveries <- next:
				case <-ctx.Done():
				}
				close(delivered)
				if next.sealed != nil {
					select {
					case <-next.done:
					case <-ctx.Done():
					}
					reading.Unlock()
				}
				if next.err != nil {
					return
				}
			}
		})
	}
	opening.Wait()
}

func (r *runner) deliver(ctx context.Context, delivery taken) error {
	if delivery.err != nil {
		return delivery.err
	}
	if delivery.sealed != nil {
		defer close(delivery.done)
		var err error
		if delivery.Delivery, err = r.openDoubtful(ctx, *delivery.sealed); err != nil {
			return err
		}
	}
	r.health.begin()
	r.backlog -= min(r.backlog, 1)
	if err := r.handle(ctx, delivery.Delivery); err != nil {
		return err
	}
	if (r.memory.fears != fears{}) && delivery.Event.Sequence > r.said { // before it counts as done with: else the next hears it again
		if err := r.remember(ctx); err != nil {
			return err
		}
	}
	r.acknowledge(ctx, delivery.Delivery)
	if r.recent.messages < mostRecent && r.recent.bytes < mostRecentBytes && r.memory.apartBytes() < mostApart {
		return nil
	}
	return r.remember(ctx)
}

// mostSilent is how many messages that brought about nothing are acknowledged together. One by one the system calls took the
// negotiator of 1,000 nodes nearly as long as its machine did about the messages.
const mostSilent = 64

// acknowledge tells the server of a message that is done with: at once where it brought something about, or where nothing is behind it.
// Messages that an instance before had are acknowledged one by one: else nobody knows at which message it ended.
func (r *runner) acknowledge(ctx context.Context, delivery bus.Delivery) {
	delivery.Done()
	sequence := delivery.Event.Sequence
	delivery.Event = events.Event{Sequence: sequence} // its payload may be large
	r.done = append(r.done, delivery)
	if !r.silent || !delivery.More || sequence <= r.memory.Heard || len(r.done) == mostSilent {
		r.acknowledgeDone(ctx)
	}
}

// acknowledgeDone may fail while there is no connection: the messages come again, and are acknowledged then.
func (r *runner) acknowledgeDone(ctx context.Context) {
	for _, done := range r.done {
		if err := done.Ack(); err != nil {
			slog.WarnContext(ctx, "not acknowledged", "sequence", done.Event.Sequence, "error", err)
		}
	}
	clear(r.done)
	r.done = r.done[:0]
}

// handle brings about what a message brings about. A message with which an instance before was done changes the machine
// and nothing else: nothing is said.
func (r *runner) handle(ctx context.Context, delivery bus.Delivery) error {
	event, again := delivery.Event, delivery.Event.Sequence <= r.said
	start := time.Now()
	if delivery.Refusal == nil {
		var end func()
		ctx, event.Traceparent, end = telemetry.Process(ctx, r.Name, event)
		defer end()
	}
	outputs, borne, err := r.outputs(ctx, event, delivery, again)
	if err == nil && again {
		outputs, err = nil, r.readBefore(ctx, delivery)
	}
	if err != nil {
		return err
	}
	for _, output := range outputs {
		ack, err := r.publish(ctx, event, output)
		if err != nil {
			return err
		}
		if ack.Duplicate && event.Sequence > r.memory.Heard && delivery.Refusal == nil {
			r.metrics.duplicates.add(ctx, 1, "kind", string(output.Kind))
			slog.ErrorContext(ctx, "said before, though its cause is new", "event", output.Kind, "subject", output.Subject,
				"id", output.ID)
		}
	}
	r.silent = len(outputs) == 0
	r.metrics.seconds.Record(ctx, time.Since(start).Seconds())
	r.recent.note(event, borne)
	return nil
}

// readBefore fails where an instance before could read a message that is unreadable now, which has no record as refused:
// without it the machine would become another. The next start tries again.
func (r *runner) readBefore(ctx context.Context, delivery bus.Delivery) error {
	if delivery.Refusal == nil || delivery.Refusal.Reason != bus.Unreadable {
		return nil
	}
	sequence := strconv.FormatUint(delivery.Event.Sequence, 10)
	record := events.EventSubject(r.Bus.Cluster(), events.EventRefused, sequence)
	if _, refused, err := r.Bus.LastEvent(ctx, events.EventStream, record); refused || err != nil {
		return err
	}
	return fmt.Errorf("message %s was handled and cannot be read again: %s", sequence, delivery.Refusal.Detail)
}

// outputs asks the machine what a message brings about. One that cannot be borne brings about its record.
func (r *runner) outputs(
	ctx context.Context, event events.Event, delivery bus.Delivery, again bool,
) (outputs []events.Event, borne bool, err error) {
	switch {
	case delivery.Refusal != nil && delivery.Refusal.Reason == bus.Poison:
		return append(r.speaker.NoAnswer(event, errUnopened), r.quarantine(ctx, r.speaker, event, delivery.Refusal)), false, nil
	case delivery.Refusal != nil:
		everybody := events.Speaker{Cluster: r.speaker.Cluster}
		return []events.Event{r.quarantine(ctx, everybody, event, delivery.Refusal)}, false, nil
	}
	if delivery.Apart && !r.memory.has(event.Sequence) {
		if err := r.memory.keep(ctx, event.Sequence, event.Data); err != nil {
			return nil, false, err
		}
	}
	outputs, err = r.attempt(ctx, event, !again && r.mayHaveKilled(event.Sequence))
	if errors.Is(err, errPanicked) || errors.Is(err, errDeadly) {
		poison := delivery.Refuse(bus.Poison, "%s: %v", r.Name, err)
		return append(r.speaker.NoAnswer(event, err), r.quarantine(ctx, r.speaker, event, poison)), false, nil
	}
	return outputs, true, err
}

func (r *runner) ask(ctx context.Context, event events.Event) ([]events.Event, error) {
	r.metrics.heard.add(ctx, 1, "kind", string(event.Kind))
	slog.DebugContext(ctx, "heard", "event", event.Kind, "subject", event.Subject, "source", event.Source, "id", event.ID,
		"sequence", event.Sequence)
	return r.guard(ctx, fmt.Sprintf("%s of %s", event.Kind, event.Subject), func() []events.Event {
		outputs, err := r.Machine.Handle(event)
		if err != nil {
			r.metrics.senseless.add(ctx, 1, "kind", string(event.Kind))
			slog.WarnContext(ctx, "event makes no sense here", "event", event.Kind, "subject", event.Subject, "error", err)
		}
		return outputs
	})
}

var errPanicked = errors.New("the machine panicked")

// guard calls the machine about something. After a panic the machine is again what it was before, and errPanicked tells so.
func (r *runner) guard(ctx context.Context, about string, call func() []events.Event) (outputs []events.Event, err error) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		slog.ErrorContext(ctx, "the machine panicked", "panic", cause, "stack", string(debug.Stack()))
		outputs, err = nil, fmt.Errorf("%w: %v", errPanicked, cause)
		if restoring := r.goBack(); restoring != nil {
			err = fmt.Errorf("restore after the panic %v: %w", cause, restoring) // not errPanicked: it cannot go on
		}
	}()
	r.health.think(about, func() { outputs = call() })
	return outputs, nil
}

// quarantine keeps a refused message as an event. With everybody as speaker of its id there is one record of it,
// whoever refuses it; what only one service could not bear is that service's record.
func (r *runner) quarantine(
	ctx context.Context, speaker events.Speaker, message events.Event, refusal *bus.Refusal,
) events.Event {
	r.metrics.refused.add(ctx, 1, "reason", refusal.Reason)
	slog.WarnContext(ctx, "message refused", "reason", refusal.Reason, "detail", refusal.Detail, "on", refusal.Subject)
	sequence := strconv.FormatUint(message.Sequence, 10)
	record := speaker.First(message.Logged, sequence, events.EventRefused, sequence, refusal)
	record.Source = r.speaker.Source
	return record
}

// tick lets time pass for the machine. It does not while others cannot be heard: a machine that counts how long they
// are silent would count the hub's outage, and what they say after it comes first.
func (r *runner) tick(ctx context.Context) error {
	if !r.Bus.Together(regroup) {
		return nil
	}
	err := r.admit(ctx, "a tick", r.Machine.Tick)
	if errors.Is(err, errPanicked) {
		r.health.standsFor("tick: " + err.Error())
	} else {
		r.health.stands.Store(nil)
	}
	return err
}

// admit gives the machine what came without a message, publishes what it says, and remembers that it was said. The log remembers it for
// events that the machine hears itself: the monitor of 1,000 nodes says of some links in each change that they differ. A next instance
// hears it behind what was in the log before, and may answer that once more: the words that came first stand.
func (r *runner) admit(ctx context.Context, about string, input func(time.Time) []events.Event) error {
	r.health.begin()
	outputs, err := r.guard(ctx, about, func() []events.Event { return input(r.now()) })
	if err != nil {
		return err
	}
	logged := true
	for _, output := range outputs {
		if _, err := r.publish(ctx, events.Event{}, output); err != nil {
			return err
		}
		logged = logged && slices.Contains(r.Machine.Hears(), output.Kind)
	}
	if !logged {
		return r.remember(ctx)
	}
	return nil
}

// publish says one event. One that was said with other words, or may not be said, is a fault of the machine: it is logged and counted. The
// words that were said first stand. The asker hears why there is no answer. A fault that forbids going on is an error.
func (r *runner) publish(ctx context.Context, question, event events.Event) (bus.Ack, error) {
	r.acknowledgeDone(ctx) // first: to say an event may take long
	end := func(error) {}
	if event.Traceparent == "" { // a first cause: a change begins
		end = telemetry.Send(ctx, &event, time.Now())
	}
	ack, err := r.insist(ctx, event)
	end(err)
	if errors.Is(err, bus.ErrOtherWords) || bus.IsRefusal(err) {
		r.metrics.unsaid.add(ctx, 1, "kind", string(event.Kind))
		slog.ErrorContext(ctx, "event was not said", "event", event.Kind, "subject", event.Subject, "error", err)
		if refusal := r.speaker.NoAnswer(question, err); bus.IsRefusal(err) && refusal != nil {
			return r.publish(ctx, events.Event{}, refusal[0])
		}
		return bus.Ack{}, nil
	}
	if err != nil {
		return bus.Ack{}, fmt.Errorf("say %s of %s: %w", event.Kind, event.Subject, err)
	}
	r.metrics.said.add(ctx, 1, "kind", string(event.Kind))
	slog.InfoContext(ctx, "said", "event", event.Kind, "subject", event.Subject, "id", event.ID, "cause", event.Cause,
		"sequence", ack.Sequence)
	return ack, nil
}

// insist publishes an event, and waits where only an operator or time makes room for it: the log is full, or a
// write-once subject holds another's bytes. To end would not help: the next instance would come to the same event.
func (r *runner) insist(ctx context.Context, event events.Event) (bus.Ack, error) {
	for {
		ack, err := r.Bus.Publish(ctx, event)
		if !errors.Is(err, bus.ErrTaken) && !errors.Is(err, bus.ErrFull) {
			r.health.stands.Store(nil)
			return ack, err
		}
		slog.ErrorContext(ctx, "event cannot be said", "event", event.Kind, "subject", event.Subject, "error", err)
		r.health.standsFor(err.Error())
		if err := pause(ctx, insistPause); err != nil {
			return bus.Ack{}, err
		}
	}
}
