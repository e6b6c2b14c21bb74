// Package service runs a machine on the bus: take one message, handle it, publish what the machine says, acknowledge,
// and remember now and then. The machine's state follows from the log: the next instance hears again, in silence, what
// came behind its memory. A crash anywhere repeats nothing and loses nothing.
package service

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// Machine is a deterministic service: events in, events out. Run calls it on one goroutine.
type Machine interface {
	// Hears returns the kinds of event that the machine handles.
	Hears() []events.Kind
	// Handle takes the next event and returns what it brings about. An error says that the event made no sense here; it
	// is counted and logged and does not come again. The machine remembers nothing of an event at which Handle panics.
	Handle(events.Event) ([]events.Event, error)
	// Tick says that it is now, on the clock of the log. No tick comes while there is no connection to it, nor before
	// everybody who lost the same server can have spoken again.
	Tick(now time.Time) []events.Event
	// Snapshot and Restore carry the machine's memory, as JSON, over a restart.
	Snapshot() ([]byte, error)
	Restore([]byte) error
}

// Options of Run.
type Options struct {
	Name      string // of the service, as in the catalogue
	Bus       *bus.Bus
	Machine   Machine
	TickEvery time.Duration // zero: never
	Address   string        // host:port of /healthz, /readyz and /metrics; empty: none
	// Inputs are the service's own doors into the machine. Run calls what comes, on its goroutine, with the time on the
	// clock of the log, and publishes what it returns.
	Inputs <-chan func(now time.Time) []events.Event
	// LogMade hears when the log was made, by its own clock, before the machine is asked anything; nil: nobody wants to know.
	LogMade func(time.Time)
	// Halted tells why the machine decides nothing until a person does something; empty: it decides. nil: it always does.
	Halted func() string
}

// ErrLogWentBackwards says that the stream does not hold what this service handled: it was rolled back or replaced.
var ErrLogWentBackwards = errors.New("the event log went backwards: it does not hold what was handled before")

type runner struct {
	Options
	speaker  events.Speaker
	instance string
	leases   int // taken by this instance: the first and its renewals
	memory   *memory
	recent   recent
	said     uint64 // up to which message all that it brought about was said, by instances before
	metrics  metrics
	offset   time.Duration  // from this host's clock to that of the log
	done     []bus.Delivery // still to be acknowledged
	silent   bool           // the last message brought about nothing
	backlog  uint64         // messages to handle before time passes for the machine
	health   *health
}

// Run runs the machine until ctx ends, which is no error. While another instance works it stands by. It ends with
// bus.ErrFenced when another instance took the lease, with ErrLogWentBackwards, bus.ErrLogReplaced or bus.ErrRevoked, when the memory
// cannot be stored, or when the machine hangs: what it is at has no end then that could be waited for, and goes with the process.
func Run(ctx context.Context, options Options) error {
	r := &runner{
		Options: options, instance: rand.Text(), metrics: newMetrics(options.Name, options.Bus.Cluster()),
		speaker: events.Speaker{Source: "/" + options.Name, Cluster: options.Bus.Cluster()},
		health:  newHealth(options.Bus),
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop, err := r.health.serve(options.Address)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Name, err)
	}
	defer stop()
	defer watchHealth(r.Name, r.health)()
	err = r.runUnlessHung(ctx)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w", r.Name, err)
	}
	return nil
}

// errGone says that the machine ended the goroutine on which it was called.
var errGone = errors.New("the machine ended its goroutine")

// runUnlessHung returns what run does, or that the machine does not return.
func (r *runner) runUnlessHung(ctx context.Context) error {
	ended, hung := make(chan error, 1), make(chan error, 1)
	go func() {
		err := errGone
		defer func() { ended <- err }()
		err = r.run(ctx)
	}()
	go func() { hung <- r.health.hung(ctx) }()
	for {
		select {
		case err := <-ended:
			return err
		case err := <-hung:
			if err != nil {
				return err
			}
			hung = nil // ctx ended, and run does
		case err := <-r.Bus.Replaced():
			return err // the next instance is what follows from the log that there is
		case <-r.Bus.Revoked():
			return bus.ErrRevoked
		}
	}
}

func (r *runner) run(ctx context.Context) error {
	if err := r.Bus.Provision(ctx); err != nil {
		return err
	}
	if r.LogMade != nil {
		r.LogMade(r.Bus.LogMade())
	}
	answers, err := r.lead(ctx)
	if err != nil {
		return err
	}
	defer answers.Unsubscribe()
	if err := r.remind(ctx); err != nil {
		return err
	}
	consumer, err := r.consume(ctx)
	if err != nil {
		return err
	}
	r.health.consumer.Store(consumer)
	go r.health.watch(ctx, consumer)
	slog.InfoContext(ctx, "service runs", "instance", r.instance, "after", r.memory.Sequence,
		"said", r.said, "backlog", r.backlog)
	return r.loop(ctx, consumer)
}

// remind has this instance remember what the one before knew. It holds the lease by then, so that the other cannot act
// on something newer.
func (r *runner) remind(ctx context.Context) (err error) {
	if r.memory, err = recall(ctx, r.Bus, r.Name, r.instance); err != nil {
		return err
	}
	return r.restore(ctx)
}

// restore gives the machine its memory. One that has none yet goes back to its beginning after a panic.
func (r *runner) restore(ctx context.Context) (err error) {
	if r.memory.Sequence > 0 {
		held, err := r.Bus.Holds(ctx, r.memory.Sequence, r.memory.ID, r.memory.written)
		if err != nil {
			return err
		}
		if !held {
			return fmt.Errorf("%w (event %s at sequence %d)", ErrLogWentBackwards, r.memory.ID, r.memory.Sequence)
		}
	}
	r.recent.last, r.said = r.memory.position, max(r.memory.Said, r.memory.Sequence)
	if r.memory.Machine == nil {
		r.memory.Machine, err = r.Machine.Snapshot()
		return err
	}
	return r.Machine.Restore(r.memory.Machine)
}

// consume opens the consumer behind what is remembered. It asks again: a consumer with three replicas does not answer
// before they have agreed on a leader.
func (r *runner) consume(ctx context.Context) (consumer *bus.Consumer, err error) {
	err = r.Bus.Repeat(ctx, "start of the consumer", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		consumer, err = r.open(ctx)
		return err
	})
	if err == nil && r.said > consumer.LogEnd {
		err = fmt.Errorf("%w (it ends at sequence %d, and all up to %d was said)", ErrLogWentBackwards, consumer.LogEnd, r.said)
	}
	return consumer, err
}

func (r *runner) open(ctx context.Context) (*bus.Consumer, error) {
	var subjects []string
	for _, kind := range r.Machine.Hears() {
		subjects = append(subjects, events.AllOf(r.Bus.Cluster(), kind, r.Bus.Secured())...)
	}
	consumer, err := r.Bus.Consume(ctx, r.memory.durable(r.instance), r.memory.Sequence, subjects)
	if err != nil {
		return nil, err
	}
	consumer.Kept = r.memory.kept()
	if err := r.Bus.Drop(ctx, events.EventStream, r.memory.durable(r.memory.before)); err != nil {
		return nil, err
	}
	r.backlog, err = consumer.Pending(ctx)
	return consumer, err
}

// now is the time on the clock of the log, by which event times can be compared with it on any host.
func (r *runner) now() time.Time { return time.Now().Add(r.offset) }
