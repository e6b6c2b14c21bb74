package history

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/reknit/reknit/events"
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
	changes := log.changes()
	if len(changes) != 1 || changes[0].State != Working {
		t.Fatalf("%+v", changes)
	}
	c := changes[0]
	var phases []Phase
	sum := 0.0
	for _, phase := range c.Phases {
		phase.Seconds = math.Round(1e3*phase.Seconds) / 1e3
		phases, sum = append(phases, phase), sum+phase.Seconds
	}
	want := []Phase{
		{"notice", 0.5, "monitor"}, {"wait to begin", 0.01, "negotiator"}, {"consent", 0.03, "n3"}, {"plan", 0.01, "planner"},
		{"restore", 0.02, "restorer"}, {"transfer", 0.23, "n3"}, {"commit", 0.01, "negotiator"}, {"first step", 0.04, "n3"},
	}
	for i := range max(len(phases), len(want)) {
		if i >= len(phases) || i >= len(want) || phases[i] != want[i] {
			t.Fatalf("phases %v, expected %v", phases, want)
		}
	}
	if whole := log.now.Sub(log.began.Add(10 * time.Millisecond)).Seconds(); math.Abs(sum-whole) > 1e-9 || math.Abs(c.TotalSeconds-whole) > 1e-9 {
		t.Errorf("they are %v s and %v s, expected %v s", sum, c.TotalSeconds, whole)
	}
	if c.slowest().Name != "notice" || c.StallSeconds != 0.3 || c.StallNode != "n2" || c.BytesMoved != 100 || c.Shape != "3" {
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
	if c.State != Committed {
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
	var changes []Change
	if err := json.Unmarshal([]byte(printed(t, Command(), url, "--json")), &changes); err != nil || len(changes) != 3 ||
		changes[2].Receipts[0].Sources[0].From != "n1" {
		t.Errorf("%v, %+v", err, changes)
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
