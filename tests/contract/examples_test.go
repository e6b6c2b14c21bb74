package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/reknit/reknit/events"
)

// example is one file of events/examples. Beside <kind>.v1.json a kind may have others, <kind>.v1.<variant>.json.
type example struct {
	name string // of the file
	row  events.Row
	text []byte
}

// examples returns every example of an event, ordered by name.
func examples(t *testing.T) []example {
	t.Helper()
	var found []example
	for _, name := range exampleFiles(t) {
		kind, _, isEvent := strings.Cut(name, ".v1.")
		if !isEvent {
			continue
		}
		row, known := events.Kind(kind).Row()
		if !known {
			t.Errorf("examples/%s: kind %q is not in the catalogue", name, kind)
			continue
		}
		found = append(found, example{name, row, read(t, "examples/"+name)})
	}
	return found
}

func exampleFiles(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(eventsFolder, "examples"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(eventsFolder, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// eachExample runs a test for every example.
func eachExample(t *testing.T, test func(*testing.T, example)) {
	for _, example := range examples(t) {
		t.Run(example.name, func(t *testing.T) { test(t, example) })
	}
}

// event decodes the example through the CloudEvents SDK: an event of Reknit as the specification's own people see it.
func (e example) event(t *testing.T) events.Event {
	t.Helper()
	var wire cloudevents.Event
	if err := json.Unmarshal(e.text, &wire); err != nil {
		t.Fatal(err)
	}
	if err := wire.Validate(); err != nil {
		t.Fatal(err)
	}
	kind, err := events.KindOf(wire.Type())
	if err != nil {
		t.Fatal(err)
	}
	extension := func(name string) string { text, _ := wire.Extensions()[name].(string); return text }
	return events.Event{
		ID: wire.ID(), Kind: kind, Source: wire.Source(), Subject: wire.Subject(), Time: wire.Time(), Data: wire.Data(),
		Cluster: extension("cluster"), Cause: extension("cause"), Traceparent: extension("traceparent"),
	}
}

func TestEveryEventHasAnExample(t *testing.T) {
	files := exampleFiles(t)
	for _, row := range events.Catalogue {
		if !slices.Contains(files, filepath.Base(examplePath(row.Kind))) {
			t.Errorf("%s: no %s", row.Kind, examplePath(row.Kind))
		}
	}
	for _, message := range Messages {
		if !slices.Contains(files, message.Name+".json") {
			t.Errorf("%s: no examples/%s.json", message.Name, message.Name)
		}
	}
}

// The stream takes events of one id for one event.
func TestEachExampleHasAnIdOfItsOwn(t *testing.T) {
	has := map[string]string{}
	for _, example := range examples(t) {
		id := example.event(t).ID
		if other := has[id]; other != "" {
			t.Errorf("%s: expected an id that no other example has, got that of %s: %s", example.name, other, id)
		}
		has[id] = example.name
	}
}

func TestThePayloadOfAnExampleIsDecodedAndEncodedWithoutLoss(t *testing.T) {
	eachExample(t, func(t *testing.T, example example) {
		event := example.event(t)
		payload := example.row.New()
		if err := decodeStrictly(event.Data, payload); err != nil {
			t.Fatal(err)
		}
		if err := payload.Validate(); err != nil {
			t.Error(err)
		}
		again, err := json.Marshal(payload)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(anyJSON(t, event.Data), anyJSON(t, again)) {
			t.Errorf("encoded again it is another payload:\n%s\nexpected\n%s", again, event.Data)
		}
	})
}

func TestMessagesOutsideTheStreamAreDecodedAndEncodedWithoutLoss(t *testing.T) {
	for _, message := range Messages {
		for _, name := range exampleFiles(t) {
			if stem, _, _ := strings.Cut(name, "."); stem != message.Name {
				continue
			}
			payload := reflect.New(reflect.TypeOf(message.Payload)).Interface()
			text := read(t, "examples/"+name)
			if err := decodeStrictly(text, payload); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			again, err := json.Marshal(payload)
			if err != nil || !reflect.DeepEqual(anyJSON(t, text), anyJSON(t, again)) {
				t.Errorf("%s: encoded again it is %s (%v)", name, again, err)
			}
			if err := schemaOf(t, "schema/"+message.Name+".json").Validate(anyJSON(t, text)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestTypeSubjectAndSpeakerOfAnExampleAreThoseOfItsRow(t *testing.T) {
	eachExample(t, func(t *testing.T, example example) {
		event := example.event(t)
		if event.Kind != example.row.Kind {
			t.Errorf("kind %q, expected %q", event.Kind, example.row.Kind)
		}
		if !example.row.Authorised(event.Source) {
			t.Errorf("source %q, expected one of %q", event.Source, example.row.SaidBy)
		}
		expected := events.EventSubject("opticks", example.row.Kind, event.Subject)
		if example.row.Plan {
			expected = events.PlanSubject("opticks", event.Subject)
		}
		if event.SubjectName() != expected {
			t.Errorf("NATS subject %q, expected %q", event.SubjectName(), expected)
		}
		if named := namedBy(t, event); named != "" && event.Subject != named {
			t.Errorf("subject %q, expected the %s's id %q", event.Subject, event.Kind.About(), named)
		}
	})
}

// namedBy returns the id that the payload gives to what the event's subject names; empty where it has none.
func namedBy(t *testing.T, event events.Event) string {
	var fields struct {
		Node, Negotiation, Service, From, To, Tier string
		Generation, Unit                           json.Number
	}
	if err := json.Unmarshal(event.Data, &fields); err != nil {
		t.Fatal(err)
	}
	return map[events.About]string{
		events.AboutNode: fields.Node, events.AboutNegotiation: fields.Negotiation, events.AboutService: fields.Service,
		events.AboutCluster: event.Cluster,
		events.AboutLink:    fields.From + "-" + fields.To, events.AboutUnit: "unit-" + fields.Unit.String(),
		events.AboutGeneration: fields.Generation.String(), events.AboutTier: fields.Tier,
	}[event.Kind.About()]
}

func TestAnExampleTravelsWhole(t *testing.T) {
	eachExample(t, func(t *testing.T, example example) {
		if len(example.text) > events.MaxEventBytes {
			t.Errorf("%d bytes, at most %d", len(example.text), events.MaxEventBytes)
		}
	})
}

func TestTheIdOfACausedExampleFollowsFromItsCause(t *testing.T) {
	known := map[string]events.Event{}
	for _, example := range examples(t) {
		event := example.event(t)
		known[event.ID] = event
	}
	for _, example := range examples(t) {
		event := example.event(t)
		cause, ok := known[event.Cause]
		if !ok {
			continue // a first cause, or caused by an event that is not told here
		}
		payload := example.row.New()
		if err := json.Unmarshal(event.Data, payload); err != nil {
			t.Fatal(err)
		}
		said := events.Speaker{Source: event.Source, Cluster: event.Cluster}.Say(cause, event.Kind, event.Subject, payload)
		if said.ID != event.ID {
			t.Errorf("%s: id %s, expected %s", example.name, event.ID, said.ID)
		}
		if event.Time.Before(cause.Time) {
			t.Errorf("%s: said at %v, before its cause at %v", example.name, event.Time, cause.Time)
		}
	}
}

func TestTheCommittedDigestIsThatOfTheCommittedPlan(t *testing.T) {
	find := func(kind events.Kind) events.Event {
		name := filepath.Base(examplePath(kind))
		for _, example := range examples(t) {
			if example.name == name {
				return example.event(t)
			}
		}
		t.Fatal("no example", name)
		return events.Event{}
	}
	plan, err := events.Open[events.Plan](find(events.PlanCommitted))
	if err != nil {
		t.Fatal(err)
	}
	commitment, err := events.Open[events.Commitment](find(events.Committed))
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	if digest := events.Digest(data); commitment.PlanDigest != digest {
		t.Errorf("planDigest %s, expected %s", commitment.PlanDigest, digest)
	}
}

func decodeStrictly(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// anyJSON decodes to maps, lists and numbers as they are written.
func anyJSON(t *testing.T, text []byte) any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		t.Fatal(fmt.Errorf("%w in %s", err, text))
	}
	return value
}
