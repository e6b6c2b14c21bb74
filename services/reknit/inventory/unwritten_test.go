package inventory

import (
	"testing"

	"github.com/reknit/reknit/events"
)

func TestWhoCannotWriteSnapshotsIsAProblem(t *testing.T) {
	s := newSite(t)
	s.serve("monitor", "negotiator", "planner", "restorer")
	s.plan()
	s.beat("n1", "n2", "n3")
	s.say(events.SnapshotFailed, "/node/n2", "n2", &events.SnapshotFailure{Node: "n2", Tier: "disk", Step: 20,
		Plan: events.Digest(nil), Units: []events.Range{{End: 1}}, Finding: "full", Reason: "no room: no space left on device",
		Tiers: []string{"disk"}})
	s.expectStatus("no snapshot was complete in disk yet; n2 cannot write snapshots to disk, since ",
		"no space left on device (full)", "Make room there")
}
