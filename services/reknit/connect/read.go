package connect

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// quiet is after how long nothing more is expected of a log: its last message may be dropped while it is read.
const quiet = 5 * time.Second

var errQuiet = errors.New("nothing more comes")

// Span is a part of the log.
type Span struct {
	After uint64 // sequence of the event before it; zero: it has the first one
	Until uint64 // sequence of its last event; zero: there is no later one now
}

// Read calls handle for each event of some kinds in a part of the cluster's log, in the log's order.
func Read(ctx context.Context, b *bus.Bus, kinds []events.Kind, span Span, handle func(events.Event)) error {
	var subjects []string
	for _, kind := range kinds {
		subjects = append(subjects, events.EventSubject(b.Cluster(), kind, "*"))
	}
	end, err := lastOf(ctx, b, subjects)
	if span.Until > 0 {
		end = min(end, span.Until)
	}
	if err != nil || end <= span.After {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	more := time.AfterFunc(quiet, func() { cancel(errQuiet) })
	defer more.Stop()
	err = b.Read(ctx, events.EventStream, subjects, span.After, end, func(event events.Event) {
		more.Reset(quiet)
		handle(event)
	})
	if errors.Is(context.Cause(ctx), errQuiet) {
		return nil
	}
	return err
}

// lastOf returns the sequence of the last message on any of the subjects, zero where there is none.
func lastOf(ctx context.Context, b *bus.Bus, subjects []string) (last uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	stream, err := b.JetStream().Stream(ctx, b.Lane(events.EventStream.Name))
	if err != nil {
		return 0, err
	}
	var mutex sync.Mutex
	var asked errgroup.Group
	for _, subject := range subjects {
		asked.Go(func() error {
			message, err := stream.GetLastMsgForSubject(ctx, subject)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				return nil
			}
			if err != nil {
				return err
			}
			mutex.Lock()
			defer mutex.Unlock()
			last = max(last, message.Sequence)
			return nil
		})
	}
	return last, asked.Wait()
}
