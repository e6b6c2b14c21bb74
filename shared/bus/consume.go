package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

const (
	// A message comes again when it is not acknowledged for that long, because the acknowledgement was lost or the reader
	// takes longer; who remembers what it handled acknowledges it again. A reader that starts anew does not wait for it:
	// Consume resets the consumer to what was acknowledged.
	ackWait = 5 * time.Second
	// A request for messages that the server lost is sent again after two heartbeats missed.
	pullHeartbeat = time.Second
)

// Consumer reads the event stream in order, one message at a time.
type Consumer struct {
	LogAge       time.Duration // at which the stream drops what it has; zero: never
	LogEnd       uint64        // the last sequence of the stream when the consumer was opened
	Acknowledged uint64        // everything up to it was, by earlier readers
	bus          *Bus
	durable      string
	consumer     jetstream.Consumer
	started      sync.Once
	iterator     jetstream.MessagesContext
	seen         uint64 // delivered to an earlier reader, acknowledged or not
	err          error
	came         atomic.Pointer[time.Time] // when the message came that is not done with; nil: none
}

// Delivery is one message of a consumer: an event, or a refusal with nothing but Sequence and Logged in its event.
type Delivery struct {
	Event       events.Event
	Redelivered bool
	Refusal     *Refusal
	message     jetstream.Msg
	consumer    *Consumer
}

// Consume opens a durable consumer on the event stream behind the last message acknowledged.
func (b *Bus) Consume(ctx context.Context, durable string, subjects []string) (*Consumer, error) {
	consumer, err := b.js.CreateOrUpdateConsumer(ctx, events.EventStream.Name, jetstream.ConsumerConfig{
		Durable: durable, FilterSubjects: subjects, DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("consumer %s: %w", durable, err)
	}
	stream, err := b.js.Stream(ctx, events.EventStream.Name)
	if err != nil {
		return nil, fmt.Errorf("consumer %s: %w", durable, err)
	}
	c := &Consumer{
		LogAge: stream.CachedInfo().Config.MaxAge, LogEnd: stream.CachedInfo().State.LastSeq,
		Acknowledged: consumer.CachedInfo().AckFloor.Stream, seen: consumer.CachedInfo().Delivered.Stream,
		bus: b, durable: durable, consumer: consumer,
	}
	if _, err := b.js.ResetConsumer(ctx, events.EventStream.Name, durable); err != nil {
		return nil, fmt.Errorf("consumer %s: reset: %w", durable, err)
	}
	return c, nil
}

// StartAfter moves a consumer that has not been read yet to the message behind sequence.
func (c *Consumer) StartAfter(ctx context.Context, sequence uint64) error {
	_, err := c.bus.js.ResetConsumerToSequence(ctx, events.EventStream.Name, c.durable, sequence+1)
	if err != nil {
		return fmt.Errorf("consumer %s: start after %d: %w", c.durable, sequence, err)
	}
	return nil
}

// Pending returns how many messages the consumer has still to deliver.
func (c *Consumer) Pending(ctx context.Context) (uint64, error) {
	info, err := c.consumer.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("consumer %s: %w", c.durable, err)
	}
	return info.NumPending + uint64(info.NumAckPending), nil
}

// Next returns the next message. It waits through reconnections and restarts of the server; an error is ctx's, or
// says that the consumer is gone.
func (c *Consumer) Next(ctx context.Context) (Delivery, error) {
	c.started.Do(func() {
		c.iterator, c.err = c.consumer.Messages(jetstream.PullMaxMessages(2), jetstream.PullHeartbeat(pullHeartbeat))
	})
	if c.err != nil {
		return Delivery{}, fmt.Errorf("consumer %s: %w", c.durable, c.err)
	}
	for {
		message, err := c.iterator.Next(jetstream.NextContext(ctx))
		if errors.Is(err, jetstream.ErrNoHeartbeat) {
			continue // the iterator asks again by itself
		}
		if err != nil {
			return Delivery{}, fmt.Errorf("consumer %s: %w", c.durable, err)
		}
		now := time.Now()
		c.came.Store(&now)
		return c.open(ctx, message)
	}
}

// Outstanding returns for how long a message has been here that is not done with; zero where there is none.
func (c *Consumer) Outstanding() time.Duration {
	if came := c.came.Load(); came != nil {
		return time.Since(*came)
	}
	return 0
}

func (c *Consumer) open(ctx context.Context, message jetstream.Msg) (Delivery, error) {
	metadata, err := message.Metadata()
	if err != nil {
		return Delivery{}, fmt.Errorf("consumer %s: %w", c.durable, err)
	}
	held := stored{message.Subject(), message.Data(), metadata.Sequence.Stream, metadata.Timestamp}
	event, refusal, err := c.bus.open(ctx, held)
	return Delivery{
		Event: event, Refusal: refusal, message: message, consumer: c,
		Redelivered: metadata.NumDelivered > 1 || held.sequence <= c.seen,
	}, err
}

// Stop ends reading. The consumer stays on the server.
func (c *Consumer) Stop() {
	if c.iterator != nil {
		c.iterator.Stop()
	}
}

// Ack says that a message is done with; a refused one never comes again.
func (d Delivery) Ack() error {
	d.consumer.came.Store(nil)
	if d.Refusal != nil {
		return d.message.TermWithReason(d.Refusal.Reason)
	}
	return d.message.Ack()
}

// Nak asks for the message again at once.
func (d Delivery) Nak() error {
	d.consumer.came.Store(nil)
	return d.message.Nak()
}

// Refuse makes the record of a message that its reader cannot bear.
func (d Delivery) Refuse(reason, format string, args ...any) *Refusal {
	return stored{subject: d.message.Subject(), data: d.message.Data()}.quarantine(refuse(reason, format, args...))
}

// open decodes a stored message, fetches data that travelled apart, and refuses what is no event of this cluster.
func (b *Bus) open(ctx context.Context, message stored) (events.Event, *Refusal, error) {
	event, dataref, err := decode(message.data)
	if err == nil && dataref != "" {
		event.Data, err = b.fetch(ctx, streamOf(event.Kind).Payloads, dataref)
	}
	if err == nil {
		err = check(&event, b.cluster, message.subject)
	}
	if err == nil {
		event.Sequence, event.Logged = message.sequence, message.logged
		return event, nil, nil
	}
	event = events.Event{Sequence: message.sequence, Logged: message.logged}
	if refusal := message.quarantine(err); refusal != nil {
		return event, refusal, nil
	}
	return event, nil, err
}

// unreadableAfter is how long a payload may be unreadable over one connection before its event is refused: a replica
// catches up within seconds, and what is behind the event waits.
var unreadableAfter = time.Minute

// fetch reads a payload. It repeats while the object store cannot give it, until that has lasted too long or ctx ends.
func (b *Bus) fetch(ctx context.Context, bucket, dataref string) (data []byte, err error) {
	began, connection := time.Now(), b.connection.Load()
	err = b.Repeat(ctx, "read of a payload", func(ctx context.Context) error {
		if data, err = b.Get(ctx, bucket, dataref); err == nil || errors.Is(err, nats.ErrConnectionClosed) {
			return err
		}
		if now := b.connection.Load(); now != connection || !b.conn.IsConnected() {
			began, connection = time.Now(), now
		}
		if time.Since(began) >= unreadableAfter {
			return refuse(Unreadable, "dataref: not read within %v: %v", unreadableAfter, err)
		}
		return errors.New(err.Error()) // whatever the server says, it may be over soon
	})
	return data, err
}
