package connect

import (
	"context"
	"errors"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// Span is a part of the log.
type Span struct {
	After uint64 // sequence of the event before it; zero: it has the first one
	Until uint64 // sequence of its last event; zero: there is no later one now
}

// Read calls handle for each event of some kinds in a part of the cluster's log, in the log's order, with texts as InLines has them.
func Read(ctx context.Context, b *bus.Bus, kinds []events.Kind, span Span, handle func(events.Event)) error {
	var subjects []string
	for _, kind := range kinds {
		subjects = append(subjects, events.AllOf(b.Cluster(), kind, b.Secured())...)
	}
	end, err := lastOf(ctx, b, subjects)
	if span.Until > 0 {
		end = min(end, span.Until)
	}
	if err != nil || end <= span.After {
		return err
	}
	return b.Read(ctx, events.EventStream, subjects, span.After, end, func(event events.Event) { handle(InLines(event)) })
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
