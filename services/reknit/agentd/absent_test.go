package agentd

import (
	"testing"
	"time"

	"github.com/reknit/reknit/services/agent/fence"
	"github.com/reknit/reknit/services/agent/links"
)

// The others do without three nodes: n1 runs, n2 has ended, and the script of n3 has ended for certain.
func TestAScriptIsNotStartedWhileAnAgentAnswersThatTheOthersDoWithout(t *testing.T) {
	listen := func(node string) *links.Watch {
		watch, err := links.Listen(t.Context(), links.Config{Cluster: "c", Node: node, Listen: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(watch.Close)
		return watch
	}
	s, first, second, third := &standIn{watch: listen("n4")}, listen("n1"), listen("n2"), listen("n3")
	now := time.Now()
	absentUntil := func(node string, watch *links.Watch, until time.Time) fence.Absent {
		return fence.Absent{Node: node, Address: watch.Address(), Until: until}
	}
	absent := []fence.Absent{
		absentUntil("n1", first, now.Add(time.Hour)), absentUntil("n2", second, now.Add(time.Hour)), absentUntil("n3", third, now),
	}
	second.Close()
	left := s.answering(t.Context(), absent)
	if len(left) != 1 || left[0].Node != "n1" {
		t.Fatalf("waits for %+v, expected n1", left)
	}
	first.Close()
	if left = s.answering(t.Context(), left); len(left) > 0 {
		t.Errorf("waits for %+v, expected nobody", left)
	}
}
