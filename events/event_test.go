package events

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

var (
	monitor = Speaker{Source: "/monitor", Cluster: "opticks"}
	n4Lost  = &NodeState{Node: "n4", Incarnation: "a1", Reason: "silent"}
)

func TestARepeatedCauseSaysTheSameEvent(t *testing.T) {
	cause := Event{ID: "cause", Traceparent: "00-trace", Logged: time.Unix(100, 0)}
	first, again := monitor.Say(cause, NodeLost, "n4", n4Lost), monitor.Say(cause, NodeLost, "n4", n4Lost)
	if first.ID != again.ID || string(first.Data) != string(again.Data) || !first.Time.Equal(again.Time) {
		t.Errorf("said %+v, then %+v", first, again)
	}
	if first.Cause != "cause" || first.Traceparent != "00-trace" || !first.Time.Equal(cause.Logged) {
		t.Errorf("%+v does not carry its cause %+v", first, cause)
	}
}

// The reason of a full disk was cut before "no space left on device", behind paths and temporary names.
func TestATextIsCutInItsMiddle(t *testing.T) {
	for text, expected := range map[string]string{
		"no room: write unit-4: no space left": "no room: …pace left", "no room": "no room",
		"日本日本日本日本": "日本日…本日本", "\xff\xfe": "?",
	} {
		if cut := Shorten(text, 21); cut != expected {
			t.Errorf("%q is cut to %q: expected %q", text, cut, expected)
		}
	}
}

// Each who tells it on writes before it who said it.
func TestAReasonIsCutToWhatMayTravel(t *testing.T) {
	for reason, bytes := range map[string]int{
		strings.Repeat("x", 1100): 1024, strings.Repeat("日", 400): 1023, "\xff\xfe, not a text": 19, "silent": 12,
	} {
		state := *n4Lost
		state.Reason = "lost: " + reason
		read, err := Open[NodeState](monitor.First(time.Unix(100, 0), "reason", NodeLost, "n4", &state))
		if err != nil || len(read.Reason) != bytes || !strings.HasPrefix(read.Reason, "lost: ") {
			t.Errorf("expected %d bytes of %.20q, got %d, %v", bytes, reason, len(read.Reason), err)
		}
	}
}

func TestEventsThatDifferInAnyPartHaveDifferentIds(t *testing.T) {
	at := time.Unix(100, 0)
	said := []Event{
		monitor.First(at, "reason", NodeLost, "n4", n4Lost),
		monitor.First(at, "other", NodeLost, "n4", n4Lost),
		monitor.First(at, "reason", NodeSuspected, "n4", n4Lost),
		monitor.First(at, "reason", NodeLost, "n5", n4Lost),
		monitor.First(at, "4reason", NodeLost, "n", n4Lost), // the same letters, cut elsewhere
		Speaker{"/monitor", "principia"}.First(at, "reason", NodeLost, "n4", n4Lost),
		Speaker{"/planner", "opticks"}.First(at, "reason", NodeLost, "n4", n4Lost),
	}
	seen := map[string]int{}
	for i, event := range said {
		if earlier, taken := seen[event.ID]; taken {
			t.Errorf("events %d and %d share the id %s", earlier, i, event.ID)
		}
		seen[event.ID] = i
		if !Token(event.ID) {
			t.Errorf("id %q cannot stand in a header or subject", event.ID)
		}
	}
}

func TestTheDigestOfALargeUnitIsThatOfItsBlocks(t *testing.T) {
	unit := make([]byte, BlockBytes+1)
	unit[BlockBytes] = 7
	if small := unit[:BlockBytes]; DigestOfUnit(small) != Digest(small) || DigestOfUnit(nil) != Digest(nil) {
		t.Error("expected the digest of one block to be that of its bytes")
	}
	blocks := Digest(unit[:BlockBytes]) + "\n" + Digest([]byte{7}) + "\n"
	if got, want := DigestOfUnit(unit), Digest([]byte(blocks)); got != want {
		t.Errorf("got %s, expected %s", got, want)
	}
}

func TestEveryRowOfTheCatalogueHasOneKindAndOneType(t *testing.T) {
	seen := map[Kind]bool{}
	for _, row := range Catalogue {
		if seen[row.Kind] {
			t.Errorf("%s stands in the catalogue twice", row.Kind)
		}
		seen[row.Kind] = true
		if kind, err := KindOf(row.Kind.Type()); err != nil || kind != row.Kind {
			t.Errorf("type %s is %q (%v), expected %s", row.Kind.Type(), kind, err, row.Kind)
		}
		entity, verb, _ := strings.Cut(string(row.Kind), ".")
		if !Token(entity) || !Token(verb) || string(row.Kind) != strings.ToLower(string(row.Kind)) {
			t.Errorf("%s: expected an entity and a verb in lower case", row.Kind)
		}
		if len(row.SaidBy) == 0 || row.Says == "" {
			t.Errorf("%s: expected who says it and what", row.Kind)
		}
	}
}

func TestATokenIsWhatMayStandInASubject(t *testing.T) {
	for id, expected := range map[string]bool{
		"n4": true, "A-z_0": true, strings.Repeat("x", 64): true,
		"": false, strings.Repeat("x", 65): false, "n 4": false, "n.4": false, "*": false, ">": false, "n4\n": false, "ñ": false,
	} {
		if Token(id) != expected {
			t.Errorf("Token(%q) is %v", id, !expected)
		}
	}
}

func TestAWrongPayloadIsNamedWhenOpened(t *testing.T) {
	for _, test := range []struct{ data, field string }{
		{`{"node":"n 4","incarnation":"a1","reason":"","silentSeconds":1,"failuresPerNodeSecond":0}`, `"node"`},
		{`{"node":"n4","incarnation":"a1","reason":"","silentSeconds":-1,"failuresPerNodeSecond":0}`, `"silentSeconds"`},
		{`{"node":"n4","incarnation":"a1","reason":"","silentSeconds":"1","failuresPerNodeSecond":0}`, "silentSeconds"},
		{`{"node":"n4","incarnation":"a1","reason":"` + strings.Repeat("x", 1025) + `","silentSeconds":1,"failuresPerNodeSecond":0}`, `"reason"`},
		{`{`, "JSON"},
	} {
		_, err := Open[NodeState](Event{Kind: NodeLost, Data: json.RawMessage(test.data)})
		if err == nil || !strings.Contains(err.Error(), test.field) || !strings.Contains(err.Error(), "node.lost") {
			t.Errorf("%.80s: error %v, expected one that names %s", test.data, err, test.field)
		}
	}
}

// No plan could be made with them: one node would stop all others by its word.
func TestASpeedOrALinkThatCannotBeIsRefused(t *testing.T) {
	for _, payload := range []Payload{
		&Profile{Node: "n1", SpeedFactor: 5e-324}, &Profile{Node: "n1", SpeedFactor: 1e300}, &Profile{Node: "n1"},
		&Measurement{From: "n1", To: "n2", RoundTripSeconds: 1e308, BandwidthBytesPerSecond: 1e9},
		&Measurement{From: "n1", To: "n2", RoundTripSeconds: 0.1, BandwidthBytesPerSecond: 5e-324},
		&Measurement{From: "n1", To: "n2", RoundTripSeconds: 0.1, BandwidthBytesPerSecond: 1e300},
	} {
		if payload.Validate() == nil {
			t.Errorf("accepted %+v", payload)
		}
	}
}

func TestAnErrorOfAFieldSaysWhatWasExpected(t *testing.T) {
	err := (&Measurement{From: "n1", To: "n1"}).Validate()
	var wrong *FieldError
	if !errors.As(err, &wrong) || wrong.Field != "to" || !strings.Contains(wrong.Expected, "another node") {
		t.Errorf("error %v, expected the field to and what it should be", err)
	}
}

func TestAValueOfTheWrongTypeIsRefusedByName(t *testing.T) {
	for data, want := range map[string]string{
		`{"node": 3}`: `field "node": expected a text, got a JSON number`,
		`{"node": "n1", "job": {"optimizerPartitions": "3"}}`: `field "job.optimizerPartitions": expected a whole number, got a JSON string`,
		`{"node": "n1", "job": {"layers": {}}}`:               `field "job.layers": expected a list, got a JSON object`,
		`{"node": "n1", "preCopies": 1}`:                      `field "preCopies": expected true or false, got a JSON number`,
		`7`:                                                   `field "data": expected an object, got a JSON number`,
	} {
		if err := Decode([]byte(data), &Join{}); err == nil || err.Error() != want {
			t.Errorf("%s: error %v: expected %s", data, err, want)
		}
	}
}
