package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/shared/bus"
)

// floor is what the broker alone takes for what a change cannot do without.
type floor struct {
	hop    time.Duration // published, acknowledged, delivered to another durable consumer
	answer time.Duration // each of as many answers as there are nodes, into one consumer
}

const (
	floorStream  = "FLOOR"
	leastSamples = 20 // chains, and rounds of answers: one of 1,000 took from 22 to 55 ms
	hopsInChain  = 12 // as in a change
	hopBytes     = 1 << 10
	leastAnswers = 300  // in a sample: of few nodes it has more rounds
	window       = 1000 // of messages not acknowledged
)

// of returns the time that a change takes at least: its hops, one after the other, and its rounds of answers.
func (f floor) of(change change, nodes int) time.Duration {
	return time.Duration(change.hops)*f.hop + time.Duration(change.rounds*nodes)*f.answer
}

// meter measures the server that the cluster uses, with its log beside. It does so after each trial, because a machine's
// speed changes: measured once at the end of four runs of the same programs, the broker alone took 14.3 to 18.1 ms for a
// kill among 1,000; in three later runs that measured it so, 14.4 to 14.7.
type meter struct {
	buses         []*bus.Bus
	nodes         int
	each          int // chains and rounds, of a sample
	read          map[string]jetstream.MessagesContext
	hops, answers []time.Duration
}

// The subjects are floor.hops and floor.answers, each read by a durable consumer of its name.
const hopping, answering = "hops", "answers"

func newMeter(ctx context.Context, buses []*bus.Bus, nodes, trials int) (*meter, error) {
	m := &meter{buses: buses, nodes: nodes, each: (leastSamples + trials - 1) / trials, read: map[string]jetstream.MessagesContext{}}
	stream, err := buses[0].JetStream().CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: floorStream, Subjects: []string{floorSubject(">")}, Storage: jetstream.FileStorage, Replicas: buses[0].Replicas(),
	})
	if err != nil {
		return nil, err
	}
	for _, subject := range []string{hopping, answering} {
		consumer, err := stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
			Durable: subject, FilterSubject: floorSubject(subject), AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: window,
		})
		if err != nil {
			return nil, err
		}
		if m.read[subject], err = consumer.Messages(jetstream.PullMaxMessages(window)); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func floorSubject(of string) string { return "floor." + of }

// close stops reading. The stream goes with its server.
func (m *meter) close() {
	for _, messages := range m.read {
		messages.Stop()
	}
}

// floor returns the medians of what was measured so far.
func (m *meter) floor() floor {
	return floor{hop: quantile(m.hops, 0.5), answer: quantile(m.answers, 0.5)}
}

// measure takes one sample. Before each chain it is as quiet as before a change, for whoever sleeps has to be woken.
func (m *meter) measure(ctx context.Context) error {
	for range m.each {
		time.Sleep(settleTime)
		if err := m.chain(ctx); err != nil {
			return err
		}
	}
	for range max(m.each, leastAnswers/m.nodes) {
		if err := m.round(ctx); err != nil {
			return fmt.Errorf("answers of %d: %w", m.nodes, err)
		}
	}
	return nil
}

// chain times messages of which each is published when the one before was delivered.
func (m *meter) chain(ctx context.Context) error {
	began := time.Now()
	for range hopsInChain {
		if _, err := m.buses[0].JetStream().Publish(ctx, floorSubject(hopping), make([]byte, hopBytes)); err != nil {
			return err
		}
		if err := m.next(ctx, hopping); err != nil {
			return err
		}
	}
	m.hops = append(m.hops, time.Since(began)/hopsInChain)
	return nil
}

// round times answers that all nodes give at once.
func (m *meter) round(ctx context.Context) error {
	began := time.Now()
	for i := range m.nodes {
		js := m.buses[i%len(m.buses)].JetStream()
		if _, err := js.PublishAsync(floorSubject(answering), make([]byte, hopBytes)); err != nil {
			return err
		}
	}
	for range m.nodes {
		if err := m.next(ctx, answering); err != nil {
			return err
		}
	}
	m.answers = append(m.answers, time.Since(began)/time.Duration(m.nodes))
	return nil
}

// next reads a message and acknowledges it.
func (m *meter) next(ctx context.Context, subject string) error {
	message, err := m.read[subject].Next(jetstream.NextContext(ctx))
	if err != nil {
		return err
	}
	return message.Ack()
}

// quantile returns that of times, the nearest one; 0 of none.
func quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
