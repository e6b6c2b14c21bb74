package overlay

import (
	"encoding/json"
	"testing"
	"time"

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

func TestAResetThatIsToldAgainChangesNothing(t *testing.T) {
	o := New()
	say := func(kind events.Kind, subject string, payload events.Payload) {
		data, err := json.Marshal(payload)
		if err != nil {
			t.Fatal(err)
		}
		o.Take(events.Event{Kind: kind, Subject: subject, Data: data})
	}
	reset := &events.JobReset{Generation: 1, Reason: "longer"}
	snapshot := func(step uint64) {
		say(events.SnapshotCompleted, "disk", &events.CompleteSnapshot{Tier: "disk", Step: step, Plan: events.Digest(nil)})
	}
	o.plan = &events.Plan{Generation: 1}
	snapshot(30)
	say(events.TrainingReset, "c", reset)
	if len(o.Snapshots()) > 0 {
		t.Error("a snapshot of before counts")
	}
	say(events.MembershipRefused, "n9", &events.Refusal{Node: "n9", Refused: events.ChangeJoin, Reason: "another job"})
	say(events.TrainingReset, "c", reset)
	if o.Refusal() == nil {
		t.Error("told again, it wipes what was refused since")
	}
	o.plan = &events.Plan{Generation: 2}
	snapshot(10)
	say(events.TrainingCompleted, "c", &events.JobEnd{Generation: 2, Step: 40, Nodes: []string{"n1"}})
	say(events.TrainingReset, "c", reset)
	if len(o.Snapshots()) == 0 || o.End() == nil {
		t.Error("behind a later plan, it wipes what that came to")
	}
}

// The stream of plans may be ahead of the log.
func TestAResetThatIsHeardBehindThePlanAfterItGivesUpTheSnapshotsOfBefore(t *testing.T) {
	o := New()
	o.plan = &events.Plan{Generation: 2}
	say := func(kind events.Kind, payload events.Payload) {
		data, err := json.Marshal(payload)
		if err != nil {
			t.Fatal(err)
		}
		o.Take(events.Event{Kind: kind, Subject: "c", Data: data})
	}
	say(events.SnapshotCompleted, &events.CompleteSnapshot{Tier: "disk", Step: 30, Plan: events.Digest(nil)})
	say(events.TrainingCompleted, &events.JobEnd{Generation: 1, Step: 40, Nodes: []string{"n1"}})
	say(events.TrainingReset, &events.JobReset{Generation: 1, Reason: "longer"})
	if len(o.Snapshots()) > 0 || o.End() != nil || o.Reset() != nil {
		t.Errorf("%+v, %v, %v", o.Snapshots(), o.End(), o.Reset())
	}
}

// Status named nodes of the job before, as such that can be had back, for an hour.
func TestAfterAResetNobodyIsMissedWhoWentBeforeIt(t *testing.T) {
	o, now := New(), time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)
	o.plan = &events.Plan{Generation: 2, Nodes: []events.Member{{Node: "n1", Incarnation: "b"}}}
	say := func(kind events.Kind, subject string, payload events.Payload) {
		data, err := json.Marshal(payload)
		if err != nil {
			t.Fatal(err)
		}
		o.Take(events.Event{Kind: kind, Subject: subject, Data: data, Logged: now})
	}
	joins := func(node string) {
		say(events.JoinRequested, node, &events.Join{Node: node, Incarnation: "a", Address: node + ":1", MemoryBytes: 1, Job: events.Job{
			Digest: events.Digest(nil), Layers: []events.LayerProfile{{ParameterBytes: 1, OptimizerBytes: 1, ForwardSeconds: 1, BackwardSeconds: 1}},
			GlobalBatch: 1, MicroBatch: 1}})
	}
	isLost := func(node string) {
		say(events.NodeLost, node, &events.NodeState{Node: node, Incarnation: "a", Reason: "no heartbeat"})
	}
	for _, node := range []string{"n2", "n3", "n4"} {
		joins(node)
	}
	isLost("n2")
	if gone := o.Gone(nil, now); len(gone) != 1 || gone[0].Node != "n2" {
		t.Fatalf("before it %v are gone, expected n2", gone)
	}
	say(events.TrainingReset, "c", &events.JobReset{Generation: 1, Reason: "the next job", Silent: []string{"n3"}})
	isLost("n3")
	if gone := o.Gone(nil, now); len(gone) != 0 {
		t.Errorf("%v are gone", gone)
	}
	isLost("n4")
	if gone := o.Gone(nil, now); len(gone) != 1 || gone[0].Node != "n4" {
		t.Errorf("%v are gone, expected n4, which waited for a place", gone)
	}
}
