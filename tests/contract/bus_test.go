package contract

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
)

// newBus connects to a server of its own, as cluster opticks.
func newBus(t *testing.T) (context.Context, *bus.Bus) {
	t.Helper()
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	carrier, err := bus.Connect(ctx, bus.Config{URL: server.URL(), Name: "contract", Cluster: "opticks"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(carrier.Close)
	if err := carrier.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx, carrier
}

// publishRaw says something as a stranger would: plain NATS, plain JSON.
func publishRaw(t *testing.T, ctx context.Context, carrier *bus.Bus, subject string, text []byte) {
	t.Helper()
	_, err := carrier.JetStream().PublishMsg(ctx, &nats.Msg{
		Subject: subject, Data: text, Header: nats.Header{"Content-Type": {bus.ContentType}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheBusHearsAnExampleAsTheCloudEventsSDKDoes(t *testing.T) {
	ctx, carrier := newBus(t)
	eachExample(t, func(t *testing.T, example example) {
		expected := example.event(t)
		publishRaw(t, ctx, carrier, expected.SubjectName(), example.text)
		stream := events.EventStream
		if example.row.Plan {
			stream = events.PlanStream
		}
		heard, found, err := carrier.LastEvent(ctx, stream, expected.SubjectName())
		if err != nil || !found {
			t.Fatalf("found %v, error %v", found, err)
		}
		expected.Sequence, expected.Logged = heard.Sequence, heard.Logged
		same := string(heard.Data) == string(expected.Data) && heard.Time.Equal(expected.Time)
		heard.Data, heard.Time, expected.Data, expected.Time = nil, time.Time{}, nil, time.Time{}
		if asText(t, heard) != asText(t, expected) || !same {
			t.Errorf("heard\n%s\nexpected\n%s", asText(t, heard), asText(t, expected))
		}
	})
}

func TestTheBusSaysAnExampleAsItsSchemaDemands(t *testing.T) {
	ctx, carrier := newBus(t)
	eachExample(t, func(t *testing.T, example example) {
		event := example.event(t)
		if _, err := carrier.Publish(ctx, event); err != nil {
			t.Fatal(err)
		}
		stream := events.EventStream.Name
		if example.row.Plan {
			stream = events.PlanStream.Name
		}
		stored, err := carrier.JetStream().Stream(ctx, carrier.Lane(stream))
		if err != nil {
			t.Fatal(err)
		}
		message, err := stored.GetLastMsgForSubject(ctx, event.SubjectName())
		if err != nil {
			t.Fatal(err)
		}
		if err := schemaOf(t, schemaPath(event.Kind)).Validate(anyJSON(t, message.Data)); err != nil {
			t.Error(err)
		}
	})
}

// fault is an example made wrong, and how the bus must refuse it.
type fault struct {
	what    string
	subject string
	text    []byte
	reason  string
	names   string // what the detail must name
}

func TestTheBusRefusesEveryMutationOfAnExampleByName(t *testing.T) {
	var faults []fault
	for _, example := range examples(t) {
		if !example.row.Plan { // the plan stream is write-once; its payload is also that of negotiation.scheduled
			faults = append(faults, envelopeFaults(t, example)...)
		}
	}
	eachPlace(t, func(t *testing.T, example example, whole any, at place) {
		if !example.row.Plan && at.path[0] == "data" && len(at.path) > 1 {
			faults = append(faults, fieldFaults(t, example, whole, at)...)
		}
	})
	if len(faults) < 500 {
		t.Errorf("%d faults, expected hundreds", len(faults))
	}
	mustRefuse(t, faults)
}

// mustRefuse publishes each fault and demands that the bus hears a refusal of it, in order.
func mustRefuse(t *testing.T, faults []fault) {
	ctx, carrier := newBus(t)
	consumer, err := carrier.Consume(ctx, "judge", 0, []string{"reknit.event.>"})
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Stop()
	for _, fault := range faults {
		publishRaw(t, ctx, carrier, fault.subject, fault.text)
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
		refusal := delivery.Refusal
		if refusal == nil {
			t.Errorf("%s: accepted, expected %s", fault.what, fault.reason)
		} else if refusal.Reason != fault.reason || !strings.Contains(refusal.Detail, fault.names) {
			t.Errorf("%s: refused as %s: %s, expected %s that names %q", fault.what, refusal.Reason, refusal.Detail,
				fault.reason, fault.names)
		}
	}
}

// fieldFaults are a payload without a field that is required, and with a value of wrong type there.
func fieldFaults(t *testing.T, example example, whole any, at place) []fault {
	subject, path := example.event(t).SubjectName(), strings.Join(at.path, "/")
	var faults []fault
	if at.required {
		without := changed(whole, at.path, func(object map[string]any, field string) { delete(object, field) })
		faults = append(faults, fault{example.name + ": without " + path, subject, []byte(asText(t, without)), bus.Invalid,
			at.field()})
	}
	wrong := changed(whole, at.path, func(object map[string]any, field string) { object[field] = wrongValue(at.schema) })
	return append(faults, fault{example.name + ": wrong type at " + path, subject, []byte(asText(t, wrong)), bus.Invalid,
		at.field()})
}

// envelopeFaults are the wrong envelopes of an example. Whatever is wrong, the refusal names the attribute.
func envelopeFaults(t *testing.T, example example) []fault {
	subject, whole := example.event(t).SubjectName(), anyJSON(t, example.text)
	var faults []fault
	add := func(what, reason, names string, text []byte) {
		faults = append(faults, fault{example.name + ": " + what, subject, text, reason, names})
	}
	set := func(what, reason, field string, value any) {
		add(what, reason, field, []byte(asText(t,
			changed(whole, []string{field}, func(object map[string]any, field string) { object[field] = value }))))
	}
	for field, reason := range map[string]string{
		"specversion": bus.Malformed, "id": bus.Malformed, "type": bus.Malformed, "source": bus.Malformed,
		"subject": bus.Malformed, "cluster": bus.WrongCluster, "data": bus.Invalid,
	} {
		add("without "+field, reason, field, []byte(asText(t,
			changed(whole, []string{field}, func(object map[string]any, field string) { delete(object, field) }))))
	}
	set("wrong cluster", bus.WrongCluster, "cluster", "principia")
	set("another subject", bus.Malformed, "subject", "n99")
	set("source nobody", bus.WrongSource, "source", "/nobody")
	set("version 2", bus.UnknownVersion, "type", strings.TrimSuffix(example.row.Kind.Type(), "1")+"2")
	set("unknown type", bus.Malformed, "type", "io.reknit.apple.fallen.v1")
	set("a list as id", bus.Malformed, "id", []string{"a"})
	set("data over the limit", bus.Oversized, "bytes", strings.Repeat("x", events.MaxEventBytes))
	add("cut off", bus.Malformed, "JSON", example.text[:len(example.text)/2])
	add("empty", bus.Malformed, "JSON", nil)
	return faults
}

func TestANodeCannotSpeakForAnother(t *testing.T) {
	var faults []fault
	for _, example := range examples(t) {
		event := example.event(t)
		if !strings.HasPrefix(event.Source, events.NodeSource("")) || !strings.Contains(string(event.Data), `"node"`) {
			continue
		}
		whole := changed(anyJSON(t, example.text), []string{"source"},
			func(object map[string]any, field string) { object[field] = events.NodeSource("n99") })
		faults = append(faults, fault{example.name, event.SubjectName(), []byte(asText(t, whole)), bus.WrongSource, "n99"})
	}
	if len(faults) == 0 {
		t.Fatal("no node speaks in the examples")
	}
	mustRefuse(t, faults)
}

func asText(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
