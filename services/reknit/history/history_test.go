package history

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
	"github.com/reknit/reknit/services/negotiator/protocol"
	"github.com/reknit/reknit/services/reknit/tell"
)

// run runs a command on a log.
func run(t *testing.T, command *cobra.Command, w io.Writer, url string, arguments ...string) error {
	command.SetArgs(append(arguments, "--nats", url))
	command.SetOut(w)
	return command.ExecuteContext(t.Context())
}

func printed(t *testing.T, command *cobra.Command, url string, arguments ...string) string {
	t.Helper()
	var output strings.Builder
	if err := run(t, command, &output, url, arguments...); err != nil {
		t.Fatal(err)
	}
	return output.String()
}

func TestThePhasesOfAChangeAddUpToTheTimeFromItsFirstSignToTheLastStep(t *testing.T) {
	log := newTeller()
	log.failure(2)
	all := log.changes()
	if len(all) != 1 || all[0].State != changes.Working {
		t.Fatalf("%+v", all)
	}
	c := all[0]
	var phases []changes.Phase
	sum := 0.0
	for _, phase := range c.Phases {
		phase.Seconds = math.Round(1e3*phase.Seconds) / 1e3
		phases, sum = append(phases, phase), sum+phase.Seconds
	}
	want := []changes.Phase{
		{Name: "notice", Seconds: 0.5, Last: "monitor"}, {Name: "wait to begin", Seconds: 0.01, Last: "negotiator"},
		{Name: "consent", Seconds: 0.03, Last: "n3"}, {Name: "plan", Seconds: 0.01, Last: "planner"},
		{Name: "restore", Seconds: 0.02, Last: "restorer"}, {Name: "transfer", Seconds: 0.23, Last: "n3"},
		{Name: "commit", Seconds: 0.01, Last: "negotiator"}, {Name: "first step", Seconds: 0.04, Last: "n3"},
	}
	for i := range max(len(phases), len(want)) {
		if i >= len(phases) || i >= len(want) || phases[i] != want[i] {
			t.Fatalf("phases %v, expected %v", phases, want)
		}
	}
	if whole := log.now.Sub(log.began.Add(10 * time.Millisecond)).Seconds(); math.Abs(sum-whole) > 1e-9 || math.Abs(c.TotalSeconds-whole) > 1e-9 {
		t.Errorf("they are %v s and %v s, expected %v s", sum, c.TotalSeconds, whole)
	}
	if c.Slowest().Name != "notice" || c.StallSeconds != 0.3 || c.StallNode != "n2" || c.BytesMoved != 100 || c.Shape != "3" {
		t.Errorf("%+v", c)
	}
}

func TestAttemptsThatCameToNothingAreAPhaseAndSayWhy(t *testing.T) {
	log := newTeller()
	asked := log.say(events.LeaveRequested, "/user", "n4", &events.Leave{Node: "n4"})
	leave := events.Change{Kind: events.ChangeLeave, Node: "n4", Cause: asked.ID}
	log.open("a", 2, all, leave)
	log.say(events.Consented, "/node/n1", "n1", &events.Consent{Negotiation: "a", Node: "n1", Incarnation: "i", Reason: "the link is down"})
	log.say(events.NegotiationOverdue, "/negotiator", "a", &events.Overdue{Negotiation: "a", Phase: "consenting"})
	log.say(events.Aborted, "/negotiator", "a", &events.Abort{Negotiation: "a", Generation: 2, Reason: "n1 objects"})
	log.open("b", 2, all, leave)
	log.consent("b", all...)
	plan := chain(2, all[:3]...)
	log.agree("b", plan)
	log.receive("b", plan)
	log.commit("b", plan)
	log.step(2, 0, "n1", "n2")
	c := log.changes()[0]
	if c.State != changes.Committed {
		t.Errorf("it is %s, expected committed: n3 has not completed a step", c.State)
	}
	if len(c.Attempts) != 2 || c.Phases[1].Name != "earlier attempts" || math.Abs(c.Phases[1].Seconds-0.04) > 1e-9 {
		t.Fatalf("%+v", c)
	}
	first := c.Attempts[0]
	if first.Ended != "n1 objects" || first.Phase != "consenting" || first.Overdue != 1 || first.Said[0] != "n1 objects: the link is down" {
		t.Errorf("%+v", first)
	}
}

func TestAGenerationOfWhichOnlyAFirstStepIsKnownIsNoChange(t *testing.T) {
	l := newTeller()
	l.failure(2)
	known := len(l.changes())
	if l.step(1, 0, "n1"); len(l.changes()) != known {
		t.Errorf("a node trains under generation 1, of which the log keeps nothing else: %+v", l.changes())
	}
}

func TestTheListHasALineAChangeAndADetailTellsWhoWasWaitedFor(t *testing.T) {
	log := newTeller()
	for generation := range uint64(3) {
		log.failure(generation + 1)
	}
	url := log.serve(t)
	lines := strings.Split(strings.TrimSpace(printed(t, Command(), url, "--last", "2")), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[1], "2 ") || !strings.Contains(lines[2], "failure of n4") {
		t.Errorf("printed %q, expected a heading and the last two changes", lines)
	}
	one := printed(t, Command(), url, "2")
	for _, says := range []string{"Generation 2: failure of n4", "all trainers work under it", "\nnotice ", "500 ms", "<- slowest",
		"100 B moved; a restart would move 400 B", "n1 100 B at 500 B/s"} {
		if !strings.Contains(one, says) {
			t.Errorf("expected %q in\n%s", says, one)
		}
	}
	var all []changes.Change
	if err := json.Unmarshal([]byte(printed(t, Command(), url, "--json")), &all); err != nil || len(all) != 3 ||
		all[2].Receipts[0].Sources[0].From != "n1" {
		t.Errorf("%v, %+v", err, all)
	}
}

func TestProgramsReadNamesBesideKeys(t *testing.T) {
	log, key, layer := newTeller(), "UA"+strings.Repeat("B", 54), events.LayerProfile{ParameterBytes: 1, ForwardSeconds: 1, BackwardSeconds: 1}
	log.say(events.JoinRequested, "/node/"+key, key, &events.Join{Node: key, Name: "gpu-1", Incarnation: "i", Address: "a:1", MemoryBytes: 1,
		Job: events.Job{Digest: events.Digest(nil), Layers: []events.LayerProfile{layer}, GlobalBatch: 1, MicroBatch: 1}})
	log.failure(1)
	log.open("g2", 2, all[:3], events.Change{Kind: events.ChangeJoin, Node: key})
	url := log.serve(t)
	var history []Named
	if err := json.Unmarshal([]byte(printed(t, Command(), url, "--json")), &history); err != nil || len(history) != 2 ||
		len(history[0].Names) > 0 || history[1].Names[key] != "gpu-1" || history[1].Changes[0].Node != key {
		t.Errorf("%v, expected the key and the name in %+v", err, history)
	}
	var why Explanation
	if err := json.Unmarshal([]byte(printed(t, ExplainCommand(), url, "--json")), &why); err != nil || why.Names[key] != "gpu-1" {
		t.Errorf("%v, expected the name in %+v", err, why.Names)
	}
	names, written := overlay.NewNames(), strings.Builder{}
	names.Take(log.said[0])
	Teller(&written, names, true)(News{Says: "begins: join of " + key})
	var news News
	if err := json.Unmarshal([]byte(written.String()), &news); err != nil || news.Names[key] != "gpu-1" || !strings.Contains(news.Says, key) {
		t.Errorf("%v, expected the key and the name in %s", err, written.String())
	}
}

func TestACompleteJobIsSaidToBeAndNothingWaitsForIt(t *testing.T) {
	log := newTeller()
	log.failure(1)
	log.open("late", 2, all, events.Change{Kind: events.ChangeFailure, Node: "n2"})
	log.say(events.Aborted, "/negotiator", "late", &events.Abort{Negotiation: "late", Generation: 2, Reason: "the job is complete"})
	log.say(events.TrainingCompleted, "/negotiator", "c", &events.JobEnd{Generation: 1, Step: 40, Nodes: all[:3]})
	url := log.serve(t)
	listed, explained := printed(t, Command(), url), printed(t, ExplainCommand(), url)
	if !strings.Contains(listed, "over") || !strings.Contains(listed, "The job is complete since ") ||
		!strings.Contains(listed, "step 40 made by 3 nodes") {
		t.Errorf("the history is\n%s", listed)
	}
	if !strings.HasPrefix(explained, "The job is complete since ") || strings.Contains(explained, "not there yet") {
		t.Errorf("the explanation is\n%s", explained)
	}
}

func TestAGenerationThatTheLogDoesNotHoldIsNoUsageError(t *testing.T) {
	log := newTeller()
	log.failure(1)
	url := log.serve(t)
	err := run(t, Command(), io.Discard, url, "7")
	if err == nil || errors.As(err, &tell.UsageError{}) || !strings.Contains(err.Error(), "expected 1 to 1") {
		t.Errorf("generation 7: %v", err)
	}
	for _, arguments := range [][]string{{"0"}, {"x"}, {"1", "2"}, {"--last", "0"}} {
		if err := run(t, Command(), io.Discard, url, arguments...); !errors.As(err, &tell.UsageError{}) {
			t.Errorf("%v: %v, expected a usage error", arguments, err)
		}
	}
}

func TestTrainingThatGoesBackToASnapshotIsNotSaidToHaveStoodStillForNoTime(t *testing.T) {
	log, plan := newTeller(), chain(2, all...)
	plan.Snapshot, plan.ResumeStep = events.Digest(nil), 30
	log.open("g2", 2, all, events.Change{Kind: events.ChangeFailure, Node: "n4"})
	log.consent("g2", all...)
	log.agree("g2", plan)
	log.receive("g2", plan)
	log.say(events.Committed, "/negotiator", "g2",
		&events.Commitment{Negotiation: "g2", Generation: 2, PlanDigest: events.Digest(nil), LostSteps: 12})
	log.step(2, 0, all...)
	told := printed(t, Command(), log.serve(t), "2")
	if !strings.Contains(told, "went back 12 steps to the snapshot of step 30") || strings.Contains(told, "stood still") {
		t.Errorf("told is\n%s", told)
	}
}

func TestAPlanThatWasMadeBeforeSpeedsWereKnownPredictsNothing(t *testing.T) {
	log, plan := newTeller(), chain(2, all...)
	plan.Predicted.Unmeasured = true
	log.open("g2", 2, all, events.Change{Kind: events.ChangeJoin, Node: "n4"})
	log.consent("g2", all...)
	log.agree("g2", plan)
	log.commit("g2", plan)
	told := printed(t, ExplainCommand(), log.serve(t))
	if !strings.Contains(told, "predicted: not known before the first steps are measured\n") || strings.Contains(told, "1.1 s") {
		t.Errorf("told is\n%s", told)
	}
}

func TestAnExplanationSaysForWhomAChangeWaitsAndWhyOtherPlansLost(t *testing.T) {
	log := newTeller()
	log.failure(2)
	log.open("g3", 3, all, events.Change{Kind: events.ChangeJoin, Node: "n4"})
	log.consent("g3", "n1", "n2")
	log.say(events.ConsentDelayed, "/node/n3", "n3",
		&events.Delay{Negotiation: "g3", Node: "n3", Incarnation: "i", Reason: "it writes a checkpoint"})
	log.say(events.MembershipRefused, "/negotiator", "n9", &events.Refusal{Node: "n9", Refused: "join", Reason: "another job"})
	url := log.serve(t)
	now := printed(t, ExplainCommand(), url)
	for _, says := range []string{"Generation 3 is not there yet: join of n4", "waiting for n3, n4\n", "n3 asked for time: it writes a checkpoint",
		": join of n9: another job", "Generation 2, by repipeline: failure of n4", "lower bound 1 s, gap 10.0%", "a slower step"} {
		if !strings.Contains(now, says) {
			t.Errorf("expected %q in\n%s", says, now)
		}
	}
	var why Explanation
	if err := json.Unmarshal([]byte(printed(t, ExplainCommand(), url, "2", "--json")), &why); err != nil || why.Plan == nil ||
		why.Plan.Generation != 2 || why.Change == nil || len(why.Pending) != 0 {
		t.Errorf("of generation 2: %v, %+v", err, why)
	}
	if err := run(t, ExplainCommand(), io.Discard, url, "9"); err == nil {
		t.Error("generation 9, which is not there, is explained")
	}
}

// The whole log is the judge of a part of it.
func TestAChangeThatWaitedForTheCommitBeforeIsReadWithItsCause(t *testing.T) {
	log := newTeller()
	log.failure(1)
	log.open("g2", 2, all, events.Change{Kind: events.ChangeJoin, Node: "n4"})
	asked := log.say(events.LeaveRequested, "/user", "n1", &events.Leave{Node: "n1", Reason: "spot"})
	log.consent("g2", all...)
	plan := chain(2, all...)
	log.agree("g2", plan)
	log.receive("g2", plan)
	log.commit("g2", plan)
	log.step(2, 0, all...)
	log.open("g3", 3, all, events.Change{Kind: events.ChangeLeave, Node: "n1", Cause: asked.ID})
	log.consent("g3", all...)
	plan = chain(3, all[1:]...)
	log.agree("g3", plan)
	log.receive("g3", plan)
	log.commit("g3", plan)
	log.step(3, 0, all[1:]...)
	url := log.serve(t)
	var whole []changes.Change
	var alone changes.Change
	if err := json.Unmarshal([]byte(printed(t, Command(), url, "--last", "9", "--json")), &whole); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(printed(t, Command(), url, "3", "--json")), &alone); err != nil {
		t.Fatal(err)
	}
	if len(whole) != 3 || whole[2].Phases[0].Name != "wait to begin" || !reflect.DeepEqual(alone, whole[2]) {
		t.Errorf("read alone it is\n%+v, and of the whole log\n%+v", alone, whole)
	}
}

// A member of another institution gives a reason that clears the screen, writes the clipboard and forges a line.
func TestAMembersReasonNeitherSpeaksToTheOperatorsTerminalNorForgesALine(t *testing.T) {
	log := newTeller()
	log.failure(1)
	log.open("a", 2, all, events.Change{Kind: events.ChangeJoin, Node: "n9", Cause: "asked"})
	evil := "\x1b[2J\x1b]52;c;Y3VybA\x07\r\nAll is well. \u009bRun: \\n curl"
	log.say(events.Consented, "/node/n1", "n1", &events.Consent{Negotiation: "a", Node: "n1", Incarnation: "i", Reason: evil})
	log.say(events.Aborted, "/negotiator", "a", &events.Abort{Negotiation: "a", Generation: 2, Reason: "n1 does not consent: " + evil})
	log.say(events.MembershipRefused, "/negotiator", "n9", &events.Refusal{Node: "n9", Refused: events.ChangeJoin, Reason: "not accepted: " + evil})
	url := log.serve(t)
	for _, arguments := range [][]string{{"2"}, {"--last", "3", "--json"}} {
		if text := printed(t, Command(), url, arguments...); strings.ContainsAny(text, "\x1b\x07\r\u009b") ||
			strings.Contains(text, "\nAll is well") || !strings.Contains(text, "All is well.") {
			t.Errorf("history %v writes %q", arguments, text)
		}
	}
	if text := printed(t, ExplainCommand(), url); strings.ContainsAny(text, "\x1b\x07\r\u009b") || strings.Contains(text, "\nAll is well") {
		t.Errorf("explain writes %q", text)
	}
}

func TestALeaveThatWasNegotiatedAndRefusedIsNotPendingAnyMore(t *testing.T) {
	log := newTeller()
	log.failure(1)
	log.open("g2", 2, all[:3], events.Change{Kind: events.ChangeLeave, Node: "n2"})
	log.say(events.PlanRefused, "/planner", "g2", &events.Failure{Negotiation: "g2", Reason: "only n2 has layer 1"})
	log.say(events.Aborted, "/negotiator", "g2", &events.Abort{Negotiation: "g2", Generation: 2, Reason: "only n2 has layer 1"})
	log.say(events.MembershipRefused, "/negotiator", "n2",
		&events.Refusal{Node: "n2", Refused: events.ChangeLeave, Reason: "only n2 has layer 1"})
	url := log.serve(t)
	if listed := printed(t, Command(), url); !strings.Contains(listed, "leave of n2    refused") || strings.Contains(listed, "pending") {
		t.Errorf("the history is\n%s", listed)
	}
	if now := printed(t, ExplainCommand(), url); !strings.Contains(now, "Refused was: leave of n2") || strings.Contains(now, "not there yet") {
		t.Errorf("the explanation is\n%s", now)
	}
}

func TestAJoinWhoseAskerIsGoneIsWithdrawn(t *testing.T) {
	for name, end := range map[string]func(*teller){
		"left": func(log *teller) { log.say(events.LeaveRequested, "/node/n9", "n9", &events.Leave{Node: "n9"}) },
		"lost": func(log *teller) {
			log.say(events.NodeLost, "/monitor", "n9", &events.NodeState{Node: "n9", Incarnation: "i", Reason: "silent"})
		},
		"given up": func(log *teller) {
			log.say(events.MembershipRefused, "/negotiator", "n9",
				&events.Refusal{Node: "n9", Refused: events.RefusedMembership, Incarnation: "i", Reason: "it does not answer"})
		},
	} {
		log := newTeller()
		log.failure(1)
		log.open("g2", 2, append(all[:3:3], "n9"), events.Change{Kind: events.ChangeJoin, Node: "n9"})
		end(log)
		log.say(events.Aborted, "/negotiator", "g2", &events.Abort{Negotiation: "g2", Generation: 2, Reason: "the changes are others now"})
		url := log.serve(t)
		if listed := printed(t, Command(), url); !strings.Contains(listed, "join of n9     withdrawn") {
			t.Errorf("%s: the history is\n%s", name, listed)
		}
		if now := printed(t, ExplainCommand(), url); !strings.Contains(now, "Nobody asks any more for: join of n9") {
			t.Errorf("%s: the explanation is\n%s", name, now)
		}
	}
}

func TestAJoinOutlivesTheProcessBefore(t *testing.T) {
	log := newTeller()
	log.failure(1)
	log.open("g2", 2, append(all[:3:3], "n9"), events.Change{Kind: events.ChangeJoin, Node: "n9"})
	log.say(events.NodeLost, "/monitor", "n9", &events.NodeState{Node: "n9", Incarnation: "before", Reason: "silent"})
	log.say(events.Aborted, "/negotiator", "g2", &events.Abort{Negotiation: "g2", Generation: 2, Reason: "the changes are others now"})
	if state := log.changes()[1].State; state != changes.Pending {
		t.Errorf("the join of n9, which lives, is %s", state)
	}
}

func TestWhatIsNotDoneYetCountsUntilNow(t *testing.T) {
	log := newTeller()
	log.failure(1)
	log.open("g2", 2, all[:3], events.Change{Kind: events.ChangeJoin, Node: "n9"})
	opened := log.now
	log.say(events.Aborted, "/negotiator", "g2", &events.Abort{Negotiation: "g2", Generation: 2, Reason: "the changes are others now"})
	log.pause(time.Minute)
	pending := log.changes()[1]
	if pending.State != changes.Pending || math.Abs(pending.TotalSeconds-log.now.Sub(opened).Seconds()) > 1e-9 {
		t.Errorf("expected it to be pending for a minute, got %+v", pending)
	}
}

func TestAFailureIsNotCountedFromALeaveThatWasRefusedBefore(t *testing.T) {
	log := newTeller()
	log.failure(1)
	log.open("g2", 2, all[:3], events.Change{Kind: events.ChangeLeave, Node: "n2"})
	log.say(events.Aborted, "/negotiator", "g2", &events.Abort{Negotiation: "g2", Generation: 2, Reason: "only n2 has layer 1"})
	log.say(events.MembershipRefused, "/negotiator", "n2",
		&events.Refusal{Node: "n2", Refused: events.ChangeLeave, Reason: "only n2 has layer 1"})
	log.pause(time.Hour)
	lost := log.say(events.NodeLost, "/monitor", "n3",
		&events.NodeState{Node: "n3", Incarnation: "i", Reason: "no heartbeat", SilentSeconds: 0.5})
	log.open("again", 2, all[:2], events.Change{Kind: events.ChangeFailure, Node: "n3", Cause: lost.ID})
	log.say(events.Aborted, "/negotiator", "again", &events.Abort{Negotiation: "again", Generation: 2, Reason: "nobody has layer 2"})
	log.open("more", 2, all[:2], events.Change{Kind: events.ChangeFailure, Node: "n3", Cause: lost.ID})
	c := log.changes()[1]
	if began := lost.Logged.Add(-500 * time.Millisecond); !c.Began.Equal(began) || c.TotalSeconds > 1 || len(c.Attempts) != 3 {
		t.Errorf("it began %s and took %.1f s, expected %s and less than a second, in all 3 attempts: %+v", c.Began, c.TotalSeconds, began, c)
	}
}

func TestThatOthersWaitedForATrainerThatHangsCountsAsNoticed(t *testing.T) {
	log := newTeller()
	log.failure(1)
	lost := log.say(events.NodeLost, "/monitor", "n3",
		&events.NodeState{Node: "n3", Incarnation: "i", Reason: "its trainer hangs", WaitedSeconds: 2.5})
	log.open("again", 2, all[:2], events.Change{Kind: events.ChangeFailure, Node: "n3", Cause: lost.ID})
	c := log.changes()[1]
	if c.Phases[0].Name != changes.Notice || c.Phases[0].Seconds != 2.5 || c.TotalSeconds < 2.5 {
		t.Errorf("%+v", c)
	}
}

func TestAClusterThatHoldsSaysWhatItNeeds(t *testing.T) {
	log := newTeller()
	log.failure(1)
	log.say(events.ClusterHeld, "/negotiator", "c", &events.Hold{Reason: "no node has layer 2", Awaits: []string{"n4"}})
	now := printed(t, ExplainCommand(), log.serve(t))
	for _, says := range []string{"not there yet: no node has layer 2", "The cluster holds: no node has layer 2",
		"only these have: n4", "Generation 1, by repipeline"} {
		if !strings.Contains(now, says) {
			t.Errorf("expected %q in\n%s", says, now)
		}
	}
}

func TestEachPhaseSaysWhomItWaitsFor(t *testing.T) {
	log := newTeller()
	plan := chain(1, all...)
	expect := func(phase string, awaits ...string) {
		t.Helper()
		attempt := log.changes()[0].Attempts[0]
		if attempt.Phase != phase || strings.Join(attempt.Awaits, " ") != strings.Join(awaits, " ") {
			t.Errorf("%s, waiting for %v, expected %s and %v", attempt.Phase, attempt.Awaits, phase, awaits)
		}
	}
	say := func(kind events.Kind, payload events.Payload) { log.say(kind, "/negotiator", "g", payload) }
	log.open("g", 1, all, events.Change{Kind: events.ChangeJoin, Node: "n4"})
	say(events.PlanRequested, &events.PlanRequest{Negotiation: "g", Cluster: "c", Generation: 1})
	log.consent("g", "n2")
	expect("consenting", "n1", "n3", "n4")
	log.consent("g", "n1", "n3", "n4")
	expect("planning", "planner")
	say(events.RestorationAsked, &events.RestorationRequest{Negotiation: "g"})
	expect("restoring", "restorer")
	log.say(events.RestorationPlanned, "/restorer", "g", &events.Restoration{Negotiation: "g", Plan: plan})
	say(events.PreCopyStarted, &events.PreCopyStart{Negotiation: "g"})
	expect("pre-copying", "n4")
	say(events.Prepared, &events.Preparation{Negotiation: "g", Generation: 1})
	log.say(events.Promised, "/node/n1", "n1", &events.Promise{Negotiation: "g", Node: "n1", StopStep: 5})
	expect("promising", "n2", "n3", "n4")
	say(events.Scheduled, &events.Schedule{Negotiation: "g", Plan: plan})
	expect("transferring", "n4")
	log.receive("g", plan)
	expect("transferring")
}

func TestThePhasesAreCalledWhatTheNegotiatorCallsThem(t *testing.T) {
	phases := []string{changes.Consenting, changes.Planning, changes.Restoring, changes.PreCopying, changes.Promising, changes.Transferring,
		changes.Stopping}
	if len(protocol.Waits) != len(phases) {
		t.Errorf("the negotiator has %d phases, expected %v", len(protocol.Waits), phases)
	}
	for _, phase := range phases {
		if _, known := protocol.Waits[protocol.Phase(phase)]; !known {
			t.Errorf("the negotiator has no phase %q", phase)
		}
	}
}
