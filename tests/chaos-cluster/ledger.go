package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/tests/observer"
)

// ledger writes into a log of its own, of another cluster, and notes what was acknowledged when.
type ledger struct {
	bus     *bus.Bus
	mutex   sync.Mutex
	written []entry
}

type entry struct {
	id           string
	sequence     uint64
	began, acked time.Time
}

const (
	ledgerID   = "ledger"
	writeEvery = 20 * time.Millisecond
)

func newLedger(ctx context.Context, url string) (*ledger, error) {
	b, err := bus.Connect(ctx, bus.Config{URL: url, Name: ledgerID, Cluster: ledgerID})
	if err != nil {
		return nil, err
	}
	if err := b.Provision(ctx); err != nil {
		b.Close()
		return nil, err
	}
	return &ledger{bus: b}, nil
}

// write writes an event after the other until ctx ends, and has an answer to the last. Each is about another node: of one
// the log keeps the newest only.
func (l *ledger) write(ctx context.Context) {
	speaker := events.Speaker{Source: "/monitor", Cluster: ledgerID}
	for number := 0; ctx.Err() == nil; number++ {
		began := time.Now()
		state := &events.NodeState{Node: fmt.Sprint("n", number), Incarnation: "1"}
		l.publish(ctx, began, speaker.First(began, state.Node, events.NodeLost, state.Node, state))
		_ = pause(ctx, writeEvery)
	}
}

// publish notes what was acknowledged. An event that was stored without an answer would be a gap that nobody can
// explain.
func (l *ledger) publish(ctx context.Context, began time.Time, event events.Event) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), healLimit)
	defer cancel()
	if ack, err := l.bus.Publish(ctx, event); err == nil {
		l.mutex.Lock()
		l.written = append(l.written, entry{event.ID, ack.Sequence, began, time.Now()})
		l.mutex.Unlock()
	}
}

// absence waits until something is acknowledged that was first said after a moment, and returns how long that took.
func (l *ledger) absence(ctx context.Context, since time.Time) time.Duration {
	for ctx.Err() == nil {
		l.mutex.Lock()
		last := entry{}
		if len(l.written) > 0 {
			last = l.written[len(l.written)-1]
		}
		l.mutex.Unlock()
		if last.acked.After(since.Add(settled)) {
			return l.longest(since)
		}
		_ = pause(ctx, writeEvery)
	}
	return -1
}

// settled is after how long a leader's death has shown: what it acknowledged just before may come later.
const settled = 15 * time.Second

// longest returns the longest time without an acknowledgement that ended after a moment.
func (l *ledger) longest(since time.Time) (longest time.Duration) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for i := 1; i < len(l.written); i++ {
		if l.written[i].acked.After(since) {
			longest = max(longest, l.written[i].acked.Sub(l.written[i-1].acked))
		}
	}
	return longest
}

// held returns the events of the ledger that the log holds, ids by sequence.
func (l *ledger) held(ctx context.Context) (map[uint64]string, error) {
	l.mutex.Lock()
	last := l.written[len(l.written)-1].sequence
	l.mutex.Unlock()
	held := map[uint64]string{}
	heard := make(chan events.Event)
	subject := events.EventSubject(ledgerID, events.NodeLost, "*")
	stop, err := l.bus.Follow(ctx, events.EventStream, []string{subject}, bus.All, func(event events.Event) {
		select {
		case heard <- event:
		case <-ctx.Done():
		}
	})
	if err != nil {
		return nil, err
	}
	defer stop()
	for done := false; !done; {
		select {
		case event := <-heard:
			held[event.Sequence] = event.ID
			done = event.Sequence >= last
		case <-ctx.Done():
			return nil, fmt.Errorf("expected the log to hold all up to sequence %d: %w", last, ctx.Err())
		}
	}
	return held, nil
}

// lost returns how many acknowledged events are not among those that the log holds. Nothing is being written any more.
func (l *ledger) lost(held map[uint64]string) (lost int) {
	for _, entry := range l.written {
		if held[entry.sequence] != entry.id {
			lost++
		}
	}
	return lost
}

// forgotten returns how many events that an observer heard while it was going on the log does not hold any more, or holds otherwise. The
// log holds the newest of those on one subject.
func forgotten(ctx context.Context, b *bus.Bus, before []byte) (int, error) {
	again, err := observer.Listen(ctx, b)
	if err != nil {
		return 0, err
	}
	missing := newestOf(before)
	err = eventually(ctx, "the log as long as it was heard", func() bool {
		for line := range bytes.Lines(again.Log()) {
			delete(missing, string(line))
		}
		return len(missing) == 0
	})
	if len(missing) > 0 {
		err = nil
	}
	return len(missing), err
}

// newestOf returns the lines of a log that are among the newest on their subjects.
func newestOf(log []byte) map[string]bool {
	lines, newest, on := slices.Collect(bytes.Lines(log)), map[string]bool{}, map[string]int{}
	for _, line := range slices.Backward(lines) {
		var message struct{ Subject string }
		if json.Unmarshal(line, &message) != nil {
			continue
		}
		if on[message.Subject]++; on[message.Subject] <= events.EventStream.Newest {
			newest[string(line)] = true
		}
	}
	return newest
}
