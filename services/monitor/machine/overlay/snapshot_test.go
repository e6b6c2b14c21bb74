package overlay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

func TestHowOldTheNewestCompleteSnapshotIsAndWhatIsLate(t *testing.T) {
	o, at := New(), time.Unix(1000, 0)
	say := func(kind events.Kind, payload events.Payload) {
		at = at.Add(time.Minute)
		event := events.Speaker{Source: "/restorer", Cluster: "c"}.First(at, fmt.Sprint(at), kind, "disk", payload)
		event.Logged = at
		o.Take(event)
	}
	plan := events.Digest([]byte("plan"))
	if all := o.Snapshots(); len(all) > 0 {
		t.Fatalf("known before anything was said: %v", all)
	}
	say(events.SnapshotOverdue, &events.OverdueSnapshot{Tier: "disk", Step: 100, Plan: plan, Units: []events.Range{{First: 4, End: 6}}})
	tier := o.Snapshots()[0]
	if !tier.Late(300) || tier.Says(at) != "no snapshot was complete in disk yet: of step 100 nobody wrote the units 4 to 5" {
		t.Errorf("late %v: %s", tier.Late(300), tier.Says(at))
	}
	for _, step := range []uint64{300, 400} {
		say(events.SnapshotCompleted, &events.CompleteSnapshot{Tier: "disk", Step: step, Plan: plan})
	}
	tier = o.Snapshots()[0]
	if tier.Late(800) || !tier.Late(801) || tier.Step != 400 || tier.Every != 100 {
		t.Errorf("%+v: expected step 400 to be late behind step 800", tier)
	}
	say(events.SnapshotOverdue, &events.OverdueSnapshot{Tier: "disk", Step: 500, Plan: plan, Units: []events.Range{{First: 0, End: 1}}})
	tier = o.Snapshots()[0]
	if tier.Late(800) || !strings.HasPrefix(tier.Says(at), "no snapshot is complete in disk since step 400, 1m0s ago: of step 500") {
		t.Errorf("late %v: %s", tier.Late(800), tier.Says(at))
	}
	say(events.SnapshotCompleted, &events.CompleteSnapshot{Tier: "disk", Step: 200, Plan: plan}) // training went back
	if tier = o.Snapshots()[0]; tier.Step != 200 || tier.Every != 100 || tier.Overdue > 0 {
		t.Errorf("%+v", tier)
	}
}

// A new user stopped a job at step 212 that took a snapshot each 100 steps, and heard behind step 260 that none was written.
func TestASnapshotThatAStopAskedForTellsNothingOfTheUsualSteps(t *testing.T) {
	o, at := New(), time.Unix(1000, 0)
	say := func(kind events.Kind, subject string, payload events.Payload) {
		at = at.Add(time.Minute)
		event := events.Speaker{Source: "/restorer", Cluster: "c"}.First(at, fmt.Sprint(at), kind, subject, payload)
		event.Logged = at
		o.Take(event)
	}
	plan := events.Digest([]byte("plan"))
	complete := func(tier string, step uint64) {
		say(events.SnapshotCompleted, tier, &events.CompleteSnapshot{Tier: tier, Step: step, Plan: plan})
	}
	expect := func(step, every uint64) {
		t.Helper()
		for _, tier := range o.Snapshots() {
			if tier.Every != every || tier.Late(step) {
				t.Errorf("%+v: expected each %d steps, and not late behind step %d", tier, every, step)
			}
		}
	}
	for _, step := range []uint64{100, 200, 212} {
		complete("disk", step)
	}
	complete("remote", 100)
	complete("remote", 200)
	for range 2 { // it is told again each day
		say(events.TrainingStopped, "c", &events.JobStop{Generation: 1, Step: 212, Tier: "disk", Plan: plan, Reason: "a user"})
	}
	complete("remote", 212) // slower
	expect(600, 100)
	for _, step := range []uint64{300, 400} {
		complete("disk", step)
		complete("remote", step)
		expect(step+399, 100)
	}
}

// Ten snapshots in a row were not written, and status and doctor knew of none that was to be.
func TestWhoCannotWriteSnapshotsIsNamedSinceItToldSoUntilItWritesAgainOrItsProcessEnds(t *testing.T) {
	o, at := New(), time.Unix(1000, 0)
	say := func(kind events.Kind, node string, payload events.Payload) {
		at = at.Add(time.Minute)
		event := events.Speaker{Source: "/node/" + node, Cluster: "c"}.First(at, fmt.Sprint(at), kind, node, payload)
		event.Logged = at
		o.Take(event)
	}
	plan, units, reason := events.Digest([]byte("plan")), []events.Range{{End: 2}}, "no room: no space left on device"
	fails := func(node, finding string) {
		say(events.SnapshotFailed, node, &events.SnapshotFailure{Node: node, Tier: "disk", Step: 20, Plan: plan, Units: units,
			Finding: finding, Reason: reason, Tiers: []string{"disk"}})
	}
	says := func() string {
		says, todo := o.Snapshots()[0].SaysFailing(at)
		return strings.TrimSpace(says + " " + todo)
	}
	fails("s2", "full")
	fails("s1", "full")
	fails("s2", "read-only")
	if got := says(); !strings.HasPrefix(got, "s1, s2 cannot write snapshots to disk since ") ||
		!strings.Contains(got, ", 2m0s ago: no room: no space left on device make room there") {
		t.Errorf("it says %q", got)
	}
	reason = "no room: nothing is left to give up: write " + strings.Repeat("/very/long", 30) + ": no space left on device"
	fails("s1", "full")
	if got := says(); !strings.Contains(got, "ago: no room: nothing is left") ||
		!strings.Contains(got, "long: no space left on device make room") {
		t.Errorf("of a long reason it says %q", got)
	}
	if tier := o.Snapshots()[0]; !tier.Late(20) {
		t.Errorf("none was ever complete: %+v", tier)
	}
	reason = "no room for 9 bytes within REKNIT_SNAPSHOT_BYTES, 8"
	fails("s1", "full")
	if got := says(); !strings.HasSuffix(got, "REKNIT_SNAPSHOT_BYTES, 8 raise it, or take away what lies there: the next one is tried by itself") {
		t.Errorf("of a bound it says %q", got)
	}
	say(events.SnapshotResumed, "s1", &events.SnapshotPart{Node: "s1", Tier: "disk", Step: 40, Plan: plan, Units: units})
	if got := says(); !strings.HasPrefix(got, "s2 cannot write") || !strings.Contains(got, "mount the disk") {
		t.Errorf("s1 writes again, and it says %q", got)
	}
	say(events.NodeLost, "s2", &events.NodeState{Node: "s2", Incarnation: "i"})
	if got := says(); got != "" {
		t.Errorf("the process of s2 has ended, and it says %q", got)
	}
}

// Its disk was full, and an operator had it leave.
func TestWhoTakesPartNoMoreFailsToWriteNoSnapshots(t *testing.T) {
	o, at := New(), time.Unix(1000, 0)
	say := func(kind events.Kind, subject string, payload events.Payload) {
		event := events.Speaker{Source: "/node/n3", Cluster: "c"}.First(at, string(kind)+subject, kind, subject, payload)
		event.Logged = at
		o.Take(event)
	}
	for _, node := range []string{"n1", "n3"} {
		say(events.SnapshotFailed, node, &events.SnapshotFailure{Node: node, Tier: "disk", Step: 7, Plan: events.Digest(nil),
			Units: []events.Range{{End: 1}}, Finding: "full", Reason: "no room", Tiers: []string{"disk"}})
	}
	say(events.LeaveRequested, "n3", &events.Leave{Node: "n3", Reason: "its disk is full"})
	o.commit(events.Plan{Generation: 2, Nodes: []events.Member{{Node: "n1", Incarnation: "1"}}}, at)
	if says, _ := o.Snapshots()[0].SaysFailing(at); !strings.HasPrefix(says, "n1 cannot write") {
		t.Errorf("the plan has n1 alone, and it says %q", says)
	}
}
