package bus

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// reading is how a reader reads a payload.
type reading struct {
	kept     []byte        // it has these bytes already; nil: none
	patience time.Duration // how long it waits for one that the store does not have, though a service wrote it
}

// open decodes a stored message, fetches data that travelled apart, and refuses what is no event of this cluster.
func (b *Bus) open(ctx context.Context, message stored, as reading) (_ events.Event, apart bool, _ *Refusal, _ error) {
	event, e, err := decode(message.data)
	if err == nil {
		err = b.kit.verify(event, e)
	}
	if apart = e.dataref != ""; err == nil && apart {
		event.Data, err = b.payload(ctx, message.sequence, event, e.dataref, as)
	}
	if err == nil {
		err = check(&event, b.cluster, message.subject)
	}
	if err == nil {
		event.Sequence, event.Logged = message.sequence, message.logged
		return event, apart, nil, nil
	}
	event = events.Event{Sequence: message.sequence, Logged: message.logged}
	if refusal := message.quarantine(err); refusal != nil {
		return event, apart, refusal, nil
	}
	return event, apart, nil, err
}

// payload reads what an event has apart. It repeats while the object store cannot give it, until that has lasted too long, who refused
// the event before has said so, or ctx ends.
func (b *Bus) payload(ctx context.Context, sequence uint64, event events.Event, dataref string, as reading) (data []byte, err error) {
	if as.kept != nil && events.Digest(as.kept) == dataref {
		return as.kept, nil
	}
	log := streamOf(event.Kind)
	waits := b.waitFor(event, as)
	defer waits.end()
	err = b.Repeat(ctx, "read of a payload", func(ctx context.Context) error {
		data, err = b.getPayload(ctx, log.Payloads, dataref)
		switch {
		case err == nil || errors.Is(err, nats.ErrConnectionClosed):
			return err
		case isMissing(err) && b.isRefused(ctx, log, sequence):
			return refuse(Unreadable, "dataref: refused before, and still not to be had: %v", err)
		case waits.over(isMissing(err)):
			return refuse(Unreadable, "dataref: not read within %v: %v", waits.longest, err)
		}
		return errors.New(err.Error()) // whatever the server says, it may be over soon
	})
	return data, err
}

// isMissing reports whether the store answered, and does not have what was asked for.
func isMissing(err error) bool {
	return errors.Is(err, jetstream.ErrObjectNotFound) || errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, ErrIncomplete) ||
		errors.Is(err, ErrCorrupt)
}

// isRefused reports whether a service has said that the payload of a message cannot be read. What it refused nobody waits for.
func (b *Bus) isRefused(ctx context.Context, log events.Stream, sequence uint64) bool {
	if log.Name != events.EventStream.Name {
		return false // the records tell sequences of the log of events
	}
	record, found, err := b.last(ctx, log, events.EventSubject(b.cluster, events.EventRefused, strconv.FormatUint(sequence, 10)))
	if err != nil || !found {
		return false
	}
	event, e, err := decode(record.data)
	if err != nil || b.kit.verify(event, e) != nil || check(&event, b.cluster, record.subject) != nil {
		return false
	}
	refusal, err := events.Open[events.Quarantine](event)
	return err == nil && refusal.Reason == Unreadable
}
