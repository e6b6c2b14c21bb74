// Package audit keeps a record of who did what with consequences, of which it shows whether somebody changed it.
package audit

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nkeys"

	"github.com/reknit/reknit/events"
)

// Line is a line of an audit log.
type Line struct {
	Record    json.RawMessage `json:"record"`              // what is signed, byte for byte
	Signature string          `json:"signature,omitempty"` // URL-safe base64; left out where who recorded it has no key
}

// Record is one thing that happened. It names the line before it, so that none can be changed, removed or moved without that
// those behind it tell: each is a checkpoint of all before it.
type Record struct {
	Number   uint64    `json:"number"`             // from 1 on, without gaps
	Previous string    `json:"previous,omitempty"` // digest of the line before; left out of the first
	By       string    `json:"by,omitempty"`       // public key of who recorded it
	At       time.Time `json:"at"`                 // when the log had it, by the server's clock; of a file, when it was read
	Sequence uint64    `json:"sequence"`           // in the cluster's log; of a file, that of the event before it
	// One of these. Lost counts sequences that the log had dropped before they could be recorded.
	Event *Event `json:"event,omitempty"`
	File  *File  `json:"file,omitempty"`
	Lost  uint64 `json:"lost,omitempty"`
}

// Event is an event as its speaker signed it (events/README.md).
type Event struct {
	ID          string    `json:"id"`
	Type        string    `json:"type"`
	Source      string    `json:"source"`
	Subject     string    `json:"subject"`
	Cluster     string    `json:"cluster"`
	Cause       string    `json:"cause,omitempty"`
	Traceparent string    `json:"traceparent,omitempty"`
	Time        time.Time `json:"time,omitzero"`
	Digest      string    `json:"digest"`         // of the data
	Data        string    `json:"data,omitempty"` // byte for byte; left out where it is longer than MostData
	Signature   string    `json:"signature,omitempty"`
}

// File is a policy that lies in a file, such as who may join (admission.json) and whose keys count (accounts.conf), as it was found
// to be from now on.
type File struct {
	Name   string `json:"name"`
	Digest string `json:"digest,omitempty"` // left out: the file is gone
	Data   string `json:"data,omitempty"`   // left out where it is longer than MostFile
}

// MostData is how many bytes of an event's data are kept with a record, and MostFile of a policy's file, which is recorded where it is
// another only. Longer data are kept as their digest, which is what is signed.
const (
	MostData = 4 << 10
	MostFile = 1 << 20
)

// kept leaves out what is too long, and what JSON cannot carry byte for byte.
func kept(data []byte, most int) string {
	if len(data) > most || !utf8.Valid(data) {
		return ""
	}
	return string(data)
}

// eventOf returns an event as its speaker signed it, as it was heard. The message that it came in tells the signature, and nothing
// else: who sent it may have put anything beside what services read.
func eventOf(event events.Event, message []byte) *Event {
	var attributes map[string]json.RawMessage
	var signature string
	if json.Unmarshal(message, &attributes) == nil {
		_ = json.Unmarshal(attributes["signature"], &signature) // one that is no text was believed by nobody
	}
	return &Event{
		ID: event.ID, Type: event.Kind.Type(), Source: event.Source, Subject: event.Subject, Cluster: event.Cluster, Cause: event.Cause,
		Traceparent: event.Traceparent, Time: event.Time, Digest: events.Digest(event.Data), Data: kept(event.Data, MostData),
		Signature: signature,
	}
}

// signed is the text that a speaker signs.
func (e *Event) signed() []byte {
	when := ""
	if !e.Time.IsZero() {
		when = e.Time.UTC().Format(time.RFC3339Nano)
	}
	text := []byte("reknit event\n")
	for _, part := range []string{e.ID, e.Type, e.Source, e.Subject, e.Cluster, e.Cause, e.Traceparent, when, e.Digest} {
		text = fmt.Appendf(text, "%d:%s", len(part), part)
	}
	return text
}

// domain is what is signed of a line before its record, so that no signature of one thing is one of another.
const domain = "reknit audit record\n"

// write returns a record as a line, without its end. Without a key it is not signed.
func write(record Record, key nkeys.KeyPair) ([]byte, error) {
	text, err := json.Marshal(record)
	if err != nil {
		return nil, err
	}
	line := Line{Record: text}
	if key != nil {
		signature, err := key.Sign(append([]byte(domain), text...))
		if err != nil {
			return nil, err
		}
		line.Signature = base64.RawURLEncoding.EncodeToString(signature)
	}
	return json.Marshal(line)
}

// verified reports whether a signature is that of a public key.
func verified(key, signature string, text []byte) bool {
	pair, err := nkeys.FromPublicKey(key)
	if err != nil {
		return false
	}
	raw, err := base64.RawURLEncoding.DecodeString(signature)
	return err == nil && pair.Verify(text, raw) == nil
}
