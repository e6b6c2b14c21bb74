// Package events holds the words of Reknit: every fact that travels between its services, trainers and users.
//
// It depends on the standard library only. One row of the catalogue names an event; its CloudEvents type, its
// NATS subject, its JSON Schema, its example, its AsyncAPI entry and its line in the README derive from that row.
package events

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Event is one fact with its envelope. On the wire it is a CloudEvent 1.0 in structured JSON (shared/bus binds it).
type Event struct {
	ID          string          // a function of what caused the event, so that a redelivered cause says it again, not anew
	Kind        Kind            // entity and verb, for example node.lost
	Source      string          // who speaks: "/monitor" or "/node/n4"
	Subject     string          // id of the entity spoken of
	Cluster     string          // id of the cluster
	Cause       string          // id of the event that caused this one; empty for a first cause
	Traceparent string          // W3C trace context of the change this event belongs to; may be empty
	Time        time.Time       // when the fact was known: for a caused event the log time of its cause
	Data        json.RawMessage // payload, as the catalogue's row for Kind says

	Logged   time.Time // when the stream stored it, by the server's clock; zero before that
	Sequence uint64    // position in its stream; zero before that

	payload Payload // Data, once it was read
	digest  string  // of the data of a plan, once that was read
	vouched *byte   // where the Data begins that a Speaker made of a valid payload
}

// Payload is the data of an event. Validate names the first field that is wrong and what was expected.
type Payload interface{ Validate() error }

// Speaker says facts in the name of one service or node of one cluster.
type Speaker struct{ Source, Cluster string }

// Say builds the event of the given kind that cause brought about. One cause says at most one fact of a kind about a
// subject: kind, subject, source and cause determine the id. Two sources may number their events alike (CloudEvents
// 1.0: source and id together are unique), so a cause is both.
func (s Speaker) Say(cause Event, kind Kind, subject string, payload Payload) Event {
	event := s.state(kind, subject, cause.Source+" "+cause.ID, payload)
	event.Cause, event.Traceparent, event.Time = cause.ID, cause.Traceparent, cause.Logged
	return event
}

// First builds an event that no other event caused. The reason (an incarnation, a heartbeat's number, a user's
// request id) takes the cause's place in the id: the same reason says the same event.
func (s Speaker) First(at time.Time, reason string, kind Kind, subject string, payload Payload) Event {
	event := s.state(kind, subject, reason, payload)
	event.Time = at
	return event
}

func (s Speaker) state(kind Kind, subject, reason string, payload Payload) Event {
	fill(reflect.ValueOf(payload))
	data, err := json.Marshal(payload)
	if err != nil {
		panic(fmt.Sprintf("events: a %s payload must be plain data: %v", kind, err))
	}
	event := Event{
		ID:   deriveID(s.Source, s.Cluster, string(kind), subject, reason),
		Kind: kind, Source: s.Source, Subject: subject, Cluster: s.Cluster, Data: data,
	}
	if row, known := kind.Row(); known && reflect.TypeOf(payload) == reflect.TypeOf(row.New()) && payload.Validate() == nil {
		event.vouched = &data[0]
	}
	return event
}

// Vouched reports whether the data is, untouched, what a Speaker of this process made of a valid payload of the event's
// kind. Reading it again takes longer than all else that is done to say an event (measured with plans of 100 nodes).
func (e Event) Vouched() bool { return len(e.Data) > 0 && &e.Data[0] == e.vouched }

// Digest returns "sha256:" and the lower-case hex SHA-256 of data: how plans, parts and blocks of units are named.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// BlockBytes is the length of a unit's blocks; the last takes what is left.
const BlockBytes = 8 << 20

// DigestOfUnit returns the digest of a unit's bytes, which follows from those of its blocks: who has hashed the parts in
// which a unit moves need not hash it again.
func DigestOfUnit(data []byte) string {
	var blocks []string
	for block := range slices.Chunk(data, BlockBytes) {
		blocks = append(blocks, Digest(block))
	}
	return DigestOfBlocks(blocks)
}

// DigestOfBlocks returns the digest of a unit from those of its blocks: that of one block is the unit's, and that of
// several is of their digests, each ended by a newline.
func DigestOfBlocks(blocks []string) string {
	if len(blocks) == 1 {
		return blocks[0]
	}
	var joined []byte
	for _, block := range blocks {
		joined = append(append(joined, block...), '\n')
	}
	return Digest(joined)
}

func deriveID(parts ...string) string {
	hash := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(hash, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(hash.Sum(nil)[:16])
}

// Open decodes an event's payload and validates it.
func Open[T any, P interface {
	*T
	Payload
}](event Event) (T, error) {
	if read, done := event.payload.(P); done {
		return *read, nil
	}
	var payload T
	if err := Decode(event.Data, P(&payload)); err != nil {
		return payload, fmt.Errorf("%s: %w", event.Kind, err)
	}
	return payload, nil
}

// Read returns the payload, decoded and validated once for all who Open the event afterwards. None of them may change
// what it points to. Errors are as Decode's.
func (e *Event) Read() (Payload, error) {
	if e.payload != nil {
		return e.payload, nil
	}
	row, known := e.Kind.Row()
	if !known {
		return nil, fmt.Errorf("kind: expected one of the catalogue, got %q", e.Kind)
	}
	payload := row.New()
	if err := Decode(e.Data, payload); err != nil {
		return nil, err
	}
	e.payload = payload
	if row.Plan { // whose digest all who hear it need
		e.digest = Digest(e.Data)
	}
	return payload, nil
}

// Digest returns the digest of the event's data, by which a plan names the one before it.
func (e Event) Digest() string {
	if e.digest != "" {
		return e.digest
	}
	return Digest(e.Data)
}

// whole is the name of a payload as a field: the envelope's.
const whole = "data"

// Named is a value of the wrong JSON type as an error that names its field; any other error it returns as it is. A value that is no object
// has the name whole. One field of all is in base64: a quarantine's.
func Named(whole string, err error) error {
	if at, is := errors.AsType[base64.CorruptInputError](err); is {
		return &FieldError{Field: "excerpt", Expected: "base64", Got: fmt.Sprintf("something else from byte %d on", int64(at))}
	}
	var typed *json.UnmarshalTypeError
	if !errors.As(err, &typed) {
		return err
	}
	wrong := &FieldError{Field: cmp.Or(typed.Field, whole), Expected: kindOf(typed.Type), Got: "a JSON " + typed.Value}
	if number, isNumber := strings.CutPrefix(typed.Value, "number "); isNumber && isNumeric(typed.Type) {
		if value, _ := strconv.ParseFloat(number, 64); value == math.Trunc(value) { // too great counts as whole
			return &RuleError{"numbers", wrong}
		}
	}
	return wrong
}

// kindOf says in words what JSON a Go type is read from.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return kindOf(t.Elem())
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Float64:
		return "a number"
	}
	return "a whole number"
}

// Decode reads a payload and validates it. A required field that is absent is an error, not a zero: a promise without
// its step is no promise to stop at step 0. So is null. Fields this version does not know are ignored.
func Decode(data []byte, payload Payload) error {
	t := reflect.TypeOf(payload).Elem()
	if err := json.Unmarshal(data, payload); err != nil {
		if _, isJSON := errors.AsType[*json.UnmarshalTypeError](err); isJSON {
			if broken, is := errors.AsType[*RuleError](missing(t, data)); is {
				return broken // a name that is not quite ours was read as ours
			}
		}
		return Named(whole, err)
	}
	if err := missing(t, data); err != nil {
		return err
	}
	return payload.Validate()
}
