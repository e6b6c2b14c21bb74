package stream

import (
	"errors"
	"time"
)

// Consumer is a durable pull consumer with explicit acknowledgement, which delivers one message at a time: the next
// one only after the acknowledgement of the one before.
type Consumer struct {
	stream     *Stream
	filter     filter
	ackWait    time.Duration
	from       uint64 // behind the last message delivered
	looked     uint64 // nothing between from and there is for this consumer
	floor      uint64 // everything up to it is acknowledged
	delivered  uint64 // number of deliveries, since the last reset
	settled    uint64 // of them, those that need no acknowledgement any more
	pending    uint64 // sequence of the message to acknowledge; zero: none
	deliveries int    // of that message
	deadline   time.Time
	again      bool // its reader gave it back
}

// Delivery is one message of a consumer, by which it is acknowledged.
type Delivery struct {
	Message    *Message
	Deliveries int // 1 for the first
	number     uint64
}

// Consumer returns a durable consumer, a new one at the beginning of the stream where there is none of that name.
// Errors: ErrNoConnection, ErrNoAnswer.
func (s *Stream) Consumer(durable string, subjects []string, ackWait time.Duration, fate Fate) (*Consumer, error) {
	err := s.server.read(fate)
	if err != nil && fate != Unheard {
		return nil, err
	}
	if s.durables[durable] == nil {
		s.durables[durable] = &Consumer{stream: s, filter: newFilter(subjects...), ackWait: ackWait, from: 1}
	}
	return s.durables[durable], err
}

// Delivered returns the sequence up to which the consumer delivered, acknowledged or not.
func (c *Consumer) Delivered() uint64 { return c.from - 1 }

// Acknowledged returns the sequence up to which everything is acknowledged.
func (c *Consumer) Acknowledged() uint64 { return c.floor }

// Reset goes back behind what was acknowledged. Errors: ErrNoConnection, ErrNoAnswer.
func (c *Consumer) Reset(fate Fate) error { return c.ResetTo(0, fate) }

// ResetTo moves the consumer to sequence. Zero is as Reset. Errors: ErrNoConnection, ErrNoAnswer.
func (c *Consumer) ResetTo(sequence uint64, fate Fate) error {
	err := c.stream.server.read(fate)
	if err != nil && fate != Unheard {
		return err
	}
	if sequence == 0 {
		sequence = c.floor + 1
	}
	c.from, c.floor, c.looked = sequence, sequence-1, 0
	c.delivered, c.settled, c.pending, c.again = 0, 0, 0, false
	return err
}

// Pending returns how many messages are to be delivered or acknowledged. Errors: ErrNoConnection, ErrNoAnswer.
func (c *Consumer) Pending(fate Fate) (count uint64, err error) {
	if err := c.stream.server.read(fate); err != nil {
		return 0, err
	}
	if c.pending > 0 {
		count = 1
	}
	for next := c.stream.next(c.from, c.filter); next != nil; next = c.stream.next(next.Sequence+1, c.filter) {
		count++
	}
	return count, nil
}

// Next delivers the message that is due: the next one, or again the one that was given back or whose acknowledgement
// did not come in time. It is nil where none is due, or nobody answers.
func (c *Consumer) Next(now time.Time) *Delivery {
	if c.stream.server.state != Up {
		return nil
	}
	if c.pending > 0 {
		if !c.again && now.Before(c.deadline) {
			return nil
		}
		if stored := c.stream.at(c.pending); stored != nil {
			c.deliveries++
			return c.deliver(now, stored)
		}
		c.settle()
	}
	stored := c.stream.next(max(c.from, c.looked), c.filter)
	if stored == nil {
		c.looked = c.stream.end()
		return nil
	}
	c.from, c.deliveries = stored.Sequence+1, 1
	return c.deliver(now, stored)
}

func (c *Consumer) deliver(now time.Time, stored *Message) *Delivery {
	c.delivered++
	c.pending, c.deadline, c.again = stored.Sequence, now.Add(c.ackWait), false
	return &Delivery{Message: stored, Deliveries: c.deliveries, number: c.delivered}
}

// Due returns when Next has something to deliver again, if no acknowledgement comes; the zero time where it has not.
func (c *Consumer) Due() time.Time {
	if c.pending == 0 {
		return time.Time{}
	}
	return c.deadline
}

// Ack says that a message is done with; who delivered it does not matter. Nobody answers: it may be lost. It fails
// with ErrNoConnection.
func (c *Consumer) Ack(delivery *Delivery, fate Fate) error {
	if err := c.stream.server.reach(fate); err != nil {
		return unlessSent(err)
	}
	if delivery.Message.Sequence == c.pending {
		c.settle()
	}
	return nil
}

func (c *Consumer) settle() {
	c.pending, c.again = 0, false
	c.floor = c.from - 1
	c.settled = c.delivered
}

// Nak gives a message back, to be delivered again at once. It fails with ErrNoConnection.
func (c *Consumer) Nak(delivery *Delivery, fate Fate) error {
	if err := c.stream.server.reach(fate); err != nil {
		return unlessSent(err)
	}
	if delivery.number > c.settled && delivery.number <= c.delivered+1 && delivery.Message.Sequence == c.pending {
		c.again = true
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
