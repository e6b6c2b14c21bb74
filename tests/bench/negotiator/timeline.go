package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// moment is when the first and the last event of a kind were logged, since the first event of the change.
type moment struct {
	count       int
	first, last time.Duration
	bytes       int
}

// timeline holds the moments of each change of one kind, by the kind of event.
type timeline map[string][]moment

// note reads what was logged from a sequence on until the plan was committed.
func (t timeline) note(ctx context.Context, f *fleet, from uint64) error {
	js := f.buses[0].JetStream()
	consumer, err := js.OrderedConsumer(ctx, events.Lane(cluster, events.EventStream.Name), jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, HeadersOnly: true,
	})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	var began time.Time
	moments := map[string]moment{}
	defer func() {
		for kind, m := range moments {
			t[kind] = append(t[kind], m)
		}
	}()
	for {
		message, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		about, err := message.Metadata()
		if err != nil {
			return err
		}
		part := strings.Split(message.Subject(), ".")
		kind := part[3] + "." + part[4]
		if began.IsZero() {
			began = about.Timestamp
		}
		at := about.Timestamp.Sub(began)
		m := moments[kind]
		if m.count++; m.count == 1 {
			m.first = at
		}
		m.last = at
		if n, err := strconv.Atoi(message.Headers().Get("Nats-Msg-Size")); err == nil {
			m.bytes += n
		}
		moments[kind] = m
		if kind == string(events.Committed) || about.NumPending == 0 {
			return nil
		}
	}
}

// print writes a table of the medians, in the order of the firsts.
func (t timeline) print(w io.Writer) {
	median := func(of []moment, at func(moment) time.Duration) time.Duration {
		var all []time.Duration
		for _, m := range of {
			all = append(all, at(m))
		}
		return quantile(all, 0.5)
	}
	first := func(of []moment) time.Duration { return median(of, func(m moment) time.Duration { return m.first }) }
	kinds := slices.SortedFunc(maps.Keys(t), func(a, b string) int { return cmp.Compare(first(t[a]), first(t[b])) })
	fmt.Fprintln(w, "| event | in changes | a change | bytes each | first | last |\n|---|---|---|---|---|---|")
	for _, kind := range kinds {
		of, count, bytes := t[kind], 0, 0
		for _, m := range of {
			count, bytes = count+m.count, bytes+m.bytes
		}
		fmt.Fprintf(w, "| %s | %d | %d | %d | %s | %s |\n", kind, len(of), count/len(of), bytes/count, milliseconds(first(of)),
			milliseconds(median(of, func(m moment) time.Duration { return m.last })))
	}
}
