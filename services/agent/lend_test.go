package agent

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/snapshots"
)

// The one that asks says how much it is, and a node takes the memory before the first byte comes.
func TestNobodyHasANeighbourTakeMoreMemoryThanItHas(t *testing.T) {
	h := newHub(t)
	h.keeps = snapshots.Settings{MemoryEvery: 1, Keep: 1, MaxBytes: 1 << 40}
	h.join("n1")
	const bytes = 1 << 38
	asks := events.Keeping{Node: "n2", Step: 8, Plan: events.Digest(nil), ShardAddress: "127.0.0.1:1", Bytes: bytes,
		Parts: []events.Part{{Digest: events.Digest(nil), End: bytes}}, Units: []events.KeptUnit{{Bytes: bytes}}}
	if err := asks.Validate(); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(asks)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := h.bus.Conn().Request(events.KeepSubject("c", "n1", ""), text, patience)
	if err != nil {
		t.Fatal(err)
	}
	var reply events.KeepReply
	if err := json.Unmarshal(answer.Data, &reply); err != nil ||
		!strings.Contains(reply.Reason, "expected at most the node's memory, 1073741824") {
		t.Errorf("%v: it answers %q", err, reply.Reason)
	}
}
