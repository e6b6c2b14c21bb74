package service

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

const (
	standByPause  = time.Second
	answerTimeout = 2 * time.Second // whoever does not answer within it is dead, paused or cut off
	renewals      = 4               // of a lease, within the age at which the log drops it
)

// standBy returns when no other instance works. Two that are restarted for ever would else depose each other for ever.
func (r *runner) standBy(ctx context.Context) error {
	defer r.health.stands.Store(nil)
	for {
		asked, cancel := context.WithTimeout(ctx, answerTimeout)
		_, err := r.Bus.Conn().RequestWithContext(asked, events.LeaseSubject(r.Bus.Cluster(), r.Name), nil)
		cancel()
		if err != nil {
			return ctx.Err()
		}
		r.health.standsFor("standby: another instance holds the lease and works")
		if err := pause(ctx, standByPause); err != nil {
			return err
		}
	}
}

// answer tells who asks that this instance holds the lease, as long as it gets on.
func (r *runner) answer() (*nats.Subscription, error) {
	return r.Bus.Conn().Subscribe(events.LeaseSubject(r.Bus.Cluster(), r.Name), func(ask *nats.Msg) {
		if err := r.health.standsStill(); err != nil {
			slog.Error("another instance may take the lease", "error", err)
			return
		}
		if err := ask.Respond(nil); err != nil {
			slog.Warn("another instance was not answered", "error", err)
		}
	})
}

// takeLease says that this instance acts from here on, which fences every other. It measures the clock of the log.
func (r *runner) takeLease(ctx context.Context) error {
	r.leases++
	lease := r.speaker.First(time.Now(), r.instance+"."+strconv.Itoa(r.leases), events.LeaseTaken, r.Name,
		&events.Lease{Service: r.Name, Instance: r.instance})
	ack, err := r.insist(ctx, lease)
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

// renew takes the lease again before the log drops it for its age, and writes the memory again, by whose age the next
// instance knows that nothing was dropped unread.
func (r *runner) renew(ctx context.Context) error {
	if err := r.takeLease(ctx); err != nil {
		return err
	}
	return r.memory.write(ctx, r.memory.page)
}

func pause(ctx context.Context, wait time.Duration) error {
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
