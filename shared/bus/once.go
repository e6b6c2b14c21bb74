package bus

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// Anybody who hears a signed request can say it again: whoever runs a server has what it takes. So a service takes a request that was
// signed within some minutes of when the hub logged it, once. It need not remember others.

// mostRequests bounds how many are remembered; with more the oldest go. Each of 4,096 nodes may join anew once a minute and a half.
const mostRequests = 1 << 16

// once remembers requests that count.
type once struct {
	mutex  sync.Mutex
	heard  map[[sha256.Size]byte]uint64 // sequences, by digest of source and id
	order  []request                    // as they were noted
	after  uint64                       // the reader reads what is behind
	since  time.Time                    // the first request that it read was logged; zero: it read none
	looked map[string]bool              // subjects of which the requests of before are noted
}

type request struct {
	digest [sha256.Size]byte
	logged time.Time
}

func newOnce(after uint64) *once {
	return &once{heard: map[[sha256.Size]byte]uint64{}, after: after, looked: map[string]bool{}}
}

// lacks reports whether requests on the subject of a message may count of which the reader knows nothing: a reader before it took them.
func (o *once) lacks(message stored) bool {
	if o.since.IsZero() {
		o.since = message.logged
	}
	if message.logged.Sub(o.since) > 2*events.RequestAge || len(o.looked) > mostRequests {
		clear(o.looked)
	}
	return o.after > 0 && message.logged.Sub(o.since) <= 2*events.RequestAge && !o.looked[message.subject]
}

// take notes a request, and reports why it does not count.
func (o *once) take(event events.Event, message stored) error {
	if away := message.logged.Sub(event.Time); away.Abs() > events.RequestAge {
		return refuse(Stale, "time: expected one within %v of when the hub logged it, %s, got %s (rule age)", events.RequestAge,
			message.logged.UTC().Format(time.RFC3339), event.Time.UTC().Format(time.RFC3339))
	}
	digest := sha256.Sum256([]byte(event.Source + " " + event.ID))
	if first, known := o.heard[digest]; known && first != message.sequence {
		return refuse(Repeated, "id: expected a request that was not heard before, got that of sequence %d again (rule once)", first)
	} else if known {
		return nil
	}
	o.heard[digest] = message.sequence
	o.order = append(o.order, request{digest, message.logged})
	for len(o.order) > mostRequests || message.logged.Sub(o.order[0].logged) > 2*events.RequestAge {
		delete(o.heard, o.order[0].digest)
		o.order = o.order[1:]
	}
	return nil
}

// signAnew is how far the time of a request may be from the hub's before it is signed as of now.
const signAnew = time.Minute

// fresh returns an event as it is to be signed: a request that could not be published for longer, or by a clock that is wrong, has the
// hub's time.
func (b *Bus) fresh(ctx context.Context, event events.Event) (events.Event, error) {
	if !b.Secured() || !event.Kind.Asks() {
		return event, nil
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	stream, err := b.js.Stream(ctx, b.Lane(events.EventStream.Name))
	if err != nil {
		b.lookIfMissing(err)
		return event, errors.New(err.Error()) // a stream that is missing may be made again
	}
	if now := stream.CachedInfo().TimeStamp; now.Sub(event.Time).Abs() > signAnew {
		event.Time = now
	}
	return event, nil
}

// counts reports why an event that its source signed does not count: a request that is stale, or was heard before.
func (s Sealed) counts(ctx context.Context, event events.Event) error {
	c, message := s.consumer, s.stored()
	if c.once == nil || !event.Kind.Asks() {
		return nil
	}
	if err := s.share.turn(ctx); err != nil {
		return err
	}
	c.once.mutex.Lock()
	defer c.once.mutex.Unlock()
	if c.once.lacks(message) {
		if err := c.before(ctx, message); err != nil {
			return fmt.Errorf("consumer %s: %w", c.durable, err)
		}
		c.once.looked[message.subject] = true
	}
	return c.once.take(event, message)
}

// before notes the requests on the subject of a message that a reader before this one took. A request has one subject, of which the stream
// keeps a few hundred: however much others ask for, it is not read.
func (c *Consumer) before(ctx context.Context, message stored) error {
	for next := uint64(1); next <= c.once.after; {
		held, err := c.nextOf(ctx, message.subject, next)
		if err != nil || held.sequence == 0 || held.sequence > c.once.after {
			return err
		}
		next = held.sequence + 1
		if message.logged.Sub(held.logged) > 2*events.RequestAge {
			continue
		}
		event, e, err := decode(held.data)
		if err == nil && c.bus.kit.verify(event, e, held.logged) == nil && checkEnvelope(&event, c.bus.cluster, held.subject) == nil {
			_ = c.once.take(event, held) // one that did not count counts no more now
		}
	}
	return nil
}

// nextOf returns the first message on a subject from a sequence on; zero where there is none.
func (c *Consumer) nextOf(ctx context.Context, subject string, from uint64) (next stored, err error) {
	err = c.bus.repeatIn(ctx, c.log, "look at requests of before", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, publishTimeout)
		defer cancel()
		stream, err := c.bus.leader(ctx, events.EventStream)
		if err != nil {
			return err
		}
		held, err := stream.GetMsg(ctx, from, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		} else if err == nil {
			next = stored{held.Subject, held.Data, held.Sequence, held.Time}
		}
		return err
	})
	return next, err
}
