package bus

import (
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/reknit/reknit/events"
)

// speaker returns how a node signs, and its id.
func speaker(t testing.TB) (kit, string) {
	t.Helper()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	id, err := nkeys.Encode(nkeys.PrefixByteUser, public)
	if err != nil {
		t.Fatal(err)
	}
	return kit{Identity: Identity{Key: string(id), Speakers: map[string]string{"monitor": string(id)}}, signer: key}, string(id)
}

func exit(node string) events.Event {
	speaker := events.Speaker{Source: events.NodeSource(node), Cluster: "c"}
	return speaker.First(time.Unix(1_800_000_000, 120_000_000), "first", events.NodeExited, node,
		&events.Exit{Node: node, Incarnation: "i", Reason: `ended by <signal> & "quoted"`})
}

// travel returns what a receiver reads of an event that somebody signs.
func travel(t testing.TB, k kit, event events.Event) (events.Event, envelope) {
	t.Helper()
	signature, err := k.sign(event, "")
	if err != nil {
		t.Fatal(err)
	}
	text, err := encode(event, envelope{signature: signature})
	if err != nil {
		t.Fatal(err)
	}
	heard, e, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	return heard, e
}

func TestAnEventIsBelievedAsItWasSignedAndNotOtherwise(t *testing.T) {
	k, id := speaker(t)
	event, e := travel(t, k, exit(id))
	if err := k.verify(event, e, time.Time{}); err != nil {
		t.Fatalf("as it was signed: %v", err)
	}
	_, another := speaker(t)
	for what, change := range map[string]func(*events.Event, *envelope){
		"id":           func(event *events.Event, _ *envelope) { event.ID += "0" },
		"kind":         func(event *events.Event, _ *envelope) { event.Kind = events.JoinRequested },
		"source":       func(event *events.Event, _ *envelope) { event.Source = events.NodeSource(another) },
		"no key":       func(event *events.Event, _ *envelope) { event.Source = events.NodeSource("n1") },
		"service":      func(event *events.Event, _ *envelope) { event.Source = "/negotiator" },
		"subject":      func(event *events.Event, _ *envelope) { event.Subject = another },
		"cluster":      func(event *events.Event, _ *envelope) { event.Cluster = "d" },
		"cause":        func(event *events.Event, _ *envelope) { event.Cause = "x" },
		"trace":        func(event *events.Event, _ *envelope) { event.Traceparent = "x" },
		"time":         func(event *events.Event, _ *envelope) { event.Time = event.Time.Add(time.Second) },
		"data":         func(event *events.Event, _ *envelope) { event.Data = append(event.Data, ' ') },
		"dataref":      func(_ *events.Event, e *envelope) { e.dataref = events.Digest(nil) },
		"signature":    func(_ *events.Event, e *envelope) { e.signature = strings.Repeat("A", len(e.signature)) },
		"no signature": func(_ *events.Event, e *envelope) { e.signature = "" },
	} {
		forged, wire := event, e
		change(&forged, &wire)
		if err := k.verify(forged, wire, time.Time{}); err == nil || !strings.HasPrefix(err.Error(), Unsigned) {
			t.Errorf("another %s: %v", what, err)
		}
	}
}

func TestAServiceIsBelievedByTheKeyThatTheKitNames(t *testing.T) {
	k, id := speaker(t)
	event := exit(id)
	event.Source = "/monitor"
	if event, e := travel(t, k, event); k.verify(event, e, time.Time{}) != nil {
		t.Error("the monitor's key is not believed")
	}
	other, _ := speaker(t)
	if event, e := travel(t, other, event); k.verify(event, e, time.Time{}) == nil {
		t.Error("another's key is believed")
	}
}

func TestOnlyWhoSignsKnowsTheMessageIDOfAnEvent(t *testing.T) {
	k, _ := speaker(t)
	other, _ := speaker(t)
	first, again, others := k.messageID("id"), k.messageID("id"), other.messageID("id")
	if first != again || first == others || first == "id" {
		t.Errorf("%s, then %s; another's %s", first, again, others)
	}
}

func BenchmarkSign(b *testing.B) {
	k, id := speaker(b)
	event := exit(id)
	for b.Loop() {
		if _, err := k.sign(event, ""); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	k, id := speaker(b)
	event, e := travel(b, k, exit(id))
	for b.Loop() {
		if err := k.verify(event, e, time.Time{}); err != nil {
			b.Fatal(err)
		}
	}
}
