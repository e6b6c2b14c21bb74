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

// reading is how a reader reads a message.
type reading struct {
	kept     []byte                  // it has these bytes of a payload already; nil: none
	patience time.Duration           // how long it waits for a payload that the store does not have, though a service wrote it
	ignores  func(events.Event) bool // tells, by all but its data, that an event is nothing to it; nil: none is
	share    *share                  // of what its payloads may take; nil: it reads one at a time
	arrived  func()                  // hears that all bytes of a message are here, before they are unpacked and decoded; nil: nobody does

	counts func(context.Context, events.Event) error // tells, in the order of the log, why a request does not count; nil: all do
}

// errIgnored says that an event is nothing to its reader.
var errIgnored = errors.New("the reader ignores it")

// open decodes a stored message, fetches data that travelled apart, and refuses what is no event of this cluster. It looks at all else
// before it fetches anything: who speaks, and may that one say so.
func (b *Bus) open(ctx context.Context, message stored, as reading) (_ events.Event, apart bool, _ *Refusal, _ error) {
	event, e, err := decode(message.data)
	if err == nil && as.ignores != nil && as.ignores(event) {
		return events.Event{}, false, nil, errIgnored
	}
	if err == nil {
		err = b.kit.verify(event, e, message.logged)
	}
	if err == nil {
		err = checkEnvelope(&event, b.cluster, message.subject)
	}
	if err == nil && as.counts != nil {
		err = as.counts(ctx, event)
	}
	apart = e.dataref != ""
	if err = as.admit(ctx, event, apart && err == nil, err); err == nil && apart {
		event.Data, err = b.payload(ctx, message.sequence, event, e.dataref, as)
	} else if err == nil {
		as.arrives()
	}
	if as.share != nil {
		as.share.settle(event.Data)
	}
	if err == nil {
		err = checkData(&event)
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

func (r reading) arrives() {
	if r.arrived != nil {
		r.arrived()
	}
}

// admit waits until there is room for a payload that is to be fetched.
func (r reading) admit(ctx context.Context, event events.Event, fetches bool, err error) error {
	if r.share == nil {
		return err
	}
	var bound events.Bound
	if fetches && r.kept == nil {
		bound = events.BoundOf(event.Kind, event.Source)
	}
	if waiting := r.share.take(ctx, bound); err == nil {
		err = waiting
	}
	return err
}

// payload reads what an event has apart. It repeats while the object store cannot give it, until that has lasted too long, who refused
// the event before has said so, or ctx ends.
func (b *Bus) payload(ctx context.Context, sequence uint64, event events.Event, dataref string, as reading) (data []byte, err error) {
	if as.kept != nil && events.Digest(as.kept) == dataref {
		as.arrives()
		return as.kept, nil
	}
	log, most := streamOf(event.Kind), events.BoundOf(event.Kind, event.Source).Bytes
	waits := b.waitFor(event, as)
	defer waits.end()
	err = b.Repeat(ctx, "read of a payload", func(ctx context.Context) error {
		data, err = b.getPayload(ctx, log.Payloads, dataref, most, as.arrives)
		switch {
		case err == nil || errors.Is(err, nats.ErrConnectionClosed):
			return err
		case errors.Is(err, ErrTooLarge):
			return refuse(Oversized, "dataref: expected at most %d bytes, not compressed, of %s by %s (rule size)",
				most, event.Kind, event.Source)
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

// isRefused reports whether a service has said that the payload of a message cannot be read. Nobody waits for a payload that a service
// refused.
func (b *Bus) isRefused(ctx context.Context, log events.Stream, sequence uint64) bool {
	if log.Name != events.EventStream.Name {
		return false // the records tell sequences of the log of events
	}
	record, found, err := b.last(ctx, log, events.EventSubject(b.cluster, events.EventRefused, strconv.FormatUint(sequence, 10)))
	if err != nil || !found {
		return false
	}
	event, e, err := decode(record.data)
	if err != nil || b.kit.verify(event, e, record.logged) != nil || check(&event, b.cluster, record.subject) != nil {
		return false
	}
	refusal, err := events.Open[events.Quarantine](event)
	return err == nil && refusal.Reason == Unreadable
}
