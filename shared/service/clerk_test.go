package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/telemetry"
)

const cluster = "test"

var monitor = events.Speaker{Source: "/monitor", Cluster: cluster}

func TestMain(m *testing.M) {
	telemetry.Level.Set(slog.LevelError + 1) // faults are provoked here
	if _, err := telemetry.Setup(context.Background(), "test"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// clerk is a machine that aborts a negotiation for each lost node and counts them.
type clerk struct {
	mutex   sync.Mutex
	Count   int
	heard   []string // subjects, since the start of the process
	ticks   int
	ticking chan struct{} // if any, one token: a tick came
	crashes bool          // at the snapshot after the first event
	waits   chan struct{} // if any, before it has handled an event
	asked   atomic.Bool   // to handle an event
}

func (c *clerk) Hears() []events.Kind { return []events.Kind{events.NodeLost} }

func (c *clerk) Handle(event events.Event) ([]events.Event, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.heard = append(c.heard, event.Subject)
	if event.Subject == "absurd" {
		return nil, errors.New("no such node")
	}
	c.asked.Store(true)
	if c.waits != nil {
		<-c.waits
	}
	c.Count++
	if event.Subject == "poison" {
		panic("cannot bear it")
	}
	return []events.Event{c.abort(event, fmt.Sprintf("g%d", c.Count))}, nil
}

func (c *clerk) abort(cause events.Event, negotiation string) events.Event {
	speaker := events.Speaker{Source: "/negotiator", Cluster: cluster}
	return speaker.Say(cause, events.Aborted, negotiation,
		&events.Abort{Negotiation: negotiation, Generation: uint64(c.Count)})
}

func (c *clerk) Tick(time.Time) []events.Event {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.ticks++
	select {
	case c.ticking <- struct{}{}:
	default:
	}
	return nil
}

// listener is a machine that hears losses and says nothing of them.
type listener struct{}

func (listener) Hears() []events.Kind                        { return []events.Kind{events.NodeLost} }
func (listener) Handle(events.Event) ([]events.Event, error) { return nil, nil }
func (listener) Tick(time.Time) []events.Event               { return nil }
func (listener) Snapshot() ([]byte, error)                   { return []byte("{}"), nil }
func (listener) Restore([]byte) error                        { return nil }

func (c *clerk) hearings() int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return len(c.heard)
}

func (c *clerk) Snapshot() ([]byte, error) {
	if c.crashes && c.Count > 0 {
		return nil, errors.New("crash between publish and acknowledgement")
	}
	return json.Marshal(c)
}

func (c *clerk) Restore(snapshot []byte) error { return json.Unmarshal(snapshot, c) }
