package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

var (
	ajv   = flag.String("ajv", "", "folder in which npm installed ajv (make test-contract-ajv)")
	draws = flag.Int("draws", 60, "events of each kind that are drawn to compare schemas and services")
)

// drawn is an event, or something next to one, and what becomes of it.
type drawn struct {
	Kind    events.Kind     `json:"kind"`
	Text    json.RawMessage `json:"text"`
	subject string          // of NATS
	refusal *bus.Refusal    // of the services; nil: they took it
}

// drawAll draws events of all kinds but the plan's, whose stream is write-once and whose payload stands in others: a whole
// payload, a value in its place, and something near that.
func drawAll(t *testing.T, seed uint64) (all []*drawn) {
	comments, err := parseComments()
	if err != nil {
		t.Fatal(err)
	}
	dice := rand.New(rand.NewPCG(seed, 35))
	for _, example := range examples(t) {
		if example.row.Plan {
			continue
		}
		schema, whole := eventSchema(example.row, comments), anyJSON(t, example.text).(map[string]any)
		drawer := drawer{dice, schema.Defs}
		fields := places(schema, schema, whole, nil)
		for number := range *draws {
			event := drawer.event(schema, whole, fields, number)
			text, err := json.Marshal(event)
			if err != nil {
				t.Fatal(err)
			}
			one := &drawn{Kind: example.row.Kind, Text: text, subject: example.event(t).SubjectName()}
			if subject, is := event["subject"].(string); is && events.Token(subject) {
				one.subject = events.EventSubject("opticks", example.row.Kind, subject)
			}
			all = append(all, one)
		}
	}
	return append(all, seldom(t)...)
}

// seldom are events that break a rule to which the dice seldom come.
func seldom(t *testing.T) (all []*drawn) {
	between := map[string]any{"from": "b", "to": "a", "roundTripSeconds": 0.1, "bandwidthBytesPerSecond": 1}
	for _, spoilt := range []struct {
		example string
		path    []string
		value   any
	}{
		{"membership.join-requested.v1.data-parallel.json", []string{"data", "job", "data"}, "local"},
		{"plan.requested.v1.json", []string{"data", "usual"}, map[string]any{"roundTripSeconds": 0.1, "bandwidthBytesPerSecond": 1,
			"between": []any{between, between}}},
		{"restoration.requested.v1.json", []string{"data", "units"}, []any{}},
		{"link.lost.v1.json", []string{"data", "to"}, "n1"},
		{"membership.join-requested.v1.json", []string{"data", "neighbours"}, []any{"n9", "n9"}},
	} {
		for _, example := range examples(t) {
			if example.name == spoilt.example {
				set := func(object map[string]any, field string) { object[field] = spoilt.value }
				event := changed(changed(anyJSON(t, example.text), spoilt.path, set), []string{"data", "samples"},
					func(object map[string]any, field string) { delete(object, field) })
				all = append(all, &drawn{Kind: example.row.Kind, Text: []byte(asText(t, event)), subject: example.event(t).SubjectName()})
			}
		}
	}
	return all
}

// event draws an event that begins as an example.
func (d drawer) event(schema *Schema, whole map[string]any, fields []place, number int) map[string]any {
	set := func(at place, value any) map[string]any {
		return changed(whole, at.path, func(object map[string]any, field string) { object[field] = value }).(map[string]any)
	}
	at := fields[d.dice.IntN(len(fields))]
	switch number % 4 {
	case 0:
		data := place{path: []string{"data"}, schema: schema.property("data")}
		return d.spokenFor(set(data, d.value(data.schema)))
	case 1:
		return set(at, d.value(at.schema))
	case 2:
		return set(at, d.near(at.schema))
	}
	event := d.inside(schema, whole).(map[string]any)
	if d.dice.IntN(8) == 0 {
		event["comment"] = strings.Repeat("x", events.MaxEventBytes)
	}
	return event
}

// spokenFor has the node that a payload names be the one that says it, or most would break the same rule.
func (d drawer) spokenFor(event map[string]any) map[string]any {
	data, _ := event["data"].(map[string]any)
	node, _ := data["node"].(string)
	source, _ := event["source"].(string)
	if entity, _, _ := strings.Cut(strings.TrimPrefix(event["type"].(string), "io.reknit."), "."); node != "" &&
		(entity == "membership" || entity == "node") {
		event["subject"] = node
	}
	if strings.HasPrefix(source, events.NodeSource("")) && node != "" {
		event["source"] = events.NodeSource(node)
	}
	return event
}

func (s *Schema) property(name string) *Schema {
	for _, property := range s.Properties {
		if property.Name == name {
			return property.Schema
		}
	}
	return nil
}

// hear says what was drawn on a bus and notes what its reader refuses.
func hear(t *testing.T, all []*drawn) {
	ctx, carrier := newBus(t)
	consumer, err := carrier.Consume(ctx, "judge", 0, []string{"reknit.event.>"})
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Stop()
	for _, one := range all {
		message := &nats.Msg{Subject: one.subject, Data: one.Text, Header: nats.Header{"Content-Type": {bus.ContentType}}}
		if _, err := carrier.JetStream().PublishMsg(ctx, message); err != nil {
			t.Fatal(err)
		}
		sealed, err := consumer.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		delivery, err := sealed.Open(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := delivery.Ack(); err != nil {
			t.Fatal(err)
		}
		one.refusal = delivery.Refusal
	}
}

var brokenRule = regexp.MustCompile(`\(rule ([a-z-]+)\)`)

// agree fails where a schema takes what the services refuse for no rule, or refuses what they take, and returns how often
// each rule was broken.
func agree(t *testing.T, all []*drawn, schemaRefuses func(i int) error) map[string]int {
	t.Helper()
	broken, taken := map[string]int{}, 0
	for i, one := range all {
		refuses := schemaRefuses(i)
		switch {
		case refuses == nil && one.refusal == nil:
			taken++
		case refuses == nil:
			if rule := brokenRule.FindStringSubmatch(one.refusal.Detail); rule != nil {
				broken[rule[1]]++
			} else {
				t.Errorf("%s: the schema takes it, and the services refuse it without a rule: %s: %s\n%.600s",
					one.Kind, one.refusal.Reason, one.refusal.Detail, one.Text)
			}
		case one.refusal == nil:
			t.Errorf("%s: the services take it, and the schema refuses it: %v\n%.600s", one.Kind, refuses, one.Text)
		}
	}
	t.Logf("%d drawn, %d taken by both, rules broken: %v", len(all), taken, broken)
	if taken < len(all)/5 {
		t.Errorf("%d of %d were taken, expected a fifth at least: too few to tell", taken, len(all))
	}
	return broken
}

func TestWhatASchemaTakesTheServicesTakeAndTheOtherWayRound(t *testing.T) {
	all := drawAll(t, 1)
	hear(t, all)
	broken := agree(t, all, func(i int) error {
		return schemaOf(t, schemaPath(all[i].Kind)).Validate(anyJSON(t, all[i].Text))
	})
	for _, rule := range events.Rules {
		if rule.Of == "Keeping" {
			continue // it is no event's
		}
		if broken[rule.Name] == 0 {
			t.Errorf("rule %s: no draw broke it: is it needed?", rule.Name)
		}
		delete(broken, rule.Name)
	}
	if len(broken) > 0 {
		t.Errorf("rules that events.Rules lacks were broken: %v", broken)
	}
}

// Decode reads messages that travel beside the events as well.
func TestWhatASchemaOfAMessageTakesIsReadAndTheOtherWayRound(t *testing.T) {
	comments, err := parseComments()
	if err != nil {
		t.Fatal(err)
	}
	dice, all := rand.New(rand.NewPCG(3, 35)), []*drawn(nil)
	for _, message := range Messages {
		kind := reflect.TypeOf(message.Payload)
		if _, isRead := reflect.New(kind).Interface().(events.Payload); !isRead {
			continue
		}
		schema := generator{comments: comments, defs: map[string]*Schema{}}.document(kind)
		drawer, whole := drawer{dice, schema.Defs}, anyJSON(t, read(t, "examples/"+message.Name+".json"))
		fields := places(schema, schema, whole, nil)
		for range *draws {
			text := asText(t, drawer.message(schema, whole, fields))
			one := &drawn{Kind: events.Kind(message.Name), Text: []byte(text)}
			if err := events.Decode(one.Text, reflect.New(kind).Interface().(events.Payload)); err != nil {
				one.refusal = &bus.Refusal{Detail: err.Error()}
			}
			all = append(all, one)
		}
	}
	agree(t, all, func(i int) error {
		return schemaOf(t, "schema/"+string(all[i].Kind)+".json").Validate(anyJSON(t, all[i].Text))
	})
}

func (d drawer) message(schema *Schema, whole any, fields []place) any {
	at := fields[d.dice.IntN(len(fields))]
	value := d.value(at.schema)
	switch d.dice.IntN(4) {
	case 0:
		return d.object(schema)
	case 1:
		return d.inside(schema, whole.(map[string]any))
	case 2:
		value = d.near(at.schema)
	}
	return changed(whole, at.path, func(object map[string]any, field string) { object[field] = value })
}

// verdict is what another language's validator says of an event; empty: it takes it.
type verdict struct{ Error string }

func TestAValidatorOfAnotherLanguageSaysAsTheServicesDo(t *testing.T) {
	if *ajv == "" {
		t.Skip("make test-contract-ajv installs ajv and runs this")
	}
	all := drawAll(t, 2)
	hear(t, all)
	var lines bytes.Buffer
	for _, one := range all {
		if err := json.NewEncoder(&lines).Encode(one); err != nil {
			t.Fatal(err)
		}
	}
	script, err := os.ReadFile("ajv.mjs")
	if err != nil {
		t.Fatal(err)
	}
	schemas, err := filepath.Abs(filepath.Join(eventsFolder, "schema"))
	if err != nil {
		t.Fatal(err)
	}
	node := exec.CommandContext(t.Context(), "node", "--input-type=module", "-e", string(script), schemas)
	node.Dir, node.Stdin, node.Stderr = *ajv, &lines, os.Stderr
	said, err := node.Output()
	if err != nil {
		t.Fatal(err)
	}
	var verdicts []verdict
	if err := json.Unmarshal(said, &verdicts); err != nil || len(verdicts) != len(all) {
		t.Fatalf("%d verdicts, expected %d: %v", len(verdicts), len(all), err)
	}
	agree(t, all, func(i int) error {
		if verdicts[i].Error == "" {
			return nil
		}
		return errors.New(verdicts[i].Error)
	})
}
