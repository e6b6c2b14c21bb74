package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/shared/bus"
)

// Kinds are the events that are recorded: who asked for something, who consented or objected, what was refused, given up, committed,
// and who acts for the cluster.
var Kinds = []events.Kind{
	events.JoinRequested, events.LeaveRequested, events.ConnectRequested, events.DisconnectRequested, events.JoinDelayed,
	events.MembershipRefused, events.NodeLost, events.NodeExited, events.NegotiationOpened, events.Consented, events.Committed,
	events.Aborted, events.ClusterHeld, events.TrainingCompleted, events.TrainingStopped, events.ReplicaDiverged, events.EventRefused,
	events.LeaseTaken, events.LogAccepted, events.ReleaseRequested, events.StepReleased, events.ReleaseRefused,
	events.StopRequested, events.StopRefused,
	events.ResetRequested, events.ResetRefused, events.TrainingReset,
}

const (
	askTimeout = 10 * time.Second
	lookEvery  = 2 * time.Second
)

// recorder records what a cluster's log tells, and what policies lie in files.
type recorder struct {
	bus      *bus.Bus
	file     *file
	policies []string
}

// follow records until ctx ends, or the file takes nothing more. A log that cannot be read is tried again.
func (r recorder) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := r.catchUp(ctx); err != nil && ctx.Err() == nil {
			if r.file.failed != nil {
				return err
			}
			slog.WarnContext(ctx, "the log cannot be recorded yet", "error", err)
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
		}
	}
	return nil
}

// catchUp records what the log holds behind the last record. It is on the disk when it returns.
func (r recorder) catchUp(ctx context.Context) error {
	for _, name := range r.policies {
		if err := r.file.note(name, Record{At: time.Now().UTC(), Sequence: r.file.last.Sequence}); err != nil {
			return err
		}
	}
	stream, err := r.stream(ctx)
	if err != nil {
		return err
	}
	if err := r.file.bridge(stream.CachedInfo().State); err != nil {
		return err
	}
	var failed error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = connect.Read(ctx, r.bus, Kinds, connect.Span{After: r.file.last.Sequence}, func(event events.Event) {
		if failed == nil {
			failed = r.take(ctx, stream, event)
		}
		if failed != nil {
			cancel()
		}
	})
	if failed != nil {
		err = failed
	}
	return errors.Join(err, r.file.store())
}

func (r recorder) stream(ctx context.Context) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return r.bus.JetStream().Stream(ctx, r.bus.Lane(events.EventStream.Name))
}

// take records an event, which was found to be its speaker's, as it stands in the log.
func (r recorder) take(ctx context.Context, stream jetstream.Stream, event events.Event) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	stored, err := stream.GetMsg(ctx, event.Sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) { // it was dropped for newer ones of its subject
		return r.file.add(Record{At: event.Logged, Sequence: event.Sequence, Lost: 1})
	}
	if err != nil {
		return err
	}
	return r.file.add(Record{At: event.Logged, Sequence: event.Sequence, Event: eventOf(event, stored.Data)})
}

// bridge records what the log dropped before it was recorded. A log that is shorter than what was recorded is another one.
func (f *file) bridge(log jetstream.StreamState) error {
	switch {
	case log.LastSeq < f.last.Sequence:
		f.failed = fmt.Errorf("the log ends at sequence %d, and record %d is of sequence %d: it is another log than was recorded", log.LastSeq,
			f.last.Number, f.last.Sequence)
		return f.failed
	case log.FirstSeq > f.last.Sequence+1:
		return f.add(Record{At: log.FirstTime, Sequence: log.FirstSeq - 1, Lost: log.FirstSeq - 1 - f.last.Sequence})
	}
	return nil
}
