package history

import (
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
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
	log, key := newTeller(), "UA"+strings.Repeat("B", 54)
	layer := events.LayerProfile{ParameterBytes: 1, ForwardSeconds: 1, BackwardSeconds: 1}
	log.say(events.JoinRequested, "/node/"+key, key, &events.Join{Node: key, Name: "gpu-1", Incarnation: "i", Address: "a:1",
		MemoryBytes: 1, Job: events.Job{Digest: events.Digest(nil), Layers: []events.LayerProfile{layer}, GlobalBatch: 1, MicroBatch: 1}})
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
	err := json.Unmarshal([]byte(written.String()), &news)
	if err != nil || news.Names[key] != "gpu-1" || !strings.Contains(news.Says, key) {
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
	if !strings.Contains(told, "went back by about 12 steps to the snapshot of step 30") || strings.Contains(told, "stood still") {
		t.Errorf("told is\n%s", told)
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
	log.say(events.MembershipRefused, "/negotiator", "n9",
		&events.Refusal{Node: "n9", Refused: events.ChangeJoin, Reason: "not accepted: " + evil})
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
	now := printed(t, ExplainCommand(), url)
	if !strings.Contains(now, "Refused was: leave of n2") || strings.Contains(now, "not there yet") {
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
