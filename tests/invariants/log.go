package invariants

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
)

// Entry is one message of a stream. Fault says why if it is no valid event. The payload is then there as far as it
// could be decoded.
type Entry struct {
	events.Event
	Stream  string
	Address string // the NATS subject it came on
	Payload events.Payload
	Fault   string
	// Horizon is, for what the negotiator says, how far into the event stream it had certainly heard: to the latest
	// cause of anything it had said so far.
	Horizon uint64
}

// Log is what the two streams of a cluster hold, each in the stream's order.
type Log struct {
	Messages map[string][]*Entry // by stream: all, whether they are events or not
	Events   []*Entry            // of the event stream, without what was quarantined and what was said before
	Plans    []*Entry            // of the plan stream
	changes  []change
	byID     map[string]*Entry
	byKind   map[events.Kind][]*Entry // of Events
	refused  map[uint64]*Entry        // message of the event stream -> the event.refused that quarantines it
}

// line is the form of a log: one message of a stream on each line.
type line struct {
	Stream   string          `json:"stream"`
	Sequence uint64          `json:"sequence"`
	Logged   time.Time       `json:"logged"`
	Subject  string          `json:"subject"`
	Event    json.RawMessage `json:"event"`
}

// envelope is a CloudEvent in structured JSON.
type envelope struct {
	SpecVersion string          `json:"specversion"`
	ID          string          `json:"id"`
	Type        string          `json:"type"`
	Source      string          `json:"source"`
	Subject     string          `json:"subject"`
	Cluster     string          `json:"cluster"`
	Cause       string          `json:"cause,omitempty"`
	Traceparent string          `json:"traceparent,omitempty"`
	Time        time.Time       `json:"time"`
	Data        json.RawMessage `json:"data"`
}

const longestLine = 256 << 20 // a payload of events.MaxPayloadBytes as JSON, and more

// Read decodes a log. A line that is no message is an error; a message that is no event is an entry with a fault.
func Read(reader io.Reader) (*Log, error) {
	log := &Log{Messages: map[string][]*Entry{}, byID: map[string]*Entry{}, byKind: map[events.Kind][]*Entry{}, refused: map[uint64]*Entry{}}
	lines := bufio.NewScanner(reader)
	lines.Buffer(nil, longestLine)
	for number := 1; lines.Scan(); number++ {
		var message line
		if err := json.Unmarshal(lines.Bytes(), &message); err != nil {
			return nil, fmt.Errorf("log line %d: %w", number, err)
		}
		if message.Stream != events.EventStream.Name && message.Stream != events.PlanStream.Name {
			return nil, fmt.Errorf("log line %d: stream: expected %s or %s, got %q", number, events.EventStream.Name,
				events.PlanStream.Name, message.Stream)
		}
		log.Messages[message.Stream] = append(log.Messages[message.Stream], decode(message))
	}
	log.index()
	return log, lines.Err()
}

// Of makes a log of what the two streams hold, each in its order.
func Of(facts, plans []events.Event) *Log {
	log := &Log{Messages: map[string][]*Entry{}, byID: map[string]*Entry{}, byKind: map[events.Kind][]*Entry{}, refused: map[uint64]*Entry{}}
	for stream, all := range map[string][]events.Event{events.EventStream.Name: facts, events.PlanStream.Name: plans} {
		for _, event := range all {
			entry := &Entry{Event: event, Stream: stream, Address: event.SubjectName()}
			payload, err := entry.Read()
			if entry.Payload = payload; err != nil {
				entry.Fault = err.Error()
			}
			log.Messages[stream] = append(log.Messages[stream], entry)
		}
	}
	log.index()
	return log
}

func decode(message line) *Entry {
	entry := &Entry{Stream: message.Stream, Address: message.Subject}
	entry.Sequence, entry.Logged = message.Sequence, message.Logged
	var wire envelope
	if err := json.Unmarshal(message.Event, &wire); err != nil {
		entry.Fault = "no CloudEvent: " + err.Error()
		return entry
	}
	entry.ID, entry.Source, entry.Subject, entry.Cluster = wire.ID, wire.Source, wire.Subject, wire.Cluster
	entry.Cause, entry.Traceparent, entry.Time, entry.Data = wire.Cause, wire.Traceparent, wire.Time, wire.Data
	kind, err := events.KindOf(wire.Type)
	if err != nil {
		entry.Fault = err.Error()
		return entry
	}
	entry.Kind = kind
	entry.Fault = entry.open()
	return entry
}

// open decodes and validates the payload, and returns what is wrong.
func (e *Entry) open() string {
	row, _ := e.Kind.Row()
	e.Payload = row.New()
	err := events.Decode(e.Data, e.Payload)
	switch {
	case !events.Token(e.ID):
		return fmt.Sprintf("id %q is no token", e.ID)
	case !e.BelongsOn(e.Address):
		return fmt.Sprintf("belongs on %s, came on %s", e.SubjectName(), e.Address)
	case err != nil:
		return err.Error()
	}
	return ""
}

func (l *Log) index() {
	all := l.Messages[events.EventStream.Name]
	for _, entry := range all {
		if sequence, err := strconv.ParseUint(entry.Subject, 10, 64); err == nil && entry.Kind == events.EventRefused {
			l.refused[sequence] = entry
		}
	}
	horizon := uint64(0)
	for _, entry := range all {
		if l.refused[entry.Sequence] != nil || l.repeats(entry) {
			continue
		}
		l.Events, l.byKind[entry.Kind] = append(l.Events, entry), append(l.byKind[entry.Kind], entry)
		if l.byID[entry.ID] == nil {
			l.byID[entry.ID] = entry
		}
		if cause := l.byID[entry.Cause]; cause != nil && entry.Source == "/negotiator" {
			horizon = max(horizon, cause.Sequence)
		}
		entry.Horizon = horizon
	}
	l.Plans = l.Messages[events.PlanStream.Name]
	l.changes = l.findChanges()
}

// repeats reports whether an entry says again what stands before it. It must have no effect; Identified finds other words.
func (l *Log) repeats(entry *Entry) bool {
	before := l.byID[entry.ID]
	return before != nil && before.Source == entry.Source && bytes.Equal(before.Data, entry.Data)
}

// said returns the entries of the event stream of one kind, with their payloads.
func said[P events.Payload](log *Log, kind events.Kind) iter.Seq2[*Entry, P] {
	return func(yield func(*Entry, P) bool) {
		for _, entry := range log.byKind[kind] {
			if payload, ok := entry.Payload.(P); ok && !yield(entry, payload) {
				return
			}
		}
	}
}

// node returns the node that speaks; ok is false for services and users.
func (e *Entry) node() (node string, ok bool) {
	return strings.CutPrefix(e.Source, events.NodeSource(""))
}
