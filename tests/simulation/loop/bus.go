// Package loop models shared/bus and shared/service on the modelled stream: each request to the hub is one step, so
// that a simulated world can crash, pause, double or depose a process between any two. A test holds it to the real one.
package loop

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/tests/simulation/stream"
)

// Bus is one process's connection to the hub, as shared/bus is.
type Bus struct {
	server      *stream.Server
	cluster     string
	whole       int // bytes of the largest payload that travels in its event
	fence       *stream.Expect
	cut         bool
	since       time.Time // of the last reconnection
	connections int
}

// Connect returns a connection. A payload of more than whole bytes travels through the object store.
func Connect(server *stream.Server, cluster string, whole int) *Bus {
	return &Bus{server: server, cluster: cluster, whole: whole}
}

// Disconnect ends the connection: every request is refused until Reconnect.
func (b *Bus) Disconnect() { b.cut = true }

// Reconnect brings the connection back. Callers that waited to repeat a request do so at once.
func (b *Bus) Reconnect(now time.Time) {
	b.cut, b.since = false, now
	b.connections++
}

// Together reports whether there is a connection, and everybody who lost the same server can have spoken again.
func (b *Bus) Together(now time.Time) bool {
	return !b.cut && (b.connections == 0 || now.Sub(b.since) >= bus.Regroup)
}

// Fence binds every later Publish on the event stream to the lease at sequence.
func (b *Bus) Fence(subject string, sequence uint64) {
	b.fence = &stream.Expect{Subject: subject, Sequence: sequence}
}

// fate is what becomes of a request over this connection.
func (b *Bus) fate(chosen stream.Fate) stream.Fate {
	if b.cut {
		return stream.Refused
	}
	return chosen
}

// Words is what a message of the modelled stream carries.
type Words struct {
	Event   events.Event
	Apart   string       // digest of the event's data, where that travels through the object store
	Refusal *bus.Refusal // in the event's place, for a message that is none
}

// Heard returns the event of a message, as a reader of the stream gets it.
func Heard(message *stream.Message) events.Event {
	event := message.Data.(Words).Event
	event.Sequence, event.Logged = message.Sequence, message.Logged
	return event
}

// Thin returns what is left of a message's data that nobody reads any more: its event's id and kind, and its payload's name.
func Thin(data any) any {
	words := data.(Words)
	return Words{Event: events.Event{ID: words.Event.ID, Kind: words.Event.Kind}, Apart: words.Apart}
}

// Patience, as in shared/bus and nats.go. A pause between repeats is drawn at random there; here it is the mean.
const (
	objectTimeout   = 2 * time.Minute
	requestTimeout  = 5 * time.Second
	leaderPatience  = 500 * time.Millisecond // two more attempts of nats.go
	firstRepeatWait = 50 * time.Millisecond
	lastRepeatWait  = 2 * time.Second
	meanOfUpperHalf = 0.75
)

// repeats tells how long to wait before a request is made again.
type repeats struct {
	bus         *Bus
	wait        time.Duration
	connections int
}

func newRepeats(b *Bus) repeats { return repeats{b, firstRepeatWait, b.connections} }

// after returns how long who heard err waits, the patience for its answer included, and lengthens the next pause.
func (r *repeats) after(err error, patience time.Duration) time.Duration {
	if r.bus.connections != r.connections {
		*r = newRepeats(r.bus)
	}
	wait := time.Duration(meanOfUpperHalf*float64(r.wait)) + patienceFor(err, patience)
	r.wait = min(2*r.wait, lastRepeatWait)
	return wait
}

// patienceFor returns how long a client waits until it knows that a request failed.
func patienceFor(err error, patience time.Duration) time.Duration {
	switch {
	case errors.Is(err, stream.ErrNoAnswer):
		return patience
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return leaderPatience
	}
	return 0
}

// Numbers of JetStream's refusals that nats.go does not name.
const (
	storeFailed        jetstream.ErrorCode = 10077
	duplicateInProcess jetstream.ErrorCode = 10158
)

// storeFull names the refusal that says that there is no room.
func storeFull(err error) error {
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == storeFailed && api.Description == "maximum bytes exceeded" {
		return fmt.Errorf("%w: %s", bus.ErrFull, api.Description)
	}
	return err
}

// transient reports whether a repeat may help.
func transient(err error) bool {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return api.Code >= 500 || api.ErrorCode == duplicateInProcess || wrongLastSequence(api)
	}
	for _, final := range []error{bus.ErrTaken, bus.ErrFenced, bus.ErrOtherWords, bus.ErrFull} {
		if errors.Is(err, final) {
			return false
		}
	}
	return true
}

func wrongLastSequence(api *jetstream.APIError) bool {
	return api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}
