package main

import (
	"context"
	"sync"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// log has what nodes said of their joins. It may be used by several goroutines.
type log struct {
	mutex    sync.Mutex
	asked    map[string]time.Time      // to join, by node
	states   map[string]int64          // bytes of the state, by node
	receipts map[string]events.Receipt // of what came, by node
}

// listen hears the events until ctx ends.
func listen(ctx context.Context, ears *bus.Bus) (*log, error) {
	l := &log{asked: map[string]time.Time{}, states: map[string]int64{}, receipts: map[string]events.Receipt{}}
	if err := ears.Provision(ctx); err != nil {
		return nil, err
	}
	_, err := ears.Follow(ctx, events.EventStream, events.EventStream.Subjects(ears.Cluster()), bus.All, l.hear)
	return l, err
}

func (l *log) hear(event events.Event) {
	payload, err := event.Read()
	if err != nil {
		return // whom it was meant for says so
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	switch said := payload.(type) {
	case *events.Join:
		l.asked[said.Node] = event.Logged
		l.states[said.Node] = 0
		for _, bytes := range said.Job.UnitBytes() {
			l.states[said.Node] += bytes
		}
	case *events.Receipt:
		l.receipts[said.Node] = *said
	}
}

// arrival is how a state came to a node.
type arrival struct {
	asked   time.Time
	state   int64 // bytes of the whole
	bytes   int64 // that came
	seconds float64
}

func (l *log) arrival(node string) arrival {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	a := arrival{asked: l.asked[node], state: l.states[node], seconds: l.receipts[node].Seconds}
	for _, source := range l.receipts[node].Sources {
		a.bytes += source.Bytes
	}
	return a
}
