package overlay

import (
	"encoding/json"
	"testing"

	"github.com/reknit/reknit/events"
)

func TestAfterAResetOnlyThoseAreMissedWhoMayLive(t *testing.T) {
	for name, test := range map[string]struct {
		ends   []string // who made the last step
		silent []string
		want   map[string]string
	}{
		"of a complete job":         {ends: []string{"n1", "n2"}, want: map[string]string{"n1": Ended, "n2": Ended}},
		"of a job whose n2 is lost": {silent: []string{"n2"}, want: map[string]string{"n1": Ended, "n2": Silent}},
	} {
		o := New()
		say := func(kind events.Kind, payload events.Payload) {
			data, err := json.Marshal(payload)
			if err != nil {
				t.Fatal(err)
			}
			o.Take(events.Event{Kind: kind, Subject: "c", Data: data})
		}
		o.plan = &events.Plan{Generation: 1, Nodes: []events.Member{{Node: "n1", Incarnation: "a"}, {Node: "n2", Incarnation: "b"}}}
		if test.ends != nil {
			say(events.TrainingCompleted, &events.JobEnd{Generation: 1, Step: 40, Nodes: test.ends})
		}
		say(events.TrainingReset, &events.JobReset{Generation: 1, Reason: "longer", Silent: test.silent})
		for _, node := range o.Nodes(nil) {
			if node.State != test.want[node.Node] {
				t.Errorf("%s: %s is %s, expected %s", name, node.Node, node.State, test.want[node.Node])
			}
		}
	}
}
