package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

const (
	// window is how many messages may be on their way to a reader or with it.
	window = 256
	// windowBytes is how many bytes of them a request asks for: a stream takes messages of 1 MiB, which a reader refuses once it has them.
	windowBytes = 8 << 20
	// A message comes again when it is not acknowledged for that long: it was lost on its way, or the reader takes longer.
	ackWait = 5 * time.Second
	// A request for messages that the server lost is sent again after two heartbeats missed.
	pullHeartbeat = time.Second
)

// Consumer reads the event stream in order. Each reader has one of its own, so that what it acknowledges tells the next
// reader how far it came, and takes nothing from anybody.
type Consumer struct {
	LogAge   time.Duration     // at which the stream drops what it has; zero: never
	LogEnd   uint64            // the last sequence of the stream when the consumer was opened
	Kept     map[uint64][]byte // by sequence: payloads that the reader has already, wherever it has them from
	bus      *Bus
	durable  string
	consumer jetstream.Consumer
	iterator jetstream.MessagesContext
	number   uint64 // of the last delivery that came: the next has the one behind it, unless one was lost
	last     uint64 // handed out
	progress progress
	log      context.Context // lasts as long as the log that is read
	flight   *flight
	once     *once // nil where nobody signs
}

// progress is how far the reader is with what was handed out.
type progress struct {
	sync.Mutex
	done, handed uint64    // messages, by sequence
	since        time.Time // the reader is at the message behind done
}

// Sealed is a message that was received.
type Sealed struct {
	message  jetstream.Msg
	metadata *jetstream.MsgMetadata
	consumer *Consumer
	share    *share
}

// Delivery is one message of a consumer: an event, or a refusal with nothing but Sequence and Logged in its event.
type Delivery struct {
	Event    events.Event
	Refusal  *Refusal
	More     bool // messages were behind it in the log as it was delivered
	Apart    bool // its data is not in the log, and was read
	message  jetstream.Msg
	consumer *Consumer
	share    *share
}

// Consume opens a durable consumer on the event stream behind a sequence.
func (b *Bus) Consume(ctx context.Context, durable string, after uint64, subjects []string) (*Consumer, error) {
	consumer, err := b.js.CreateOrUpdateConsumer(ctx, b.Lane(events.EventStream.Name), jetstream.ConsumerConfig{
		Durable: durable, FilterSubjects: subjects, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: window, InactiveThreshold: events.EventAge,
	})
	if err != nil {
		return nil, fmt.Errorf("consumer %s: %w", durable, err)
	}
	stream, err := b.js.Stream(ctx, b.Lane(events.EventStream.Name))
	if err != nil {
		return nil, fmt.Errorf("consumer %s: %w", durable, err)
	}
	log, _ := b.mark.life()
	var requests *once
	if b.Secured() {
		requests = newOnce(after)
	}
	return &Consumer{
		log: log, LogAge: stream.CachedInfo().Config.MaxAge, LogEnd: stream.CachedInfo().State.LastSeq,
		bus: b, durable: durable, consumer: consumer, last: after, progress: progress{done: after, handed: after},
		flight: newFlight(), once: requests,
	}, nil
}

// Reach returns how far the reader of a consumer came: up to which sequence it acknowledged everything, and up to which
// messages were delivered to it. Both are zero where there is no such consumer.
func (b *Bus) Reach(ctx context.Context, durable string) (acknowledged, delivered uint64, err error) {
	consumer, err := b.js.Consumer(ctx, b.Lane(events.EventStream.Name), durable)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return 0, 0, nil
	case err != nil:
		return 0, 0, fmt.Errorf("consumer %s: %w", durable, err)
	}
	return consumer.CachedInfo().AckFloor.Stream, consumer.CachedInfo().Delivered.Stream, nil
}

// Drop deletes a consumer of a stream, if there is one. Its reader hears so.
func (b *Bus) Drop(ctx context.Context, stream events.Stream, durable string) error {
	err := b.js.DeleteConsumer(ctx, b.Lane(stream.Name), durable)
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("consumer %s: %w", durable, err)
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

// Lag is what the log has for a reader beyond what it acknowledged.
type Lag struct {
	Messages uint64
	Age      time.Duration // of the oldest, by the server's clock; zero where there is none
	Taken    uint64        // the sequence of the last message that was handed to the reader
}

func (l Lag) String() string {
	return fmt.Sprintf("behind by %d events, the oldest %v old", l.Messages, l.Age.Round(time.Second))
}

// Lag looks once at how far behind the reader is.
func (c *Consumer) Lag(ctx context.Context) (Lag, error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	info, err := c.consumer.Info(ctx)
	if err != nil {
		return Lag{}, fmt.Errorf("consumer %s: %w", c.durable, err)
	}
	lag := Lag{Messages: info.NumPending + uint64(info.NumAckPending)}
	_, lag.Taken = c.progress.reached()
	if lag.Messages > 0 {
		var oldest time.Time
		if oldest, err = c.oldest(ctx, max(info.AckFloor.Stream+1, info.Config.OptStartSeq)); !oldest.IsZero() {
			lag.Age = max(0, info.TimeStamp.Sub(oldest))
		}
	}
	return lag, err
}

// oldest tells when the first message from a sequence on that the consumer delivers was logged; zero: there is none.
func (c *Consumer) oldest(ctx context.Context, from uint64) (oldest time.Time, err error) {
	stream, err := c.bus.leader(ctx, events.EventStream)
	if err != nil {
		return oldest, err
	}
	for _, subject := range c.consumer.CachedInfo().Config.FilterSubjects {
		message, err := stream.GetMsg(ctx, from, jetstream.WithGetMsgSubject(subject))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
		case err != nil:
			return oldest, err
		case oldest.IsZero() || message.Time.Before(oldest):
			oldest = message.Time
		}
	}
	return oldest, nil
}

// Next returns the next message, which is to be opened or refused before one behind it can be. It waits through reconnections and
// restarts of the server; an error is ctx's, ErrFenced where the next reader dropped the consumer, or ErrLogReplaced.
func (c *Consumer) Next(ctx context.Context) (Sealed, error) {
	for {
		message, err := c.receive(ctx)
		if err == nil {
			err = c.bus.waitForLook(ctx)
		}
		if err == nil && c.log.Err() != nil {
			err = ErrLogReplaced
		}
		if err != nil {
			return Sealed{}, fmt.Errorf("consumer %s: %w", c.durable, err)
		}
		metadata, err := message.Metadata()
		if err != nil {
			return Sealed{}, fmt.Errorf("consumer %s: %w", c.durable, err)
		}
		if c.number++; metadata.Sequence.Consumer != c.number {
			if err := c.goBack(ctx); err != nil {
				return Sealed{}, fmt.Errorf("consumer %s: %w", c.durable, err)
			}
			continue
		}
		if sequence := metadata.Sequence.Stream; sequence > c.last {
			c.last = sequence
			c.progress.hand(sequence)
			c.bus.mark.meet(c.log, sequence, metadata.Timestamp, message.Data())
			return Sealed{message, metadata, c, c.flight.next()}, nil
		}
		if done, _ := c.progress.reached(); metadata.Sequence.Stream <= done { // its acknowledgement was lost
			_ = c.mayAnswer(message.Ack)
		}
	}
}

// receive returns what comes next, in whatever order.
func (c *Consumer) receive(ctx context.Context) (message jetstream.Msg, err error) {
	for {
		if c.iterator == nil {
			limits := jetstream.PullMaxMessagesWithBytesLimit(window, windowBytes)
			c.iterator, err = c.consumer.Messages(limits, jetstream.PullHeartbeat(pullHeartbeat))
			if err != nil {
				return nil, err
			}
		}
		message, err = c.iterator.Next(jetstream.NextContext(ctx))
		if errors.Is(err, jetstream.ErrNoHeartbeat) { // the iterator asks again by itself
			err = c.gone(ctx)
		}
		switch {
		case message != nil:
			return message, nil
		case errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, jetstream.ErrConsumerNotFound):
			return nil, c.bus.replacedOr(ctx, c.log, ErrFenced)
		case err != nil:
			return nil, err
		}
	}
}

// gone asks whether the consumer is gone, of which a reader hears nothing that was away then: ErrFenced, or ErrLogReplaced. It tells
// nothing else.
func (c *Consumer) gone(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	_, err := c.consumer.Info(ctx)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return c.bus.replacedOr(ctx, c.log, ErrFenced)
	}
	return nil
}

// goBack has everything come again that the reader is not done with: a message was lost on its way, and those behind it came.
// It does not go beyond that, for what counts as acknowledged tells the next reader how far this one came. Whether the consumer
// is gone is asked first: the server leaves a reset of one that is gone unanswered, as it does one that is lost.
func (c *Consumer) goBack(ctx context.Context) error {
	c.iterator.Stop()
	c.iterator, c.number = nil, 0
	return c.bus.repeatIn(ctx, c.log, "going back of a consumer", func(ctx context.Context) error {
		if err := c.gone(ctx); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, publishTimeout)
		defer cancel()
		done, _ := c.progress.reached()
		_, err := c.bus.js.ResetConsumerToSequence(ctx, c.bus.Lane(events.EventStream.Name), c.durable, done+1)
		return err
	})
}

// Outstanding returns for how long the reader has been at one message; zero where it waits for the next.
func (c *Consumer) Outstanding() time.Duration {
	c.progress.Lock()
	defer c.progress.Unlock()
	if c.progress.handed == c.progress.done {
		return 0
	}
	return time.Since(c.progress.since)
}

// Stop ends reading. The consumer stays on the server.
func (c *Consumer) Stop() {
	if c.iterator != nil {
		c.iterator.Stop()
	}
}

// Done says that the reader is done with a message and all before it: who goes back does not have it come again.
func (d Delivery) Done() {
	d.consumer.progress.reach(d.Event.Sequence)
	d.share.giveBack(d.share.held)
}

// Ack tells the server that a message is done with; a refused one never comes again. It fails with ErrLogReplaced where the message is of a
// log that is gone.
func (d Delivery) Ack() error {
	if d.Refusal != nil {
		return d.consumer.mayAnswer(func() error { return d.message.TermWithReason(d.Refusal.Reason) })
	}
	return d.consumer.mayAnswer(d.message.Ack)
}

// errUnlooked says that the connection came back, and that it is not known yet whether the log is the one that it was.
var errUnlooked = errors.New("it is not known yet which log there is")

// mayAnswer tells the server something of a message, if that is still there: an older log has another in its place, for which the next
// reader would take the answer.
func (c *Consumer) mayAnswer(answer func() error) error {
	switch {
	case c.log.Err() != nil:
		return ErrLogReplaced
	case c.bus.mark.unlooked(c.bus.conn.Stats().Reconnects) != nil:
		return errUnlooked
	}
	return answer()
}

func (p *progress) hand(sequence uint64) {
	p.Lock()
	defer p.Unlock()
	if p.handed == p.done {
		p.since = time.Now()
	}
	p.handed = sequence
}

func (p *progress) reach(sequence uint64) {
	p.Lock()
	defer p.Unlock()
	p.done, p.since = sequence, time.Now()
}

func (p *progress) reached() (done, handed uint64) {
	p.Lock()
	defer p.Unlock()
	return p.done, p.handed
}

// Refuse makes the record of a message that its reader cannot bear.
func (d Delivery) Refuse(reason, format string, args ...any) *Refusal {
	return stored{subject: d.message.Subject(), data: d.message.Data()}.quarantine(refuse(reason, format, args...))
}

// Open decodes the message and verifies who said it, which several may do at a time. If arrived is not nil, it is called as soon as all
// bytes of the message are here, what it has apart included, and before these are unpacked.
func (s Sealed) Open(ctx context.Context, arrived func()) (Delivery, error) {
	held := s.stored()
	as := reading{
		kept: s.consumer.Kept[held.sequence], patience: unreadableAfter, share: s.share, counts: s.counts, arrived: arrived,
	}
	event, apart, refusal, err := s.consumer.bus.open(ctx, held, as)
	return Delivery{event, refusal, s.metadata.NumPending > 0, apart, s.message, s.consumer, s.share}, err
}

// Sequence is where the message is in the log.
func (s Sealed) Sequence() uint64 { return s.metadata.Sequence.Stream }

// Refuse makes the record of a message that is not opened. Its event has all but data, where that can be believed.
func (s Sealed) Refuse(ctx context.Context, reason, format string, args ...any) Delivery {
	held := s.stored()
	event, e, err := decode(held.data)
	if err != nil || s.consumer.bus.kit.verify(event, e, held.logged) != nil {
		event = events.Event{}
	} else if checkEnvelope(&event, s.consumer.bus.cluster, held.subject) == nil {
		_ = s.counts(ctx, event) // heard it was
	}
	_ = s.share.take(ctx, events.Bound{}) // nothing; those behind have their turn
	event.Data, event.Sequence, event.Logged = nil, held.sequence, held.logged
	refusal := held.quarantine(refuse(reason, format, args...))
	return Delivery{event, refusal, s.metadata.NumPending > 0, false, s.message, s.consumer, s.share}
}

func (s Sealed) stored() stored {
	return stored{s.message.Subject(), s.message.Data(), s.metadata.Sequence.Stream, s.metadata.Timestamp}
}
