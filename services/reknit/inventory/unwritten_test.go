package inventory

import (
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

func TestWhoCannotWriteSnapshotsIsAProblem(t *testing.T) {
	s := newSite(t)
	s.serve("monitor", "negotiator", "planner", "restorer")
	s.plan()
	s.say(events.JoinRequested, "/node/n2", "n2", &events.Join{Node: "n2", Incarnation: "i", Address: "n2:1", MemoryBytes: 1 << 30, Job: job,
		SnapshotFolder: "/snap"})
	s.beat("n1", "n2", "n3")
	s.say(events.SnapshotFailed, "/node/n2", "n2", &events.SnapshotFailure{Node: "n2", Tier: "disk", Step: 20,
		Plan: events.Digest(nil), Units: []events.Range{{End: 1}}, Finding: "full", Reason: "no room: no space left on device",
		Tiers: []string{"disk"}})
	s.expectStatus("\nsnapshot    disk: none is complete yet, in /snap\n", "n2 cannot write snapshots to disk since ",
		"ago: no room: no space left on device. Make room there")
}

func TestTheNewestCompleteSnapshotIsToldAndThatNoneIsForTooLong(t *testing.T) {
	s := newSite(t)
	s.serve("monitor", "negotiator", "planner", "restorer")
	s.plan()
	s.beat("n1", "n2", "n3")
	plan := events.Digest([]byte("plan"))
	complete := func(step uint64) {
		s.say(events.SnapshotCompleted, "/restorer", "disk", &events.CompleteSnapshot{Tier: "disk", Step: step, Plan: plan})
	}
	complete(1)
	complete(2)
	s.say(events.SnapshotOverdue, "/restorer", "disk",
		&events.OverdueSnapshot{Tier: "disk", Step: 3, Plan: plan, Units: []events.Range{{First: 1, End: 2}}})
	s.expectStatus("snapshot    disk: step 2 complete, ", "no snapshot is complete in disk since step 2, ",
		"of step 3 nobody wrote the units 1 to 1")
	complete(1 << 40)
	if printed, err := s.run(Status()); err != nil || strings.Contains(printed, "no snapshot is complete") {
		t.Errorf("%v, of one that is not late:\n%s", err, printed)
	}
}
