package view

import (
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

func TestANodeIsNamedWhereItsKeyStandsWhetherItIsThereOrGone(t *testing.T) {
	l, key := newLog(), "UA"+strings.Repeat("B", 54)
	named := plan(1)
	named.Nodes[0].Node, named.Nodes[0].Name, named.Pipelines[0].Stages[0].Node = key, "gpu-1", key
	l.commit(named)
	if shown := l.view.Parts(l.now)["name/"+key]; shown != "gpu-1" {
		t.Errorf("it is shown as %v", shown)
	}
	l.say(events.NodeLost, key, &events.NodeState{Node: key, Incarnation: "i", Reason: "dead"})
	l.commit(plan(2))
	if shown := l.view.Parts(l.now)["name/"+key]; shown != "gpu-1" {
		t.Errorf("gone, it is shown as %v", shown)
	}
	if shown, told := l.view.Parts(l.now)["name/n2"]; told {
		t.Errorf("a node whose id is no key is shown as %v", shown)
	}
}
