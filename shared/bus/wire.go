package bus

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/reknit/reknit/events"
)

// ContentType is the header value of an event on the wire: CloudEvents 1.0, structured JSON.
const ContentType = cloudevents.ApplicationCloudEventsJSON

// Why a message is refused.
const (
	Oversized      = "oversized"
	Malformed      = "malformed"
	UnknownVersion = "unknown-version"
	WrongCluster   = "wrong-cluster"
	WrongSource    = "wrong-source"
	Unsigned       = "unsigned" // or signed by another than its source, where all sign
	Stale          = "stale"    // a request, signed long before or after it was logged
	Repeated       = "repeated" // a request that was heard before
	Invalid        = "invalid"
	Unreadable     = "unreadable" // its payload was not to be had
	Poison         = "poison"     // who heard it panicked
)

// Reasons are all for which a message is refused.
var Reasons = []string{
	Oversized, Malformed, UnknownVersion, WrongCluster, WrongSource, Unsigned, Stale, Repeated, Invalid, Unreadable, Poison,
}

// Refusal says why a message is no event of this cluster, and keeps its first bytes.
type Refusal = events.Quarantine

// refused is the error form of a refusal's reason and detail.
type refused struct{ reason, detail string }

func (r *refused) Error() string { return r.reason + ": " + r.detail }

func refuse(reason, format string, args ...any) error {
	return &refused{reason, fmt.Sprintf(format, args...)}
}

// IsRefusal reports whether a Publish failed because the event may not travel at all.
func IsRefusal(err error) bool {
	var why *refused
	return errors.As(err, &why) || errors.Is(err, ErrTooLarge)
}

// CloudEvents extension attributes (lower-case letters and digits only).
const (
	clusterExtension     = "cluster"
	causeExtension       = "cause"
	traceparentExtension = "traceparent"
	datarefExtension     = "dataref" // digest of the data, which is in the payload bucket
	signatureExtension   = "signature"
)

// envelope is what an event has on the wire only.
type envelope struct{ dataref, signature string }

// Encode returns the wire form of an event, a CloudEvent 1.0 in structured JSON, with its data inside.
func Encode(event events.Event) ([]byte, error) { return encode(event, envelope{}) }

// encode writes an event as a CloudEvent. With a dataref the data stays out.
func encode(event events.Event, e envelope) ([]byte, error) {
	wire := cloudevents.New()
	wire.SetID(event.ID)
	wire.SetType(event.Kind.Type())
	wire.SetSource(event.Source)
	wire.SetSubject(event.Subject)
	if !event.Time.IsZero() {
		wire.SetTime(event.Time)
	}
	for name, value := range map[string]string{
		clusterExtension: event.Cluster, causeExtension: event.Cause,
		traceparentExtension: event.Traceparent, datarefExtension: e.dataref, signatureExtension: e.signature,
	} {
		if value != "" {
			wire.SetExtension(name, value)
		}
	}
	wire.SetDataContentType(cloudevents.ApplicationJSON)
	if e.dataref == "" {
		wire.DataEncoded = event.Data
	}
	return wire.MarshalJSON() // json.Marshal would read through it once more
}

// decode reads an event from the wire, without its data where that has a dataref.
func decode(message []byte) (event events.Event, e envelope, err error) {
	if len(message) > events.MaxEventBytes {
		return event, e, refuse(Oversized, "message: expected at most %d bytes, got %d (rule size)", events.MaxEventBytes, len(message))
	}
	if err := events.CheckAttributes(message); err != nil {
		return event, e, refuse(Malformed, "%v", err)
	}
	var wire cloudevents.Event
	if err := wire.UnmarshalJSON(message); err != nil {
		return event, e, refuse(Malformed, "message: expected a CloudEvent: %v", err)
	}
	if err := wire.Validate(); err != nil {
		return event, e, refuse(Malformed, "message: expected a CloudEvent: %v", err)
	}
	kind, err := events.KindOf(wire.Type())
	if err != nil {
		return event, e, unknownType(wire.Type(), err)
	}
	text := func(extension string) string {
		value, _ := wire.Context.AsV1().Extensions[extension].(string)
		return value
	}
	return events.Event{
		ID: wire.ID(), Kind: kind, Source: wire.Source(), Subject: wire.Subject(), Time: wire.Time(), Data: wire.Data(),
		Cluster: text(clusterExtension), Cause: text(causeExtension), Traceparent: text(traceparentExtension),
	}, envelope{text(datarefExtension), text(signatureExtension)}, nil
}

// unknownType tells a type of another version from one nobody knows.
func unknownType(ceType string, unknown error) error {
	dot := strings.LastIndexByte(ceType, '.')
	if dot > 0 && strings.HasPrefix(ceType[dot:], ".v") {
		for _, row := range events.Catalogue {
			if strings.HasPrefix(row.Kind.Type(), ceType[:dot]+".v") {
				return refuse(UnknownVersion, "type: expected %s, got %.100q", row.Kind.Type(), ceType)
			}
		}
	}
	return refuse(Malformed, "%.300v", unknown)
}

// check reports why an event may not travel on subject in this cluster. A service also refuses to say what it would
// refuse to hear. The event's payload is read by it, unless a service vouches for what it says itself.
func check(event *events.Event, cluster, subject string) error {
	if err := checkEnvelope(event, cluster, subject); err != nil {
		return err
	}
	return checkData(event)
}

// checkEnvelope is check without the data.
func checkEnvelope(event *events.Event, cluster, subject string) error {
	row, ok := event.Kind.Row()
	switch {
	case !ok:
		return refuse(Malformed, "kind: expected one of the catalogue, got %.100q", event.Kind)
	case event.Cluster != cluster:
		return refuse(WrongCluster, "cluster: expected %q, got %.100q (rule place)", cluster, event.Cluster)
	case !events.Token(event.ID) || !events.Token(event.Subject):
		return refuse(Malformed, "id and subject: expected 1 to 64 characters of A-Z a-z 0-9 - _, got %.100q and %.100q",
			event.ID, event.Subject)
	case !event.BelongsOn(subject):
		return refuse(Malformed, "subject: expected to hear it on %s, got %.200s (rule place)", event.SubjectName(), subject)
	case !row.Authorised(event.Source):
		return refuse(WrongSource, "source: expected one of %v, got %.100q", row.SaidBy, event.Source)
	}
	return nil
}

// checkData is check of the data. Data beyond the bound of its kind is not decoded.
func checkData(event *events.Event) error {
	if _, isNode := strings.CutPrefix(event.Source, events.NodeSource("")); !isNode && event.Vouched() {
		return nil
	}
	if err := events.BoundOf(event.Kind, event.Source).Check(event.Data); err != nil {
		return refuse(Oversized, "%v", err)
	}
	payload, err := event.Read()
	if err != nil {
		return refuse(Invalid, "data: %v", err)
	}
	return checkSpeaker(*event, payload)
}

// checkSpeaker keeps a node from speaking for another: neither as the subject of a fact about nodes, nor in the
// payload's node field, nor of a link that is not its own. The subject and data.node of such a fact are the same,
// whoever says it: some who hear it look at the one only, and some at the other.
func checkSpeaker(event events.Event, payload events.Payload) error {
	node, isNode := strings.CutPrefix(event.Source, events.NodeSource(""))
	entity, _, _ := strings.Cut(string(event.Kind), ".")
	named, aboutNode := text(payload, "Node"), entity == "membership" || entity == "node"
	switch {
	case isNode && aboutNode && event.Subject != node:
		return refuse(WrongSource, "subject: expected %q as the source says, got %q (rule speaker)", node, event.Subject)
	case isNode && named != "" && named != node:
		return refuse(WrongSource, "data.node: expected %q as the source says, got %.100q (rule speaker)", node, named)
	case aboutNode && named != "" && named != event.Subject:
		return refuse(Invalid, "data.node: expected %q as the subject says, got %.100q (rule speaker)", event.Subject, named)
	case !isNode:
		return nil
	}
	if from, to := text(payload, "From"), text(payload, "To"); entity == "link" && from != node && to != node {
		return refuse(WrongSource, "data.from: expected a link of %q as the source says, got one of %.100q and %.100q (rule speaker)",
			node, from, to)
	}
	return nil
}

// text returns a field of a payload; empty where it has no such text.
func text(payload events.Payload, name string) string {
	if field := reflect.ValueOf(payload).Elem().FieldByName(name); field.Kind() == reflect.String {
		return field.String()
	}
	return ""
}

// stored is a message as a stream holds it.
type stored struct {
	subject  string
	data     []byte
	sequence uint64
	logged   time.Time
}

// quarantine makes the record of a refused message.
func (m stored) quarantine(err error) *Refusal {
	var why *refused
	if !errors.As(err, &why) {
		return nil
	}
	return &Refusal{
		Reason: why.reason, Detail: events.Shorten(why.detail, 512), Subject: m.subject,
		Excerpt: bytes.Clone(m.data[:min(len(m.data), events.QuarantineBytes)]), Bytes: len(m.data),
	}
}
