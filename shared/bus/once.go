package bus

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// Anybody who hears a signed request can say it again: whoever runs a server has what it takes. So a service takes a request that was signed
// within some minutes of when the hub logged it, once. It need not remember others.

// mostRequests bounds how many are remembered; with more the oldest go. Each of 4,096 nodes may join anew once a minute and a half.
const mostRequests = 1 << 16

// once remembers requests that count.
type once struct {
	heard map[[sha256.Size]byte]uint64 // sequences, by digest of source and id
	order []request                    // by sequence
	whole bool                         // those from before the first message of the consumer, too
}

type request struct {
	digest [sha256.Size]byte
	logged time.Time
}

func newOnce() *once { return &once{heard: map[[sha256.Size]byte]uint64{}} }

// take notes a request, and reports why it does not count.
func (o *once) take(event events.Event, message stored) error {
	if away := message.logged.Sub(event.Time); away.Abs() > events.RequestAge {
		return refuse(Stale, "time: expected one within %v of when the hub logged it, %s, got %s (rule age)", events.RequestAge,
			message.logged.UTC().Format(time.RFC3339), event.Time.UTC().Format(time.RFC3339))
	}
	digest := sha256.Sum256([]byte(event.Source + " " + event.ID))
	if first, known := o.heard[digest]; known && first != message.sequence {
		return refuse(Repeated, "id: expected a request that was not heard before, got that of sequence %d again (rule once)", first)
	}
	o.heard[digest] = message.sequence
	o.order = append(o.order, request{digest, message.logged})
	for len(o.order) > mostRequests || message.logged.Sub(o.order[0].logged) > 2*events.RequestAge {
		delete(o.heard, o.order[0].digest)
		o.order = o.order[1:]
	}
	return nil
}

// requestOf returns the request that a message is, if it is one that its source signed.
func (b *Bus) requestOf(message stored) (event events.Event, is bool) {
	event, e, err := decode(message.data)
	return event, err == nil && b.kit.verify(event, e) == nil && checkEnvelope(&event, b.cluster, message.subject) == nil
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

// counts reports why a message is not to be opened: a request that is stale, or was heard before.
func (c *Consumer) counts(ctx context.Context, message stored) (refusal, err error) {
	tokens := strings.Split(message.subject, ".")
	if c.once == nil || len(tokens) != 6 || !events.Kind(tokens[3]+"."+tokens[4]).Asks() {
		return nil, nil
	}
	event, is := c.bus.requestOf(message)
	if !is {
		return nil, nil // it is refused as it is opened
	}
	if !c.once.whole {
		err := c.bus.repeatIn(ctx, c.log, "look at requests of before", func(ctx context.Context) error { return c.before(ctx, message) })
		if err != nil {
			return nil, err
		}
		c.once.whole = true
	}
	return c.once.take(event, message), nil
}

// before notes the requests that were logged shortly before the first one that is read: a reader before this one took them.
func (c *Consumer) before(ctx context.Context, first stored) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	c.once.heard, c.once.order = map[[sha256.Size]byte]uint64{}, nil
	var subjects []string
	for _, row := range events.Catalogue {
		if row.Kind.Asks() {
			subjects = append(subjects, events.EventSubject(c.bus.cluster, row.Kind, "*"))
		}
	}
	since, lane, name := first.logged.Add(-2*events.RequestAge), c.bus.Lane(events.EventStream.Name), rand.Text()
	consumer, err := c.bus.js.CreateConsumer(ctx, lane, jetstream.ConsumerConfig{
		Name: name, FilterSubjects: subjects, DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: followAge,
	})
	if err != nil {
		return err
	}
	defer func() { _ = c.bus.Drop(context.WithoutCancel(ctx), events.EventStream, name) }() // else the server forgets it in time
	for left := consumer.CachedInfo().NumPending; left > 0; {
		message, err := consumer.Next(jetstream.FetchContext(ctx))
		if err != nil {
			return err
		}
		metadata, err := message.Metadata()
		if err != nil || metadata.Sequence.Stream >= first.sequence {
			return err
		}
		held := stored{message.Subject(), message.Data(), metadata.Sequence.Stream, metadata.Timestamp}
		if event, is := c.bus.requestOf(held); is {
			_ = c.once.take(event, held) // one that did not count counts no more now
		}
		left = metadata.NumPending
	}
	return nil
}
