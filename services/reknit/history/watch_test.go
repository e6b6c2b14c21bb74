package history

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
)

// watched runs reknit watch --json on a log to which more is said, and returns what it says of that until something ends.
func watched(t *testing.T, before, then *teller) (all []News) {
	t.Helper()
	url, say := server(t)
	say(before.said)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	read, write := io.Pipe()
	command := WatchCommand()
	command.SetArgs([]string{"--json", "--nats", url, "--cluster", "c"})
	command.SetOut(write)
	ended := make(chan error, 1)
	go func() {
		ended <- command.ExecuteContext(ctx)
		write.Close()
	}()
	for lines := bufio.NewScanner(read); lines.Scan(); {
		var news News
		if err := json.Unmarshal(lines.Bytes(), &news); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		if len(all) == 0 {
			say(then.said) // it watches: the first news was of what is under way
		}
		if all = append(all, news); news.Ended {
			interrupt()
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("interrupted, it ends with %v", err)
	}
	return all
}

func TestAWatcherSeesWhatIsUnderWayAndThenEachPhaseAndTheBytesThatMove(t *testing.T) {
	before, then := newTeller(), newTeller()
	plan := chain(2, all[:3]...)
	before.open("g", 2, all[:3], events.Change{Kind: events.ChangeFailure, Node: "n4"})
	then.consent("g", all[:3]...)
	then.agree("g", plan)
	then.receive("g", plan)
	then.commit("g", plan)
	then.step(2, 0.25, all[:3]...)
	var says []string
	for _, news := range watched(t, before, then) {
		says = append(says, news.Says)
		moved := int64(0)
		if news.Kind == "shard.received" || news.Kind == "negotiation.committed" || news.Ended {
			moved = 100
		}
		if news.BytesMoved != moved || news.Generation != 2 {
			t.Errorf("%+v: expected %d bytes moved to generation 2", news, moved)
		}
	}
	want := []string{
		"failure of n4: consenting, waiting for n1, n2, n3", "all 3 consented", "planned: 3 by repipeline, 100 B to move to 1 node",
		"n3 has its layers: 100 B of 100 B", "committed", "all trainers work under it",
	}
	for i := range max(len(says), len(want)) {
		if i >= len(says) || i >= len(want) || !strings.HasPrefix(says[i], want[i]) {
			t.Fatalf("it says\n%s\nexpected\n%s", strings.Join(says, "\n"), strings.Join(want, "\n"))
		}
	}
}

// A step beyond four thousand million was told, of which nothing was written: it was that of the byte in the place of a state.
func TestAWatcherOfScriptsThatKeepTheirOwnStateHearsOfNoStepAndNoSnapshot(t *testing.T) {
	for asked, expected := range map[events.SnapshotRequest]string{
		{Negotiation: "g", Step: 7}:                          "all stop after step 7, and write a snapshot of it",
		{Negotiation: "g", Step: 1<<32 + 4, Unchanged: true}: "all agents end their scripts, which have 30 s to write their own checkpoints",
	} {
		event := newTeller().say(events.SnapshotRequested, "/negotiator", "g", &asked)
		if told := says(changes.Change{}, changes.Attempt{}, event); told != expected {
			t.Errorf("it says %q, expected %q", told, expected)
		}
	}
}

func TestAWatcherHearsWhyAnAttemptEnded(t *testing.T) {
	before, then := newTeller(), newTeller()
	before.open("g", 1, all, events.Change{Kind: events.ChangeJoin, Node: "n4"})
	then.say(events.PlanRefused, "/planner", "g", &events.Failure{Negotiation: "g", Reason: "too little memory"})
	then.say(events.ClusterHeld, "/negotiator", "c", &events.Hold{Reason: "no plan"})
	then.say(events.Aborted, "/negotiator", "g", &events.Abort{Negotiation: "g", Generation: 1, Reason: "no plan"})
	var says []string
	for _, news := range watched(t, before, then)[1:] {
		says = append(says, news.Says)
	}
	want := "plan.refused of g: too little memory|the cluster holds: no plan|aborted: no plan"
	if got := strings.Join(says, "|"); got != want {
		t.Errorf("it says %s, expected %s", got, want)
	}
}

func TestAWatcherOfACalmClusterIsToldThatItWatches(t *testing.T) {
	url, say := server(t)
	calm := newTeller()
	say(calm.said)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	read, write := io.Pipe()
	command := WatchCommand()
	command.SetArgs([]string{"--nats", url, "--cluster", "c"})
	command.SetOut(write)
	ended := make(chan error, 1)
	go func() { ended <- command.ExecuteContext(ctx) }()
	line, _ := bufio.NewReader(read).ReadString('\n')
	if want := "watching c, generation 0; nothing is under way\n"; line != want {
		t.Errorf("it says %q, expected %q", line, want)
	}
	interrupt()
	if err := <-ended; err != nil {
		t.Errorf("interrupted, it ends with %v", err)
	}
}
