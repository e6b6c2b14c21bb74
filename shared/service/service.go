// Package service runs a machine on the bus: take one message, handle it, publish what the machine says, remember,
// acknowledge. A crash anywhere repeats nothing and loses nothing.
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
	// is counted and logged and does not come again.
	Handle(events.Event) ([]events.Event, error)
	// Tick says that it is now, on the clock of the log.
	Tick(now time.Time) []events.Event
	// Snapshot and Restore carry the machine's memory over a restart.
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
}

// ErrLogWentBackwards says that the stream does not hold what this service handled: it was rolled back or replaced.
var ErrLogWentBackwards = errors.New("the event log went backwards: it does not hold what was handled before")

type runner struct {
	Options
	speaker  events.Speaker
	instance string
	memory   *memory
	metrics  metrics
	offset   time.Duration // from this host's clock to that of the log
	backlog  uint64        // messages to handle before time passes for the machine
	health   *health
}

// Run runs the machine until ctx ends, which is no error. It ends with bus.ErrFenced when another instance took the
// lease, with bus.ErrTaken when a write-once subject holds another event, with ErrLogWentBackwards.
func Run(ctx context.Context, options Options) error {
	r := &runner{
		Options: options, instance: rand.Text(), metrics: newMetrics(options.Name),
		speaker: events.Speaker{Source: "/" + options.Name, Cluster: options.Bus.Cluster()},
		health:  &health{bus: options.Bus},
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := r.health.serve(ctx, options.Address); err != nil {
		return fmt.Errorf("%s: %w", r.Name, err)
	}
	err := r.run(ctx)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w", r.Name, err)
	}
	return nil
}

func (r *runner) run(ctx context.Context) error {
	if err := r.prepare(ctx); err != nil {
		return err
	}
	consumer, err := r.consume(ctx)
	if err != nil {
		return err
	}
	defer consumer.Stop()
	slog.InfoContext(ctx, "service runs", "service", r.Name, "instance", r.instance, "after", r.memory.Sequence, "backlog", r.backlog)
	return r.loop(ctx, consumer)
}

// startPause is how long a start waits for a server that is not ready yet.
const startPause = 250 * time.Millisecond

// prepare takes the lease and then remembers what the instance before knew: in this order, so that the other cannot
// act on something newer.
func (r *runner) prepare(ctx context.Context) error {
	for err := r.Bus.Provision(ctx); err != nil; err = r.Bus.Provision(ctx) {
		slog.WarnContext(ctx, "streams are not ready", "error", err)
		select {
		case <-time.After(startPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := r.takeLease(ctx); err != nil {
		return err
	}
	var err error
	if r.memory, err = recall(ctx, r.Bus, r.Name, r.instance); err != nil {
		return err
	}
	if r.memory.Sequence == 0 {
		return nil
	}
	held, err := r.Bus.Holds(ctx, r.memory.Sequence, r.memory.ID)
	if err != nil {
		return err
	}
	if !held {
		return fmt.Errorf("%w (event %s at sequence %d)", ErrLogWentBackwards, r.memory.ID, r.memory.Sequence)
	}
	return r.Machine.Restore(r.memory.Machine)
}

func (r *runner) takeLease(ctx context.Context) error {
	lease := r.speaker.First(time.Now(), r.instance, events.LeaseTaken, r.Name, &events.Lease{Service: r.Name, Instance: r.instance})
	ack, err := r.Bus.Publish(ctx, lease)
	if err != nil {
		return err
	}
	r.Bus.Fence(lease.SubjectName(), ack.Sequence)
	now := time.Now()
	logged, found, err := r.Bus.LastEvent(ctx, events.EventStream, lease.SubjectName())
	if err != nil {
		return err
	}
	if !found || logged.ID != lease.ID {
		return bus.ErrFenced
	}
	r.offset = logged.Logged.Sub(now)
	return nil
}

func (r *runner) consume(ctx context.Context) (*bus.Consumer, error) {
	var subjects []string
	for _, kind := range r.Machine.Hears() {
		subjects = append(subjects, events.EventSubject(r.Bus.Cluster(), kind, "*"))
	}
	consumer, err := r.Bus.Consume(ctx, r.Bus.Cluster()+"-"+r.Name, subjects)
	if err != nil {
		return nil, err
	}
	if err := consumer.StartAfter(ctx, r.memory.Sequence); err != nil {
		return nil, err
	}
	r.backlog, err = consumer.Pending(ctx)
	return consumer, err
}

// now is the time on the clock of the log, by which event times can be compared with it on any host.
func (r *runner) now() time.Time { return time.Now().Add(r.offset) }
