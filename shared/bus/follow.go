package bus

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	mathrand "math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// Position is where a follower starts in a stream.
type Position struct {
	after uint64 // sequence
	isNew bool   // behind the last one
}

// All starts at the first event of the stream, New behind the last one.
var All, New = Position{}, Position{isNew: true}

// AfterSequence starts at the event behind the one at sequence.
func AfterSequence(sequence uint64) Position { return Position{after: sequence} }

// Read calls handle for each event behind one sequence and up to another, in the stream's order, each once, and returns
// behind the last one, or where ctx ends. Refused messages are skipped, and not logged: who reads a log again and again
// would tell of them each time.
func (b *Bus) Read(
	ctx context.Context, stream events.Stream, subjects []string, after, end uint64, handle func(events.Event),
) error {
	f := &follower{bus: b, stream: stream, subjects: subjects, last: after, end: end, handle: handle, refusals: slog.LevelDebug}
	for f.last < end && ctx.Err() == nil {
		if err := f.open(ctx); err != nil {
			return fmt.Errorf("read %s: %w", stream.Name, err)
		}
		if err := f.read(ctx); errors.Is(err, nats.ErrConnectionClosed) {
			return fmt.Errorf("read %s: %w", stream.Name, err)
		}
	}
	return ctx.Err()
}

// Follow calls handle for each event, in the stream's order, each once, on one goroutine, until stop is called or ctx
// ends. Nothing is acknowledged and nothing stays on the server. Refused messages are logged and skipped.
func (b *Bus) Follow(
	ctx context.Context, stream events.Stream, subjects []string, from Position, handle func(events.Event),
) (stop func(), err error) {
	return b.FollowBut(ctx, stream, subjects, from, nil, handle)
}

// FollowBut is Follow without what is nothing to whoever follows, as ignores tells by all but the data. It is not even verified.
func (b *Bus) FollowBut(
	ctx context.Context, stream events.Stream, subjects []string, from Position, ignores func(events.Event) bool, handle func(events.Event),
) (stop func(), err error) {
	f := &follower{bus: b, stream: stream, subjects: subjects, last: from.after, end: math.MaxUint64, refusals: slog.LevelWarn}
	if from.isNew {
		f.last, err = b.lastSequence(ctx, stream)
	}
	if err == nil {
		err = f.open(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("follow %s: %w", stream.Name, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	f.ignores, f.handle = ignores, handle
	go f.run(ctx)
	return cancel, nil
}

// lastSequence is what New means now. The server's own "new" would mean something else each time that a consumer is made.
func (b *Bus) lastSequence(ctx context.Context, stream events.Stream) (last uint64, err error) {
	err = b.Repeat(ctx, "look at "+stream.Name, func(ctx context.Context) error { // it may have no leader now
		ctx, cancel := context.WithTimeout(ctx, publishTimeout)
		defer cancel()
		held, err := b.js.Stream(ctx, b.Lane(stream.Name))
		if err == nil {
			last = held.CachedInfo().State.LastSeq
		}
		return err
	})
	return last, err
}

// follower reads a stream by consumers, one after the other, none of which outlives its connection. The library's own
// names each anew; a server can let somebody use those of one name, and none of another's. It reads all that is new in a log that takes
// another's place.
type follower struct {
	bus        *Bus
	stream     events.Stream
	subjects   []string
	last       uint64                  // sequence of what was handled
	end        uint64                  // sequence of what is handled last
	ignores    func(events.Event) bool // nil: nothing is ignored
	handle     func(events.Event)
	refusals   slog.Level // at which they are logged
	consumer   jetstream.Consumer
	mark       string          // of the consumer: another's of the same name has another
	connection context.Context // lasts as long as the one over which the consumer was made
	log        context.Context // lasts as long as the log that is read; nil: none was yet
}

// followAge is after how long without a reader the server forgets a consumer.
const followAge = 5 * time.Minute

// signOfLife is how often at least the server says that a pull still waits, and at most twice that; a reader that misses two reads by
// another consumer, no two nodes at once. New tokens of an account (reknit provision security --push) take the way back from its readers'
// pulls without a word, and what came went there: all nodes were deaf for up to 30 s.
const signOfLife = 2 * time.Second

func (f *follower) open(ctx context.Context) error {
	return f.bus.Repeat(ctx, "follow "+f.stream.Name, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, publishTimeout)
		defer cancel()
		lane, name := f.bus.Lane(f.stream.Name), rand.Text()
		if f.bus.isGuest() {
			if name, err = f.name(ctx); err != nil {
				return err
			}
		}
		f.connection, f.mark = f.bus.connection.Load().lasts, rand.Text()
		if err := f.renew(ctx); err != nil {
			return err
		}
		f.consumer, err = f.bus.js.CreateConsumer(ctx, lane, jetstream.ConsumerConfig{
			Name: name, Description: f.mark, FilterSubjects: f.subjects,
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: f.last + 1,
			AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: followAge,
		})
		if made, _, _, _ := f.bus.mark.known(); errors.Is(err, jetstream.ErrStreamNotFound) && !made.IsZero() {
			f.bus.lookIfMissing(err)
			return errors.New(err.Error()) // it was there, and is made again
		}
		if errors.Is(err, jetstream.ErrConsumerExists) {
			return errors.New(err.Error()) // another took the name meanwhile
		}
		return err
	})
}

// close deletes the consumer, if it is not another's by now: among several servers its last request would pass for a reader for half a
// minute. The server forgets the consumer in time if the connection is away.
func (f *follower) close(ctx context.Context) {
	if f.connection.Err() != nil || !f.bus.conn.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	name, isOurs := f.consumer.CachedInfo().Name, true
	if f.bus.isGuest() {
		known, err := f.consumer.Info(ctx)
		isOurs = err == nil && known.Config.Description == f.mark
	}
	if isOurs {
		if err := f.bus.Drop(ctx, f.stream, name); err != nil {
			slog.DebugContext(ctx, "a consumer is left to the server", "stream", f.stream.Name, "error", err)
		}
	}
}

// run reads until ctx ends, or the connection is closed.
func (f *follower) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := f.read(ctx)
		if ctx.Err() != nil {
			return
		}
		slog.DebugContext(ctx, "a stream is followed anew", "stream", f.stream.Name, "after", f.last, "why", err)
		if err = f.open(ctx); errors.Is(err, nats.ErrConnectionClosed) { // by who follows
			return
		} else if err != nil && ctx.Err() == nil {
			slog.ErrorContext(ctx, "a stream is not followed any more", "stream", f.stream.Name, "error", err)
			return
		}
	}
}

// read hands on what one consumer delivers, until that is gone, a message was lost or the connection was. It returns nil
// at the end.
func (f *follower) read(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.connection, cancel)()
	defer context.AfterFunc(f.log, cancel)()
	says := jetstream.PullHeartbeat(signOfLife + mathrand.N(signOfLife))
	messages, err := f.consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(window, windowBytes), says)
	if err != nil {
		return err
	}
	defer messages.Stop()
	defer f.close(ctx)
	check := f.check(ctx, cancel)
	defer time.AfterFunc(time.Second, check).Stop()
	pending := f.consumer.CachedInfo().NumPending
	for number := uint64(1); ; number++ {
		message, err := f.next(ctx, messages, pending)
		if errors.Is(err, errGone) {
			f.last = f.end
			return nil
		} else if err != nil {
			return err
		}
		metadata, err := message.Metadata()
		if err != nil {
			return err
		}
		if metadata.Sequence.Consumer != number {
			return fmt.Errorf("message %d came in place of %d", metadata.Sequence.Consumer, number)
		}
		if pending = metadata.NumPending; number == 1 {
			check()
		}
		held := stored{message.Subject(), message.Data(), metadata.Sequence.Stream, metadata.Timestamp}
		if f.stream.Name == events.EventStream.Name {
			f.bus.mark.meet(f.log, held.sequence, held.logged, held.data)
		}
		if held.sequence <= f.end {
			err = f.hand(ctx, held)
		}
		if err != nil {
			return err
		}
		if f.last = held.sequence; f.last >= f.end {
			return nil
		}
	}
}

// errGone is the end of a part of the log whose last message was dropped: of its subject there are newer ones, or it is old.
var errGone = errors.New("nothing more comes")

// quiet is for how long a reader waits for a last message of which the server does not know: a replica may lag.
var quiet = 2 * time.Second

// stalled is after how long a reader that hears nothing of what is pending reads anew: that may be lost on its way, or dropped.
var stalled = 5 * time.Second

// next waits for a message; a reader of a part of the log not for as long as it takes.
func (f *follower) next(ctx context.Context, messages jetstream.MessagesContext, pending uint64) (jetstream.Msg, error) {
	if f.end == math.MaxUint64 {
		return messages.Next(jetstream.NextContext(ctx))
	}
	longest := stalled
	if pending == 0 {
		longest = quiet
	}
	patience, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	message, err := messages.Next(jetstream.NextContext(patience))
	if err != nil && pending == 0 && ctx.Err() == nil && patience.Err() != nil && f.bus.conn.IsConnected() {
		return nil, errGone
	}
	return message, err
}

// check returns what ends reading where a guest's consumer is another's by now. Nobody else has the name of one that is none.
func (f *follower) check(ctx context.Context, end context.CancelFunc) func() {
	consumer, mark := f.consumer, f.mark
	return func() {
		if !f.bus.isGuest() {
			return
		} else if known, err := consumer.Info(context.WithoutCancel(ctx)); err != nil || known.Config.Description != mark {
			end() // after five seconds without an answer, too, however long ctx lasts
		}
	}
}

// patience is how long a payload that is missing is waited for: by who reads what is there for a person, no longer than for a node's.
func (f *follower) patience() time.Duration {
	if f.end == math.MaxUint64 {
		return unreadableAfter
	}
	return min(missingAfter, unreadableAfter)
}

// hand hands an event on. It fails where ctx ended before its data was there.
func (f *follower) hand(ctx context.Context, held stored) error {
	event, _, refusal, err := f.bus.open(ctx, held, reading{patience: f.patience(), ignores: f.ignores})
	switch {
	case errors.Is(err, errIgnored):
	case err != nil:
		return err
	case refusal != nil:
		slog.Log(ctx, f.refusals, "message refused", "reason", refusal.Reason, "detail", refusal.Detail, "subject", refusal.Subject)
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		f.handle(event)
	}
	return nil
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
	event, _, refusal, err := b.open(ctx, message, reading{patience: unreadableAfter})
	if refusal != nil {
		err = fmt.Errorf("last event on %s: %s: %s", subject, refusal.Reason, refusal.Detail)
	}
	return event, err == nil, err
}

// LastSequence returns where the last message on a subject is, whoever signed it and with which key; 0 where there is none.
func (b *Bus) LastSequence(ctx context.Context, stream events.Stream, subject string) (uint64, error) {
	message, _, err := b.last(ctx, stream, subject)
	return message.sequence, err
}

// Holds reports whether the event stream is the one that had the event with this id at sequence, or any message where
// id is empty: it has it, or has dropped it since, for its age or because newer ones on its subject came. It logs an
// error if messages that were stored after known may have been dropped unread.
func (b *Bus) Holds(ctx context.Context, sequence uint64, id string, known time.Time) (bool, error) {
	stream, err := b.leader(ctx, events.EventStream)
	if err != nil {
		return false, err
	}
	message, err := stream.GetMsg(ctx, sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		fresh, err := b.js.Stream(ctx, b.Lane(events.EventStream.Name))
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
	handle, err := b.js.Stream(ctx, b.Lane(stream.Name))
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
