package stream

import (
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Consumer is a durable pull consumer with explicit acknowledgement, which delivers so many messages before the first of
// them is acknowledged.
type Consumer struct {
	stream  *Stream
	filter  filter
	config  ConsumerConfig
	dropped bool
	from    uint64    // behind the last message delivered
	looked  uint64    // nothing between from and there is for this consumer
	floor   uint64    // everything up to it is acknowledged
	number  uint64    // of deliveries, since the last reset
	waiting []waiting // for their acknowledgements, by sequence
}

// ConsumerConfig is what a consumer is made with.
type ConsumerConfig struct {
	After    uint64 // it starts behind this sequence
	Subjects []string
	AckWait  time.Duration
	Window   int // messages delivered and not acknowledged, at most
}

// waiting is a message that was delivered and not acknowledged.
type waiting struct {
	message    *Message
	deliveries int
	deadline   time.Time
}

// Delivery is one message of a consumer, by which it is acknowledged.
type Delivery struct {
	Message    *Message
	Deliveries int    // 1 for the first
	Number     uint64 // one more than that of the delivery before
	More       bool   // messages are behind it that were not delivered yet
}

// Consumer returns a durable consumer, a new one where there is none of that name. Errors: ErrNoConnection, ErrNoAnswer.
func (s *Stream) Consumer(durable string, config ConsumerConfig, fate Fate) (*Consumer, error) {
	err := s.server.read(fate)
	if err != nil && fate != Unheard {
		return nil, err
	}
	if s.durables[durable] == nil {
		s.durables[durable] = &Consumer{
			stream: s, filter: newFilter(config.Subjects...), config: config, from: config.After + 1, floor: config.After,
		}
	}
	return s.durables[durable], err
}

// Reach returns up to which sequence everything was acknowledged on a consumer, and up to which it delivered. Errors:
// jetstream.ErrConsumerNotFound, ErrNoConnection, ErrNoAnswer.
func (s *Stream) Reach(durable string, fate Fate) (acknowledged, delivered uint64, err error) {
	if err := s.server.read(fate); err != nil {
		return 0, 0, err
	}
	c := s.durables[durable]
	if c == nil {
		return 0, 0, jetstream.ErrConsumerNotFound
	}
	return c.floor, c.from - 1, nil
}

// Drop deletes a consumer, if there is one. Errors: ErrNoConnection, ErrNoAnswer.
func (s *Stream) Drop(durable string, fate Fate) error {
	err := s.server.read(fate)
	if err != nil && fate != Unheard {
		return err
	}
	if c := s.durables[durable]; c != nil {
		c.dropped = true
		delete(s.durables, durable)
	}
	return err
}

// Delivered returns the sequence up to which the consumer delivered, acknowledged or not.
func (c *Consumer) Delivered() uint64 { return c.from - 1 }

// Dropped reports whether the consumer was deleted.
func (c *Consumer) Dropped() bool { return c.dropped }

// ResetTo moves the consumer to sequence. Nobody answers where it was deleted. Errors: ErrNoConnection, ErrNoAnswer.
func (c *Consumer) ResetTo(sequence uint64, fate Fate) error {
	err := c.stream.server.read(fate)
	if err != nil && fate != Unheard {
		return err
	}
	if c.dropped {
		return ErrNoAnswer
	}
	c.from, c.floor, c.looked, c.number, c.waiting = sequence, sequence-1, 0, 0, nil
	return err
}

// Pending returns how many messages are to be delivered or acknowledged. Errors: ErrNoConnection, ErrNoAnswer.
func (c *Consumer) Pending(fate Fate) (count uint64, err error) {
	if err := c.stream.server.read(fate); err != nil {
		return 0, err
	}
	count = uint64(len(c.waiting))
	for next := c.stream.next(c.from, c.filter); next != nil; next = c.stream.next(next.Sequence+1, c.filter) {
		count++
	}
	return count, nil
}

// Next delivers the message that is due: again one whose acknowledgement did not come in time, or the next one. It is nil
// where none is due, or nobody answers.
func (c *Consumer) Next(now time.Time) *Delivery {
	if c.dropped || c.stream.server.state != Up {
		return nil
	}
	c.waiting = slices.DeleteFunc(c.waiting, func(w waiting) bool { return c.stream.at(w.message.Sequence) == nil })
	for i := range c.waiting {
		if again := &c.waiting[i]; !now.Before(again.deadline) {
			return c.deliver(now, again)
		}
	}
	if len(c.waiting) >= c.config.Window {
		return nil
	}
	stored := c.stream.next(max(c.from, c.looked), c.filter)
	if stored == nil {
		c.looked = c.stream.end()
		return nil
	}
	c.from = stored.Sequence + 1
	c.waiting = append(c.waiting, waiting{message: stored})
	return c.deliver(now, &c.waiting[len(c.waiting)-1])
}

func (c *Consumer) deliver(now time.Time, w *waiting) *Delivery {
	c.number++
	w.deliveries++
	w.deadline = now.Add(c.config.AckWait)
	more := c.stream.next(max(c.from, c.looked), c.filter) != nil
	return &Delivery{Message: w.message, Deliveries: w.deliveries, Number: c.number, More: more}
}

// Ack says that a message is done with; who delivered it does not matter. Nobody answers: it may be lost. It fails
// with ErrNoConnection.
func (c *Consumer) Ack(delivery *Delivery, fate Fate) error {
	if err := c.stream.server.reach(fate); err != nil {
		return unlessSent(err)
	}
	first := len(c.waiting) > 0 && c.waiting[0].message.Sequence == delivery.Message.Sequence
	c.waiting = slices.DeleteFunc(c.waiting, func(w waiting) bool { return w.message.Sequence == delivery.Message.Sequence })
	switch {
	case len(c.waiting) == 0:
		c.floor = c.from - 1
	case first:
		c.floor = c.waiting[0].message.Sequence - 1
	}
	return nil
}

// unlessSent forgives what a sender that waits for no answer does not notice.
func unlessSent(err error) error {
	if errors.Is(err, ErrNoConnection) {
		return err
	}
	return nil
}
