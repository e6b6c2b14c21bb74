package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// Position is where a follower starts in a stream.
type Position struct {
	policy   jetstream.DeliverPolicy
	sequence uint64
}

// All starts at the first event of the stream, New behind the last one.
var (
	All = Position{policy: jetstream.DeliverAllPolicy}
	New = Position{policy: jetstream.DeliverNewPolicy}
)

// AfterSequence starts at the event behind the one at sequence.
func AfterSequence(sequence uint64) Position {
	return Position{jetstream.DeliverByStartSequencePolicy, sequence + 1}
}

// Follow calls handle for each event, in the stream's order, each once, on one goroutine, until stop is called or ctx
// ends. Nothing is acknowledged and nothing stays on the server. Refused messages are logged and skipped.
func (b *Bus) Follow(
	ctx context.Context, stream events.Stream, subjects []string, from Position, handle func(events.Event),
) (stop func(), err error) {
	var consumer jetstream.Consumer
	err = b.Repeat(ctx, "follow "+stream.Name, func(ctx context.Context) (err error) { // the stream may have no leader now
		ctx, cancel := context.WithTimeout(ctx, publishTimeout)
		defer cancel()
		if from == New {
			if from, err = b.behindLast(ctx, stream); err != nil {
				return err
			}
		}
		consumer, err = b.js.OrderedConsumer(ctx, stream.Name, jetstream.OrderedConsumerConfig{
			FilterSubjects: subjects, DeliverPolicy: from.policy, OptStartSeq: from.sequence,
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("follow %s: %w", stream.Name, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	consuming, err := consumer.Consume(func(message jetstream.Msg) { b.follow(ctx, message, handle) })
	if err != nil {
		cancel()
		return nil, fmt.Errorf("follow %s: %w", stream.Name, err)
	}
	context.AfterFunc(ctx, consuming.Stop)
	return cancel, nil
}

// behindLast is what New means now. The server's own "new" means something else after each reset of the consumer until
// it has heard something, so that what came while it was reset would be missed.
func (b *Bus) behindLast(ctx context.Context, stream events.Stream) (Position, error) {
	held, err := b.js.Stream(ctx, stream.Name)
	if err != nil {
		return New, err
	}
	return AfterSequence(held.CachedInfo().State.LastSeq), nil
}

func (b *Bus) follow(ctx context.Context, message jetstream.Msg, handle func(events.Event)) {
	metadata, err := message.Metadata()
	if err != nil || ctx.Err() != nil {
		return
	}
	event, refusal, err := b.open(ctx, stored{message.Subject(), message.Data(), metadata.Sequence.Stream,
		metadata.Timestamp})
	switch {
	case err != nil: // ctx ended while data was fetched
	case refusal != nil:
		slog.WarnContext(ctx, "message refused", "reason", refusal.Reason, "detail", refusal.Detail,
			"subject", refusal.Subject)
	default:
		handle(event)
	}
}

// LastEvent returns the last event on a subject, which may hold wildcards; found is false where there is none. The
// answer comes from the stream's leader, never from a replica that lags.
func (b *Bus) LastEvent(
	ctx context.Context, stream events.Stream, subject string,
) (event events.Event, found bool, err error) {
	message, found, err := b.last(ctx, stream, subject)
	if err != nil || !found {
		return events.Event{}, false, err
	}
	event, refusal, err := b.open(ctx, message)
	if refusal != nil {
		err = fmt.Errorf("last event on %s: %s: %s", subject, refusal.Reason, refusal.Detail)
	}
	return event, err == nil, err
}

// Holds reports whether the event stream is the one that had the event with this id at sequence, or any message where
// id is empty: it has it, or has dropped it since, for its age or because newer ones on its subject came. That what was
// stored after known may have been dropped unread is said as an error in the log.
func (b *Bus) Holds(ctx context.Context, sequence uint64, id string, known time.Time) (bool, error) {
	stream, err := b.leader(ctx, events.EventStream)
	if err != nil {
		return false, err
	}
	message, err := stream.GetMsg(ctx, sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		fresh, err := b.js.Stream(ctx, events.EventStream.Name)
		if err != nil {
			return false, err
		}
		state := fresh.CachedInfo().State
		if state.FirstTime.After(known) || state.FirstSeq <= sequence {
			slog.ErrorContext(ctx, "events may have been dropped before they were handled: the log keeps them for a while, "+
				"and the newest of each node", "from", known, "to", state.FirstTime)
		}
		return sequence <= state.LastSeq, nil
	}
	if err != nil {
		return false, err
	}
	event, _, _ := decode(message.Data)
	return id == "" || event.ID == id, nil
}

// leader returns a stream whose messages are read from its leader: a replica that lags would not find what is there. It is
// looked up once, so what it says of the stream's state is old.
func (b *Bus) leader(ctx context.Context, stream events.Stream) (jetstream.Stream, error) {
	if known, ok := b.leaders.Load(stream.Name); ok {
		return known.(jetstream.Stream), nil
	}
	handle, err := b.js.Stream(ctx, stream.Name)
	if err == nil {
		handle.CachedInfo().Config.AllowDirect = false // by this nats.go chooses whom it asks
		b.leaders.Store(stream.Name, handle)
	}
	return handle, err
}

func (b *Bus) last(ctx context.Context, stream events.Stream, subject string) (stored, bool, error) {
	handle, err := b.leader(ctx, stream)
	if err != nil {
		return stored{}, false, fmt.Errorf("last event on %s: %w", subject, err)
	}
	message, err := handle.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return stored{}, false, nil
	}
	if err != nil {
		return stored{}, false, fmt.Errorf("last event on %s: %w", subject, err)
	}
	return stored{message.Subject, message.Data, message.Sequence, message.Time}, true, nil
}
