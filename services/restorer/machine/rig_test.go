package machine

import (
	"fmt"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

func stage(node string, first, end int) events.Stage {
	return events.Stage{Node: node, Layers: events.Range{First: first, End: end}}
}

func members(names ...string) []events.Member {
	var list []events.Member
	for _, name := range names {
		list = append(list, events.Member{Node: name, Incarnation: "a", Address: name + ":1"})
	}
	return list
}

func held(node string, first, end int) events.Holder {
	return events.Holder{Node: node, Units: []events.Range{{First: first, End: end}}}
}

// n2 of 2 x 3 is lost. n1 and n3 keep a part of what they held, and only the missing layer moves.
func lossOfOne() events.RestorationRequest {
	names := []string{"n1", "n3", "n4", "n5", "n6"}
	plan := events.Plan{
		Cluster: "c", Generation: 2, Parent: "p", Nodes: members(names...),
		Data: events.Data{GlobalBatch: 8, MicroBatch: 1},
		Pipelines: []events.Pipeline{
			{MicroBatches: 3, Stages: []events.Stage{stage("n3", 0, 3), stage("n1", 3, 6)}},
			{MicroBatches: 5, Stages: []events.Stage{stage("n4", 0, 2), stage("n5", 2, 4), stage("n6", 4, 6)}},
		},
	}
	return events.RestorationRequest{
		Negotiation: "g2", Proposal: events.Proposal{Negotiation: "g2", Plan: plan, Classes: [][]string{names}},
		Holders: []events.Holder{
			held("n1", 0, 2), held("n3", 4, 6), held("n4", 0, 2), held("n5", 2, 4), held("n6", 4, 6),
		},
		Units: []int64{9000, 9000, 9000, 9000, 9000, 9000},
	}
}

func hear[P events.Payload](t *testing.T, m *Machine, kind events.Kind, payload P) []events.Event {
	t.Helper()
	speaker := events.Speaker{Source: "/test", Cluster: "c"}
	event := speaker.First(time.Unix(1, 0), fmt.Sprint(payload), kind, "s", payload)
	said, err := m.Handle(event)
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := m.Snapshot()
	if err == nil {
		err = m.Restore(snapshot) // a restart after each event changes nothing
	}
	if err != nil {
		t.Fatal(err)
	}
	return said
}
