package bus

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// lookTimeout is how long somebody has to answer for a consumer: one of a single replica lies on a server that may be away.
const lookTimeout = time.Second

// name returns that of the reader's next consumer: its own where it has one, which close has deleted.
func (f *follower) name(ctx context.Context) (string, error) {
	if f.consumer != nil {
		return f.consumer.CachedInfo().Name, nil
	}
	return f.bus.unread(ctx, f.stream)
}

// unread returns the first name with which nobody reads, else the last: those who are too many have it in turns.
func (b *Bus) unread(ctx context.Context, stream events.Stream) (name string, err error) {
	names := events.Readers(b.kit.Key)
	free, failed := make([]bool, len(names)), make([]error, len(names))
	look, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var asked sync.WaitGroup
	for i, name := range names {
		asked.Go(func() { free[i], failed[i] = b.isUnread(look, stream, name) })
	}
	asked.Wait()
	if i := slices.Index(free, true); i >= 0 {
		return names[i], b.Drop(ctx, stream, names[i])
	} else if err := errors.Join(failed...); err != nil {
		return "", err
	}
	last := names[len(names)-1]
	slog.WarnContext(ctx, "more read the log with one kit than have a name there, or a server is away: they take turns", "last", last)
	turn, end := context.WithTimeout(ctx, lastRepeatWait)
	defer end()
	<-turn.Done()
	return last, b.Drop(ctx, stream, last)
}

// isUnread reports whether nobody reads with a name. Nobody knows that of a consumer on a server that is away.
func (b *Bus) isUnread(ctx context.Context, stream events.Stream, name string) (bool, error) {
	reader, err := b.js.Consumer(ctx, b.Lane(stream.Name), name)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return true, nil
	case err != nil && ctx.Err() != nil:
		return false, nil
	case err != nil:
		return false, err
	}
	return reader.CachedInfo().NumWaiting == 0, nil
}
