package machine

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/reknit/reknit/events"
)

// spent are what the memory may hold of one change: who failed in it, who was waited for, and what was doubted.
var spent = map[string]string{
	"busy":       `{"promising n1": {"since": "2026-01-02T03:04:05Z", "seconds": 9}}`,
	"stopped":    `"2026-01-02T03:04:05Z"`,
	"lacking":    `"2026-01-02T03:04:05Z"`,
	"ask":        `true`,
	"paused":     `true`,
	"misread":    `{"n1": true}`,
	"gone":       `{"n4": "i"}`,
	"fallen":     `{"n4": 7}`,
	"recall":     `{"taken": 1}`,
	"together":   `1`,
	"renewals":   `2`,
	"deferred":   `true`,
	"tellers":    `["n1"]`,
	"unanswered": `2`,
	"blamed":     `{"n1": 1}`,
	"doubts":     `[{"from": "n1", "to": "n3", "times": 1}]`,
}

func (w *world) memory() (memory map[string]json.RawMessage) {
	snapshot, err := w.machine.Snapshot()
	if err == nil {
		err = json.Unmarshal(snapshot, &memory)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return memory
}

// A word that stays beyond its commit is held against somebody in the next change, a year later it may be.
func TestWhatIsKnownOfOneChangeEndsWithItsCommit(t *testing.T) {
	for field, value := range spent {
		w := whileAllArePaused(t)
		memory := w.memory()
		memory[field] = json.RawMessage(value)
		text, err := json.Marshal(memory)
		if err == nil {
			err = w.machine.Restore(text)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.hear(events.RestorationDone, "/restorer", "r", &events.Completion{Negotiation: w.opened.Negotiation})
		w.run()
		if plans := w.plans(); plans[len(plans)-1].Generation != 2 {
			t.Errorf("%s: nothing was committed", field)
		}
		left := string(w.memory()[field])
		if !slices.Contains([]string{"", "null", "{}", "[]", "false", "0", `"0001-01-01T00:00:00Z"`}, left) {
			t.Errorf("%s: after the commit it is still %s", field, left)
		}
	}
}
