package bus_test

import (
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// badMessages has, for each reason, messages that are refused for it.
func badMessages() map[string]map[string]string {
	const data = `,"data":{"node":"n1","incarnation":"a","reason":"","silentSeconds":0,"failuresPerNodeSecond":0}}`
	good := `{"specversion":"1.0","id":"i1","source":"/monitor","type":"io.reknit.node.lost.v1","subject":"n1","cluster":"test",` +
		`"datacontenttype":"application/json"` + data
	change := func(old, new string) string {
		if !strings.Contains(good, old) {
			panic(old)
		}
		return strings.Replace(good, old, new, 1)
	}
	return map[string]map[string]string{
		bus.Oversized: {"70 KiB": change(`"reason":""`, `"reason":"`+strings.Repeat("x", 70<<10)+`"`)},
		bus.Malformed: {
			"no JSON":           "node n1 is lost",
			"half a message":    good[:len(good)/2],
			"no CloudEvent":     `{"node":"n1"}`,
			"no source":         change(`"source":"/monitor",`, ``),
			"unknown kind":      change("node.lost.v1", "node.sneezed.v1"),
			"subject elsewhere": change(`"subject":"n1"`, `"subject":"n2"`),
			"subject no token":  change(`"subject":"n1"`, `"subject":"n.*"`),
		},
		bus.UnknownVersion: {"v2": change("lost.v1", "lost.v2")},
		bus.WrongCluster:   {"other": change(`"cluster":"test"`, `"cluster":"other"`), "none": change(`"cluster":"test",`, ``)},
		bus.WrongSource:    {"planner": change("/monitor", "/planner"), "node": change("/monitor", "/node/n1")},
		bus.Invalid: {
			"no data":    change(data, "}"),
			"field":      change(`"incarnation":"a"`, `"incarnation":"a b"`),
			"wrong type": change(`"silentSeconds":0`, `"silentSeconds":"0"`),
			"two nodes":  change(`"node":"n1"`, `"node":"n2"`),
		},
		bus.Unreadable: {"no such ref": change(data, `,"dataref":"`+events.Digest(nil)+`"}`)},
	}
}

func TestWhatIsNoEventIsRefusedWithItsReasonAndNeverComesAgain(t *testing.T) {
	bus.SetUnreadableAfter(t, 0)
	ctx, b := newBus(t)
	subject := events.EventSubject(cluster, events.NodeLost, "n1")
	consumer := consume(t, ctx, b)
	for reason, messages := range badMessages() {
		for name, message := range messages {
			if _, err := b.JetStream().Publish(ctx, subject, []byte(message)); err != nil {
				t.Fatal(err)
			}
			delivery := next(t, ctx, consumer)
			if delivery.Refusal == nil {
				t.Errorf("%s (%s): was let in", reason, name)
			} else if r := delivery.Refusal; r.Reason != reason || r.Subject != subject ||
				r.Bytes != len(message) || !strings.HasPrefix(message, string(r.Excerpt)) || r.Validate() != nil {
				t.Errorf("%s (%s): got %s: %s", reason, name, r.Reason, r.Detail)
			}
			if err := delivery.Ack(); err != nil {
				t.Fatal(err)
			}
		}
	}
	publish(t, ctx, b, lost("n1", "silent"))
	if last := next(t, ctx, consumer); last.Refusal != nil || last.Event.Subject != "n1" {
		t.Errorf("expected the event behind the refused ones, got %+v", last)
	}
}

func TestANodeSpeaksOnlyForItself(t *testing.T) {
	ctx, b := newBus(t)
	n1 := events.Speaker{Source: events.NodeSource("n1"), Cluster: cluster}
	for name, event := range map[string]events.Event{
		"another's leave":  n1.First(time.Now(), "x", events.LeaveRequested, "n2", &events.Leave{Node: "n2"}),
		"another's data":   n1.First(time.Now(), "x", events.LeaveRequested, "n1", &events.Leave{Node: "n2"}),
		"another's answer": n1.First(time.Now(), "x", events.Consented, "g1", &events.Consent{Negotiation: "g1", Node: "n2"}),
		"others' link": n1.First(time.Now(), "x", events.DisconnectRequested, "l",
			&events.LinkRequest{From: "n2", To: "n3"}),
		"a verdict": n1.First(time.Now(), "x", events.NodeLost, "n1", &events.NodeState{Node: "n1", Incarnation: "a"}),
	} {
		if _, err := b.Publish(ctx, event); !bus.IsRefusal(err) || !strings.Contains(err.Error(), bus.WrongSource) {
			t.Errorf("%s: expected %s, got %v", name, bus.WrongSource, err)
		}
	}
	publish(t, ctx, b, n1.First(time.Now(), "x", events.LeaveRequested, "n1", &events.Leave{Node: "n1"}))
	for link, request := range map[string]*events.LinkRequest{"a": {From: "n1", To: "n2"}, "b": {From: "n2", To: "n1"}} {
		publish(t, ctx, b, n1.First(time.Now(), "x", events.ConnectRequested, link, request))
	}
}
