package overlay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
)

// For half a minute after a retry status advised to give up what the agents kept.
func TestNobodyIsToldToBeginAnewWhileOneMayHoldTheState(t *testing.T) {
	now, place := time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC), 0
	node := func(name, state string) overlay.Node { return overlay.Node{Node: name, State: state, Pipeline: &place} }
	kept, gone, silent := node("n1", overlay.Lost), node("n2", overlay.Lost), node("n3", overlay.Silent)
	kept.Keeps, gone.Proven = now.Add(-30*time.Second), true
	long := kept
	long.Keeps = now.Add(-time.Hour)
	heard := node("n4", overlay.Training)
	heard.Pulse = &events.Pulse{}
	missed := node("n3", overlay.Lost)
	back := node("n3", overlay.Joining)
	back.Pulse = &events.Pulse{}
	script := overlay.Node{Node: "n7", State: overlay.Lost, Pipeline: &place, Stepless: true}
	ended := script
	ended.Proven = true
	for name, test := range map[string]struct {
		nodes     []overlay.Node
		held      bool
		says      string
		mayAdvise bool
	}{
		"an agent keeps it":                   {[]overlay.Node{gone, kept, silent}, true, "agents of n1 running: they keep", false},
		"nobody knows yet":                    {[]overlay.Node{gone, silent}, false, "it is not known yet whether n3 ended", false},
		"nobody knows, and the cluster holds": {[]overlay.Node{gone, silent}, true, "nothing proves that n3 ended", true},
		"one may live":                        {[]overlay.Node{gone, missed}, false, "nothing proves that n3 ended", true},
		"one is back":                         {[]overlay.Node{gone, back}, true, "wait: n3 asked for a place again", false},
		"an agent kept it an hour ago":        {[]overlay.Node{long}, false, "nothing proves that n1 ended", true},
		"all are gone":                        {[]overlay.Node{gone, {Node: "n5"}}, false, "those that ended is gone", true},
		"a script keeps its own state":        {[]overlay.Node{ended}, true, "go on from their own checkpoints", false},
		"one of these may live":               {[]overlay.Node{script}, true, "nothing proves that n7 ended", false},
		"one ended well, and one lives":       {[]overlay.Node{node("n6", overlay.Ended), heard}, false, "the log tells of no snapshot", true},
	} {
		says := overlay.RemainsOf(test.nodes, overlay.Snapshot{}, now).Do(test.held)
		if !strings.Contains(says, test.says) || strings.Contains(says, "reknit cluster reset") != test.mayAdvise {
			t.Errorf("%s: it says %q", name, says)
		}
	}
}

// A user whose only node was stopped for four seconds was told at once how to give up what it held.
func TestWhoseOnlyNodeIsFrozenIsToldToLookAtItsMachineBeforeAReset(t *testing.T) {
	place := 0
	nodes := []overlay.Node{{Node: "n1", State: overlay.Lost, Pipeline: &place}}
	says := overlay.RemainsOf(nodes, overlay.Snapshot{}, time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)).Do(true)
	before, _, _ := strings.Cut(says, "the state is gone")
	if !strings.Contains(before, "look at the machine first. A process that is stopped, swaps") || !strings.HasSuffix(says, "reknit cluster reset") {
		t.Errorf("it says %q", says)
	}
}

// A user who had snapshots was told that there may be some, and of no folder.
func TestWhoMayGoOnFromASnapshotIsToldWhereItLies(t *testing.T) {
	now, place := time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC), 0
	gone := overlay.Node{Node: "n1", State: overlay.Lost, Pipeline: &place, Proven: true}
	missed := overlay.Node{Node: "n2", State: overlay.Lost, Pipeline: &place}
	disk := overlay.Snapshot{Tier: "disk", Step: 40, Folders: map[string]string{"n1": "/snap", "n2": "/snap"}}
	for says, nodes := range map[string][]overlay.Node{"": {gone}, "Else ": {gone, missed}} {
		says += "start the scripts again by the names that their nodes had, with REKNIT_SNAPSHOT_FOLDER=/snap: training goes on from step 40"
		if got := overlay.RemainsOf(nodes, disk, now).Do(true); !strings.HasSuffix(got, says) || strings.Contains(got, "reset") {
			t.Errorf("it says %q, expected %q", got, says)
		}
	}
	disk.Folders["n2"] = "/other"
	if in := disk.In(); in != "/other (n2), /snap (n1)" {
		t.Errorf("it lies in %q", in)
	}
	for _, folders := range []map[string]string{disk.Folders, {"n1": "/x; rm -r ."}} {
		disk.Folders = folders
		if says := disk.GoOn(); strings.Contains(says, "REKNIT_SNAPSHOT_FOLDER=") || !strings.Contains(says, disk.In()) {
			t.Errorf("%v: it says %q, which is to be read and not pasted", folders, says)
		}
	}
}
