package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// Ack is the stream's answer to a publish.
type Ack struct {
	Sequence  uint64 // where the event is in its stream
	Duplicate bool   // it was there already, said by an earlier Publish
}

var (
	// ErrTaken says that a write-once subject holds another event.
	ErrTaken = errors.New("the write-once subject is taken")
	// ErrFenced says that another instance took the lease: this one must stop.
	ErrFenced = errors.New("fenced: another instance took the lease")
	// ErrOtherWords says that the stream holds an event with this id but other data.
	ErrOtherWords = errors.New("an event with this id was said with other words")
)

type fence struct {
	subject  string
	sequence uint64
}

// Fence binds every later Publish on the event stream to the lease: the server refuses it with ErrFenced once the last
// message on the lease's subject is no longer the one at sequence. A write-once subject needs no fence.
func (b *Bus) Fence(subject string, sequence uint64) { b.fence.Store(&fence{subject, sequence}) }

// Repeats of a publish that was not acknowledged: soon at first, then every two seconds.
const (
	publishTimeout  = 5 * time.Second
	firstRepeatWait = 50 * time.Millisecond
	lastRepeatWait  = 2 * time.Second
)

// Publish stores an event once and returns when the stream has it. It repeats until the stream acknowledges or ctx
// ends. Errors: ErrTaken, ErrFenced, ErrOtherWords, or why the event may not travel.
func (b *Bus) Publish(ctx context.Context, event events.Event) (Ack, error) {
	if err := check(event, b.cluster, event.SubjectName()); err != nil {
		return Ack{}, fmt.Errorf("publish %s: %w", event.Kind, err)
	}
	wait := firstRepeatWait
	for attempt := 1; ; attempt++ {
		ack, err := b.attempt(ctx, event)
		if err == nil {
			ack.Duplicate = ack.Duplicate && attempt == 1 // after a lost acknowledgement the repeat is the first
			return ack, nil
		}
		if !transient(err) {
			return Ack{}, fmt.Errorf("publish %s: %w", event.Kind, err)
		}
		slog.WarnContext(ctx, "publish repeats", "event", event.Kind, "attempt", attempt, "error", err)
		if sleep(ctx, wait) != nil {
			return Ack{}, fmt.Errorf("publish %s: %w, last: %w", event.Kind, ctx.Err(), err)
		}
		wait = min(2*wait, lastRepeatWait)
	}
}

// transient reports whether a repeat may help: it does not when the server or we said no.
func transient(err error) bool {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return api.Code >= 500
	}
	for _, final := range []error{ErrTaken, ErrFenced, ErrOtherWords, ErrTooLarge, nats.ErrConnectionClosed, nats.ErrMaxPayload} {
		if errors.Is(err, final) {
			return false
		}
	}
	return true
}

// message makes the wire form; data that is too large goes into the object store first.
func (b *Bus) message(ctx context.Context, event events.Event) (*nats.Msg, error) {
	data, err := encode(event, "")
	if err != nil {
		return nil, err
	}
	if len(data) > events.MaxEventBytes {
		dataref, err := b.Put(ctx, events.PayloadBucket, event.Data)
		if err != nil {
			return nil, err
		}
		if data, err = encode(event, dataref); err != nil {
			return nil, err
		}
	}
	message := nats.NewMsg(event.SubjectName())
	message.Header.Set("content-type", ContentType)
	message.Data = data
	return message, nil
}

func (b *Bus) attempt(ctx context.Context, event events.Event) (Ack, error) {
	message, err := b.message(ctx, event)
	if err != nil {
		return Ack{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	stream := streamOf(event.Kind)
	options := []jetstream.PublishOpt{jetstream.WithMsgID(event.ID), jetstream.WithExpectStream(stream.Name)}
	if fence := b.fence.Load(); fence != nil && !stream.WriteOnce {
		options = append(options, jetstream.WithExpectLastSequenceForSubject(fence.sequence, fence.subject))
	}
	ack, err := b.js.PublishMsg(ctx, message, options...)
	var api *jetstream.APIError
	switch {
	case err == nil && !ack.Duplicate:
		return Ack{Sequence: ack.Sequence}, nil
	case err == nil:
		return b.compare(ctx, stream, ack.Sequence, event, message.Data)
	case errors.As(err, &api) && stream.WriteOnce:
		return b.compareTaken(ctx, stream, event, message, err)
	case errors.As(err, &api) && wrongLastSequence(api):
		return Ack{}, fmt.Errorf("%w (%s)", ErrFenced, api.Description)
	}
	return Ack{}, err
}

func wrongLastSequence(api *jetstream.APIError) bool {
	return api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

// compareTaken tells, after a refusal by a write-once stream, whether the subject is taken, and by whom.
func (b *Bus) compareTaken(ctx context.Context, stream events.Stream, event events.Event, message *nats.Msg, refusal error) (Ack, error) {
	last, found, err := b.last(ctx, stream, message.Subject)
	if err != nil || !found {
		return Ack{}, errors.Join(refusal, err)
	}
	return b.compare(ctx, stream, last.sequence, event, message.Data)
}

// compare reads back what the stream holds in an event's place: the same words, or others.
func (b *Bus) compare(ctx context.Context, stream events.Stream, sequence uint64, event events.Event, message []byte) (Ack, error) {
	held, err := b.js.Stream(ctx, stream.Name)
	if err != nil {
		return Ack{}, err
	}
	there, err := held.GetMsg(ctx, sequence)
	if err != nil {
		return Ack{}, err
	}
	if sameWords(there.Data, message) {
		return Ack{Sequence: sequence, Duplicate: true}, nil
	}
	if stream.WriteOnce {
		return Ack{}, fmt.Errorf("%w: %s", ErrTaken, there.Subject)
	}
	return Ack{}, fmt.Errorf("%w: id %s at sequence %d", ErrOtherWords, event.ID, sequence)
}

// sameWords compares ids and data; the envelope's time and trace may differ.
func sameWords(a, b []byte) bool {
	first, firstRef, err := decode(a)
	if err != nil {
		return false
	}
	second, secondRef, err := decode(b)
	return err == nil && first.ID == second.ID && firstRef == secondRef && bytes.Equal(first.Data, second.Data)
}

func streamOf(kind events.Kind) events.Stream {
	if row, _ := kind.Row(); row.Plan {
		return events.PlanStream
	}
	return events.EventStream
}

// sleep waits, or returns early with ctx's error.
func sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
