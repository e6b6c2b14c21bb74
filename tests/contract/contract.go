// Package contract holds the words of Reknit together: from the structs and the catalogue of package events it derives
// the JSON Schemas, the AsyncAPI document and the table of the README, and its tests prove that schema, struct,
// example, the CloudEvents SDK and shared/bus agree on every event.
package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/reknit/reknit/events"
)

// Message is what travels over core NATS beside the events: plain JSON without an envelope, never stored.
type Message struct {
	Name    string // of its schema and example
	Subject string
	Says    string
	SaidBy  string
	Payload any
}

// Messages lists those that a trainer or a policy plug-in in another language sends or answers.
var Messages = []Message{
	{"pulse", events.PulseSubject("{cluster}", "{node}"), "A heartbeat of a node, every half second or more often.",
		"node", events.Pulse{}},
	{"probe", events.ProbeSubject("{cluster}", "{node}"), "A request to show life, or to measure a link.", "monitor",
		events.Probe{}},
	{"probe-answer", "", "The reply to a probe, on the request's own reply subject.", "node", events.ProbeAnswer{}},
	{"via-hub", events.ShardSubject("{cluster}", "{node}", ""), "A request to put what a node gives into the hub's store too, from a receiver that cannot reach the node's own. The reply is empty.", "node", events.ViaHub{}},
	{"precopy-request", events.PreCopySubject("{cluster}", "{node}", ""), "A request for the layers that a node is to give, or for what a step changed in them, while training goes on.", "node", events.PreCopyRequest{}},
	{"precopy-reply", "", "The answer to that, on the request's own reply subject.", "node", events.PreCopyReply{}},
	{"keeping", events.KeepSubject("{cluster}", "{node}", ""),
		"A request to keep a part of a snapshot in memory, and to fetch it from who asks.", "node", events.Keeping{}},
	{"keep-reply", "", "The answer to that, on the request's own reply subject.", "node", events.KeepReply{}},
	{"policy-request", events.PolicySubject("{cluster}", "{policy}"),
		"A request for a plan to a policy plug-in, beside the planner's own search.", "planner", events.PlanRequest{}},
	{"policy-reply", "", "A plug-in's plan, on the request's own reply subject.", "plug-in", events.PolicyReply{}},
}

// About is what the subject names beside the cluster.
func (m Message) About() string {
	_, last, _ := strings.Cut(m.Subject, ".{cluster}.{")
	return strings.TrimSuffix(last, "}")
}

// Generated returns every derived file by its path below the folder of package events.
func Generated(readme string) (map[string][]byte, error) {
	comments, err := parseComments()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, row := range events.Catalogue {
		files[schemaPath(row.Kind)] = render(eventSchema(row, comments))
	}
	for _, message := range Messages {
		schema := generator{comments: comments, defs: map[string]*Schema{}}.document(reflect.TypeOf(message.Payload))
		schema.Title, schema.Description = message.Name, message.Says+rulesOf(reflect.TypeOf(message.Payload).Name())
		files["schema/"+message.Name+".json"] = render(schema)
	}
	files["schema/rules.json"] = render(events.Rules)
	files["asyncapi.yaml"] = asyncAPI()
	files["README.md"], err = withTable(readme, table())
	return files, err
}

func schemaPath(kind events.Kind) string { return fmt.Sprintf("schema/%s.v1.json", kind) }

func render(document any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(document); err != nil {
		panic(err) // a schema is plain data
	}
	return out.Bytes()
}
