package overlay

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

func TestHowFarAJobIsIsToldWithWhatIsLeftAtThePaceOfNow(t *testing.T) {
	for _, test := range []struct {
		step, steps uint64
		seconds     float64
		expected    string
	}{
		{95, 2000, 0.85, " of 2000, 4 %, 27 min left"},
		{1999, 2000, 0.85, " of 2000, 99 %, 1 s left"},
		{2000, 2000, 0.85, " of 2000, 100 %"},
		{95, 0, 0.85, ""},
		{0, 1 << 60, 1e9, " of 1152921504606846976, 0 %, 36500 days left"},
		{100, 200000, 1, " of 200000, 0 %, 2 days left"},
		{100, 100000, 1, " of 100000, 0 %, 28 h left"},
	} {
		o := New()
		o.steps = test.steps
		steps, left := o.Course(test.step, test.seconds)
		if says := SaysCourse(test.step, steps, left); says != test.expected {
			t.Errorf("step %d of %d: it says %q, expected %q", test.step, test.steps, says, test.expected)
		}
	}
}

// A node that was damped for its failures was only "joining": its own log alone knew until when.
func TestWhoWaitsForItsTurnIsListedWithUntilWhenAndWhy(t *testing.T) {
	logged := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o := New()
	say := func(kind events.Kind, payload events.Payload) {
		data, err := json.Marshal(payload)
		if err != nil {
			t.Fatal(err)
		}
		o.Take(events.Event{Kind: kind, Subject: "n4", Data: data, Logged: logged})
	}
	join := func(incarnation string) {
		o.told["n4"] = &told{join: &events.Join{Node: "n4", Incarnation: incarnation}}
	}
	join("i")
	say(events.JoinDelayed, &events.JoinDelay{Node: "n4", Incarnation: "before", Seconds: 60, Reason: "x"})
	if node := o.Nodes(nil)[0]; node.State != Joining || node.Reason != "" {
		t.Errorf("by what another process was told it is %s: %q", node.State, node.Reason)
	}
	say(events.JoinDelayed, &events.JoinDelay{Node: "n4", Incarnation: "i", Seconds: 60, Reason: "it failed 3 times lately"})
	until := logged.Add(time.Minute).Local().Format("01-02 15:04:05")
	if node := o.Nodes(nil)[0]; !strings.Contains(node.Reason, until+": it failed 3 times lately") {
		t.Errorf("it says %q, expected until %s", node.Reason, until)
	}
}
