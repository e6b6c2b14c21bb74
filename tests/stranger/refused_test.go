package stranger

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// nonsense is what a stranger says wrong, by the reason it is refused for. It is said where requests to join are heard.
func nonsense(cluster string) map[string][]string {
	joins, _ := json.Marshal(map[string]any{
		"specversion": "1.0", "id": "x1", "type": "io.reknit.membership.join-requested.v1", "source": "/node/eve", "subject": "eve",
		"cluster": cluster, "datacontenttype": "application/json",
		"data": map[string]any{"node": "eve", "incarnation": "1", "address": "10.0.0.1:7400", "memoryBytes": 1 << 30,
			"job": job(0)},
	})
	but := func(old, new string) string {
		if !strings.Contains(string(joins), old) {
			panic(old)
		}
		return strings.Replace(string(joins), old, new, 1)
	}
	return map[string][]string{
		"malformed":       {"hello", `{"hello":1}`, string(joins[:len(joins)/2]), but("membership.join-requested.v1", "membership.joyned.v1"), but(`"subject":"eve"`, `"subject":"ada"`)},
		"oversized":       {but(`10.0.0.1:7400`, strings.Repeat("x", 65<<10))},
		"unknown-version": {but("requested.v1", "requested.v7")},
		"wrong-cluster":   {but(`"cluster":"`+cluster+`"`, `"cluster":"elsewhere"`)},
		"wrong-source":    {but("/node/eve", "/node/ada"), but("/node/eve", "/monitor"), but(`"node":"eve"`, `"node":"ada"`)},
		"invalid":         {but(`"memoryBytes":1073741824`, `"memoryBytes":-1`), but(`"address":"10.0.0.1:7400",`, ""), but(`"node":"eve"`, `"node":7`)},
	}
}

func TestNonsenseIsRefusedOnceHoweverManyHearItAndHarmsNobody(t *testing.T) {
	h := build(t, "guests", 1)
	expected := map[string]string{} // number of the message -> reason
	for reason, messages := range nonsense("guests") {
		for _, message := range messages {
			sequence := h.put(t, "reknit.event.guests.membership.join-requested.eve", message)
			expected[fmt.Sprint(sequence)] = reason
		}
	}
	refused := map[string]string{}
	for len(refused) < len(expected) {
		event := h.await(t, "event.refused", func(heard) bool { return true })
		refused[event.Subject] = fmt.Sprint(event.Data["reason"])
	}
	if !maps.Equal(refused, expected) {
		t.Errorf("refused  %v\nexpected %v", refused, expected)
	}
	ada := invite(t, h, "guests", "ada", job(0)) // who still hear as ever
	ada.follows(t, 1)
	h.works(t, "ada", 1)
	if again := h.count(t, "reknit.event.guests.event.refused.*"); again != len(expected) {
		t.Errorf("expected %d refusals for ever, got %d", len(expected), again)
	}
	h.judge(t)
}

// put publishes bytes and returns their number in the stream.
func (h *house) put(t *testing.T, subject, message string) uint64 {
	t.Helper()
	answer, err := h.conn.Request(subject, []byte(message), patience)
	if err != nil {
		t.Fatal(err)
	}
	var ack struct{ Seq uint64 }
	if err := json.Unmarshal(answer.Data, &ack); err != nil || ack.Seq == 0 {
		t.Fatalf("expected an acknowledgement, got %s", answer.Data)
	}
	return ack.Seq
}

// count returns how many messages the event stream holds on a subject.
func (h *house) count(t *testing.T, subject string) int {
	t.Helper()
	stream, err := h.conn.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.StreamInfo("REKNIT_EVENTS_"+h.cluster, &nats.StreamInfoRequest{SubjectsFilter: subject})
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, messages := range info.State.Subjects {
		total += int(messages)
	}
	return total
}
