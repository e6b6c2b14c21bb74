package service

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

const (
	standByPause  = 200 * time.Millisecond
	answerTimeout = 2 * time.Second // whoever does not answer within it is dead, paused or cut off
	renewals      = 4               // of a lease, within the age at which the log drops it
	// reconnects is how long whoever answered may be without a connection to the log, where its server died and not it.
	reconnects = time.Second
)

// lead returns when this instance holds the lease and answers who asks. One of several instances that find that nobody works takes it, and
// the others stand by.
func (r *runner) lead(ctx context.Context) (answers *nats.Subscription, err error) {
	for {
		if err := r.standBy(ctx); err != nil {
			return nil, err
		}
		if answers, err = r.answer(); err != nil {
			return nil, err
		}
		r.health.begin()
		if err = r.takeLease(ctx); err == nil {
			return answers, nil
		}
		answers.Unsubscribe()
		if !errors.Is(err, bus.ErrFenced) {
			return nil, err
		}
	}
}

// standBy returns when no other instance works. Two that are restarted for ever would else depose each other for ever.
// One that has worked is given the time to reconnect. An instance that takes the lease then takes it from the one that
// was silent.
func (r *runner) standBy(ctx context.Context) error {
	defer r.health.stands.Store(nil)
	subject := events.EventSubject(r.Bus.Cluster(), events.LeaseTaken, r.Name)
	var answered time.Time // when another instance did last; zero: never
	for {
		lease, works, err := r.othersWork(ctx, subject)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case works:
			answered = time.Now()
			r.health.standsFor(standby)
		case err == nil && r.Bus.Together(regroup) && time.Since(answered) > reconnects:
			r.Bus.Fence(subject, lease)
			return nil
		}
		if err := pause(ctx, standByPause); err != nil {
			return err
		}
	}
}

// othersWork asks whether another instance works, and returns where the last lease is in the log, 0 for none. An error
// says that this cannot be known: the log is out of reach, and so may be the other.
func (r *runner) othersWork(ctx context.Context, subject string) (lease uint64, works bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	lease, err = r.Bus.LastSequence(ctx, events.EventStream, subject) // of an instance before, whose key may have been replaced
	if err != nil {
		return 0, false, err
	}
	_, silence := r.Bus.Conn().RequestWithContext(ctx, events.LeaseSubject(r.Bus.Cluster(), r.Name, r.Bus.Identity().Key), nil)
	return lease, silence == nil, nil
}

// ComputingHeader is the header of an answer that tells what the machine is at, and since when, as in "computing since
// 2026-11-28T23:00:00Z: restoration.requested of g2-1". An answer of a machine that waits has none.
const ComputingHeader = "Reknit-Computing"

// answer tells who asks that this instance holds the lease, as long as it gets on, of which build it is, and what it computes.
func (r *runner) answer() (*nats.Subscription, error) {
	return r.Bus.Conn().Subscribe(events.LeaseSubject(r.Bus.Cluster(), r.Name, events.AnySpeaker(r.Bus.Secured())), func(ask *nats.Msg) {
		if err := r.health.deposed(); err != nil {
			slog.Error("another instance may take the lease", "error", err)
			return
		}
		answer := nats.NewMsg(ask.Reply)
		answer.Data = []byte(Version())
		if thinks := r.health.thinks.Load(); thinks != nil {
			answer.Header.Set(ComputingHeader, thinks.String())
		}
		if err := ask.RespondMsg(answer); err != nil {
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
