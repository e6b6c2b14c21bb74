package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// log keeps what is said.
type log struct {
	mutex sync.Mutex
	lines []Line
}

func (l *log) add(line Line) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.lines = append(l.lines, line)
}

func (l *log) from(first int) ([]Line, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if first < 0 || first > len(l.lines) {
		return nil, fmt.Errorf("line %d: expected 0 to %d", first, len(l.lines))
	}
	return l.lines[first:], nil
}

// listen hears the streams and the heartbeats until ctx ends.
func (l *log) listen(ctx context.Context, url string) error {
	ears, err := bus.Connect(ctx, bus.Config{URL: url, Name: "bench", Cluster: cluster})
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, ears.Close)
	if err := ears.Provision(ctx); err != nil {
		return err
	}
	for _, stream := range []events.Stream{events.EventStream, events.PlanStream} {
		_, err := ears.Follow(ctx, stream, stream.Subjects(cluster), bus.All,
			func(event events.Event) { l.add(Line{event.Kind, event.Logged, event.Data}) })
		if err != nil {
			return err
		}
	}
	_, err = ears.Conn().Subscribe(events.PulseSubject(cluster, "*"), func(message *nats.Msg) {
		l.add(Line{At: time.Now(), Data: message.Data})
	})
	return err
}
