package stream_test

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/tests/simulation/stream"
)

// Filters as services have them: families of subjects.
var filters = map[string][]string{"all": {"fact.>"}, "some": {"fact.1", "fact.3"}, "family": {"fact.*"}}

// reader returns one of the durable consumers, made on first use.
func (p *pair) reader() (string, *stream.Consumer, jetstream.Consumer) {
	name := []string{"all", "some", "family"}[p.random.IntN(3)]
	modelled, err := p.model.Events.Consumer(name, filters[name], never, stream.Answered)
	if err != nil {
		p.Fatal(err)
	}
	real, err := p.js.CreateOrUpdateConsumer(p.ctx, facts.Name, jetstream.ConsumerConfig{
		Durable: name, FilterSubjects: filters[name], DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: never, MaxAckPending: 1,
	})
	if err != nil {
		p.Fatal(err)
	}
	if !p.moved[name] { // else the server still tells what was delivered before the move
		delivered := real.CachedInfo().Delivered.Stream
		p.same(name+" delivered", fmt.Sprint(modelled.Delivered()), fmt.Sprint(delivered))
	}
	return name, modelled, real
}

// next lets a reader ask for one message. The server keeps a request that must wait for an acknowledgement, so that one
// is not made.
func (p *pair) next() {
	name, modelled, real := p.reader()
	delivery := modelled.Next(time.Now())
	if waits := !modelled.Due().IsZero(); waits && delivery == nil {
		p.same(name+" waits for an acknowledgement of", "1", fmt.Sprint(real.CachedInfo().NumAckPending))
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
	return fmt.Sprintf("%d, delivery %d", delivery.Message.Sequence, delivery.Deliveries)
}

func (p *pair) realDelivered(message jetstream.Msg) string {
	if message == nil {
		return "nothing"
	}
	metadata, err := message.Metadata()
	if err != nil {
		p.Fatal(err)
	}
	return fmt.Sprintf("%d, delivery %d", metadata.Sequence.Stream, metadata.NumDelivered)
}

// settle acknowledges one of the messages delivered, or gives it back; it may be an old one.
func (p *pair) settle() {
	if len(p.held) == 0 {
		return
	}
	one := p.held[len(p.held)-1-min(len(p.held)-1, int(p.random.ExpFloat64()))]
	reader := p.readers[one.real.Reply()]
	// The server says nothing to an acknowledgement of what the consumer, moved back, has still to deliver.
	if one.model.Message.Sequence > reader.Delivered() {
		return
	}
	word, settle := "+ACK", reader.Ack
	if p.random.IntN(3) == 0 {
		word, settle = "-NAK", reader.Nak
	}
	if err := settle(one.model, stream.Answered); err != nil {
		p.Fatal(err)
	}
	if _, err := p.js.Conn().Request(one.real.Reply(), []byte(word), 5*time.Second); err != nil {
		p.Fatalf("%s %s: %v", word, one.real.Reply(), err)
	}
	p.story = append(p.story, fmt.Sprintf("%s of %d", word, one.model.Message.Sequence))
}

// reset moves a reader, and counts what it has still to read.
func (p *pair) reset() {
	name, modelled, real := p.reader()
	sequence := p.random.Uint64N(2) * p.random.Uint64N(40)
	if err := modelled.ResetTo(sequence, stream.Answered); err != nil {
		p.Fatal(err)
	}
	var err error
	if sequence == 0 {
		_, err = p.js.ResetConsumer(p.ctx, facts.Name, name)
	} else {
		_, err = p.js.ResetConsumerToSequence(p.ctx, facts.Name, name, sequence)
	}
	if err != nil {
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
