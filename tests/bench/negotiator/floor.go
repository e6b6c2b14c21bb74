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
	floorStream = "FLOOR"
	chains      = 20
	hopsInChain = 12 // as in a change
	hopBytes    = 1 << 10
	leastRounds = 20   // of answers: one of 1,000 took from 22 to 55 ms; of three the median varied by two from run to run
	window      = 1000 // of messages not acknowledged
)

// of returns the time that a change takes at least: its hops, one after the other, and its rounds of answers.
func (f floor) of(change change, nodes int) time.Duration {
	return time.Duration(change.hops)*f.hop + time.Duration(change.rounds*nodes)*f.answer
}

// measureFloor measures the server that the cluster uses, with its log beside.
func measureFloor(ctx context.Context, buses []*bus.Bus, nodes int) (floor, error) {
	js := buses[0].JetStream()
	stream, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: floorStream, Subjects: []string{"floor.>"}, Storage: jetstream.FileStorage, Replicas: buses[0].Replicas(),
	})
	if err != nil {
		return floor{}, err
	}
	defer func() { _ = js.DeleteStream(ctx, floorStream) }()
	var measured floor
	if measured.hop, err = chain(ctx, js, stream); err != nil {
		return floor{}, err
	}
	measured.answer, err = answers(ctx, buses, stream, nodes)
	return measured, err
}

func reader(ctx context.Context, stream jetstream.Stream, subject string) (jetstream.MessagesContext, error) {
	consumer, err := stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: subject, FilterSubject: floorSubject(subject), AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: window,
	})
	if err != nil {
		return nil, err
	}
	return consumer.Messages(jetstream.PullMaxMessages(window))
}

func floorSubject(of string) string { return "floor." + of }

// chain returns the time of a hop, in the median of chains: each message is published when the one before was delivered.
// Before each chain it is as quiet as before a change, for whoever sleeps has to be woken.
func chain(ctx context.Context, js jetstream.JetStream, stream jetstream.Stream) (time.Duration, error) {
	messages, err := reader(ctx, stream, "hops")
	if err != nil {
		return 0, err
	}
	defer messages.Stop()
	var hops []time.Duration
	for range chains {
		time.Sleep(settleTime)
		began := time.Now()
		for range hopsInChain {
			if _, err := js.Publish(ctx, floorSubject("hops"), make([]byte, hopBytes)); err != nil {
				return 0, err
			}
			message, err := messages.Next(jetstream.NextContext(ctx))
			if err != nil {
				return 0, err
			}
			if err := message.Ack(); err != nil {
				return 0, err
			}
		}
		hops = append(hops, time.Since(began)/hopsInChain)
	}
	return quantile(hops, 0.5), nil
}

// answers returns the median time that one of many answers takes which all nodes give at once.
func answers(ctx context.Context, buses []*bus.Bus, stream jetstream.Stream, nodes int) (time.Duration, error) {
	messages, err := reader(ctx, stream, "answers")
	if err != nil {
		return 0, err
	}
	defer messages.Stop()
	var rounds []time.Duration
	for range max(leastRounds, 300/nodes) {
		began := time.Now()
		for i := range nodes {
			js := buses[i%len(buses)].JetStream()
			if _, err := js.PublishAsync(floorSubject("answers"), make([]byte, hopBytes)); err != nil {
				return 0, err
			}
		}
		for range nodes {
			message, err := messages.Next(jetstream.NextContext(ctx))
			if err != nil {
				return 0, fmt.Errorf("answers of %d: %w", nodes, err)
			}
			if err := message.Ack(); err != nil {
				return 0, err
			}
		}
		rounds = append(rounds, time.Since(began)/time.Duration(nodes))
	}
	return quantile(rounds, 0.5), nil
}

// quantile returns that of times, the nearest one; 0 of none.
func quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
