package stream_test

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/tests/simulation/stream"
)

// Filters as services have them: families of subjects.
var filters = map[string][]string{"all": {"fact.>"}, "some": {"fact.1", "fact.3"}, "family": {"fact.*"}}

const (
	window  = 3                      // A reader has so few messages at a time that it comes to that bound.
	silence = 100 * time.Millisecond // without an answer: there will be none
)

// reader returns one of the durable consumers, made on first use.
func (p *pair) reader() (string, *stream.Consumer, jetstream.Consumer) {
	name := []string{"all", "some", "family"}[p.random.IntN(3)]
	after := uint64(len(name)) // each starts elsewhere
	modelled, err := p.model.Events.Consumer(name,
		stream.ConsumerConfig{After: after, Subjects: filters[name], AckWait: never, Window: window}, stream.Answered)
	if err != nil {
		p.Fatal(err)
	}
	real, err := p.js.CreateOrUpdateConsumer(p.ctx, facts.Name, jetstream.ConsumerConfig{
		Durable: name, FilterSubjects: filters[name], DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: never, MaxAckPending: window,
	})
	if err != nil {
		p.Fatal(err)
	}
	return name, modelled, real
}

// reach compares how far a reader came, and sometimes drops it. A reset is then left unanswered.
func (p *pair) reach() {
	name, dropped, real := p.reader()
	acknowledged, delivered, err := p.model.Events.Reach(name, stream.Answered)
	if err != nil {
		p.Fatal(err)
	}
	info := real.CachedInfo()
	p.same(name+" acknowledged", fmt.Sprint(acknowledged), fmt.Sprint(info.AckFloor.Stream))
	if !p.moved[name] { // else the server still tells what was delivered before the move
		p.same(name+" delivered", fmt.Sprint(delivered), fmt.Sprint(info.Delivered.Stream))
	}
	if p.random.IntN(4) > 0 {
		return
	}
	if err := p.model.Events.Drop(name, stream.Answered); err != nil {
		p.Fatal(err)
	}
	if err := p.js.DeleteConsumer(p.ctx, facts.Name, name); err != nil {
		p.Fatal(err)
	}
	p.moved[name] = false
	p.story = append(p.story, name+" is dropped")
	ctx, cancel := context.WithTimeout(p.ctx, silence)
	defer cancel()
	_, err = p.js.ResetConsumerToSequence(ctx, facts.Name, name, 9)
	p.same("reset of "+name, answer(0, false, dropped.ResetTo(9, stream.Answered)), answer(0, false, err))
}

// next lets a reader ask for one message. The server keeps a request that must wait for an acknowledgement, so that one
// is not made.
func (p *pair) next() {
	name, modelled, real := p.reader()
	delivery := modelled.Next(time.Now())
	if pending := real.CachedInfo().NumAckPending; pending == window {
		p.same("next of "+name, p.delivered(delivery), "nothing")
		return
	}
	batch, err := real.FetchNoWait(1)
	if err != nil {
		p.Fatal(err)
	}
	message := <-batch.Messages()
	p.same("next of "+name, p.delivered(delivery), p.realDelivered(message))
	if delivery != nil {
		p.held = append(p.held, holding{delivery, message})
		p.readers[message.Reply()] = modelled
	}
}

func (p *pair) delivered(delivery *stream.Delivery) string {
	if delivery == nil {
		return "nothing"
	}
	return fmt.Sprintf("%d, delivery %d, number %d, more %v",
		delivery.Message.Sequence, delivery.Deliveries, delivery.Number, delivery.More)
}

func (p *pair) realDelivered(message jetstream.Msg) string {
	if message == nil {
		return "nothing"
	}
	metadata, err := message.Metadata()
	if err != nil {
		p.Fatal(err)
	}
	return fmt.Sprintf("%d, delivery %d, number %d, more %v",
		metadata.Sequence.Stream, metadata.NumDelivered, metadata.Sequence.Consumer, metadata.NumPending > 0)
}

// settle acknowledges one of the messages delivered; it may be an old one.
func (p *pair) settle() {
	if len(p.held) == 0 {
		return
	}
	one := p.held[len(p.held)-1-min(len(p.held)-1, int(p.random.ExpFloat64()))]
	reader := p.readers[one.real.Reply()]
	// The server says nothing to an acknowledgement of what the consumer, moved back, has still to deliver, nor for one that
	// is gone.
	if reader.Dropped() || one.model.Message.Sequence > reader.Delivered() {
		return
	}
	if err := reader.Ack(one.model, stream.Answered); err != nil {
		p.Fatal(err)
	}
	if _, err := p.js.Conn().Request(one.real.Reply(), []byte("+ACK"), 5*time.Second); err != nil {
		p.Fatalf("+ACK %s: %v", one.real.Reply(), err)
	}
	p.story = append(p.story, fmt.Sprintf("+ACK of %d", one.model.Message.Sequence))
}

// reset moves a reader, and counts what it has still to read.
func (p *pair) reset() {
	name, modelled, real := p.reader()
	sequence := uint64(len(name)) + 1 + p.random.Uint64N(40)
	if err := modelled.ResetTo(sequence, stream.Answered); err != nil {
		p.Fatal(err)
	}
	if _, err := p.js.ResetConsumerToSequence(p.ctx, facts.Name, name, sequence); err != nil {
		p.Fatal(err)
	}
	info, err := real.Info(p.ctx)
	if err != nil {
		p.Fatal(err)
	}
	p.moved[name] = true
	pending, err := modelled.Pending(stream.Answered)
	if err != nil {
		p.Fatal(err)
	}
	p.same(fmt.Sprintf("%s moved to %d has pending", name, sequence),
		fmt.Sprint(pending), fmt.Sprint(info.NumPending+uint64(info.NumAckPending)))
}

// follow reads the whole stream in order, with an ordered consumer from somewhere.
func (p *pair) follow() {
	for name, subjects := range filters {
		after := p.random.Uint64N(20)
		modelled := p.model.Events.Follow(subjects, after)
		real, err := p.js.OrderedConsumer(p.ctx, facts.Name, jetstream.OrderedConsumerConfig{
			FilterSubjects: subjects, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1,
		})
		if err != nil {
			p.Fatal(err)
		}
		batch, err := real.FetchNoWait(1000)
		if err != nil {
			p.Fatal(err)
		}
		for message := range batch.Messages() {
			metadata, err := message.Metadata()
			if err != nil {
				p.Fatal(err)
			}
			followed := modelled.Next()
			if followed == nil {
				p.Fatalf("%s after %d: the server goes on with %d", name, after, metadata.Sequence.Stream)
			}
			p.same("follow "+name, fmt.Sprint(followed.Sequence), fmt.Sprint(metadata.Sequence.Stream))
		}
		if followed := modelled.Next(); followed != nil {
			p.Fatalf("%s after %d: the model goes on with %d", name, after, followed.Sequence)
		}
	}
}
