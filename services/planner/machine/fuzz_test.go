package machine

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/reknit/reknit/events"
)

// FuzzPluginReply has a plug-in reply anything: its plan is refused with a reason, or it is one that may be proposed.
func FuzzPluginReply(f *testing.F) {
	text, err := os.ReadFile("../../../events/examples/policy-reply.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	asked := request("n1", "n2", "n3")
	own, err := New(settings).Plan(asked)
	if err != nil {
		f.Fatal(err)
	}
	if text, err = json.Marshal(own); err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	situation := settings.Situation(asked)
	f.Fuzz(func(t *testing.T, data []byte) {
		judged := judge(asked, situation, []Reply{{Plugin: "theirs", Data: data}})
		if len(judged.candidates)+len(judged.refused) != 1 {
			t.Fatalf("%d plans taken and %d refused of one", len(judged.candidates), len(judged.refused))
		}
		for _, refused := range judged.refused {
			if refused.Rejected == "" {
				t.Error("refused without a reason")
			}
		}
		for _, candidate := range judged.candidates {
			proposed := proposal(asked, situation, candidate, nil)
			if err := (&events.Proposal{Negotiation: asked.Negotiation, Plan: proposed.Plan}).Validate(); err != nil {
				t.Errorf("taken, and may not be proposed: %v", err)
			}
		}
	})
}
