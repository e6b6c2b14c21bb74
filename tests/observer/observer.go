// Package observer sees a cluster from outside, through its log and its heartbeats, and judges how its training ended.
package observer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// Observer hears everything that is said in a cluster.
type Observer struct {
	mutex   sync.Mutex
	scene   Scene
	lines   bytes.Buffer  // the log, as package invariants reads it
	places  places        // of what was heard
	news    chan struct{} // closed when something is heard
	failure error
}

// Listen hears the log from its beginning until ctx ends. The streams have to be there.
func Listen(ctx context.Context, b *bus.Bus) (*Observer, error) {
	o := &Observer{scene: newScene(), news: make(chan struct{}), places: places{}}
	return o, o.ListenTo(ctx, b)
}

// ListenTo hears a log from its beginning, of which it has heard some already: that is passed over.
func (o *Observer) ListenTo(ctx context.Context, b *bus.Bus) error {
	for _, stream := range []events.Stream{events.EventStream, events.PlanStream} {
		hear := func(event events.Event) { o.hear(stream, event) }
		if _, err := b.Follow(ctx, stream, stream.Subjects(b.Cluster()), bus.All, hear); err != nil {
			return err
		}
	}
	_, err := b.Conn().Subscribe(events.PulseSubject(b.Cluster(), "*"), o.pulse)
	return err
}

func (o *Observer) pulse(message *nats.Msg) {
	var pulse events.Pulse
	if json.Unmarshal(message.Data, &pulse) != nil {
		return // the monitor judges heartbeats
	}
	o.tell(func() error {
		o.scene.Steps = max(o.scene.Steps, pulse.Step)
		return nil
	})
}

func (o *Observer) hear(stream events.Stream, event events.Event) {
	o.tell(func() error {
		if o.places.knows(stream, event) {
			return nil
		}
		return errors.Join(o.record(stream, event), o.scene.take(event))
	})
}

// tell changes what is known, and wakes who waits for it.
func (o *Observer) tell(change func() error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.failure = errors.Join(o.failure, change())
	close(o.news)
	o.news = make(chan struct{})
}

// places is, by the name of a stream, what was heard of it.
type places map[string]*place

// place is up to where a stream was heard, and where the log began that it is in: one that takes the place of another goes on behind it.
type place struct {
	last, began uint64
	logged      map[uint64]time.Time // when what was heard of the log was, by sequence
}

func (p places) in(stream events.Stream) *place {
	if p[stream.Name] == nil {
		p[stream.Name] = &place{logged: map[uint64]time.Time{}}
	}
	return p[stream.Name]
}

// knows reports whether a message was heard, in this log or in one that it goes on from.
func (p places) knows(stream events.Stream, event events.Event) bool {
	heard, isKnown := p.in(stream).logged[event.Sequence]
	return isKnown && heard.Equal(event.Logged)
}

// of returns where a message is among all that was heard of its stream.
func (p places) of(stream events.Stream, event events.Event) uint64 {
	known := p.in(stream)
	if known.began+event.Sequence <= known.last {
		known.began = known.last + 1 - event.Sequence
	}
	known.last, known.logged[event.Sequence] = known.began+event.Sequence, event.Logged
	return known.last
}

func (o *Observer) record(stream events.Stream, event events.Event) error {
	envelope, err := bus.Encode(event)
	if err != nil {
		return err
	}
	return json.NewEncoder(&o.lines).Encode(map[string]any{
		"stream": stream.Name, "sequence": o.places.of(stream, event), "logged": event.Logged, "subject": event.SubjectName(),
		"event": json.RawMessage(envelope),
	})
}

// Scene returns what the cluster has shown so far.
func (o *Observer) Scene() Scene {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.scene.Clone()
}

// Log returns what was said so far, a line of JSON for each event, as package invariants reads it.
func (o *Observer) Log() []byte {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return bytes.Clone(o.lines.Bytes())
}

// Wait returns nil when the scene shows what is waited for.
func (o *Observer) Wait(ctx context.Context, limit time.Duration, what string, shows func(Scene) bool) error {
	timeout := time.After(limit)
	for {
		o.mutex.Lock()
		news, shown, failure := o.news, shows(o.scene), o.failure
		o.mutex.Unlock()
		if shown || failure != nil {
			return failure
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		case <-timeout:
			return fmt.Errorf("expected %s within %v", what, limit)
		}
	}
}
