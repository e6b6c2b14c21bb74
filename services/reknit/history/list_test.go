package history

import (
	"regexp"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
)

// A failure of a job that runs --unchanged took 18 ms, it said, and seconds until the next step.
func TestWhatIsNotKnownBeforeAllMadeAStepIsNotTold(t *testing.T) {
	var printed strings.Builder
	list(&printed, []changes.Change{{Generation: 4, State: changes.Committed, TotalSeconds: 0.018,
		Phases: []changes.Phase{{Name: changes.Consent, Seconds: 0.016}, {Name: changes.Commit, Seconds: 0.002}}}}, nil)
	if row := regexp.MustCompile(` committed +0 s +16 ms +0 s +- +- +- `); !row.MatchString(printed.String()) {
		t.Errorf("expected %s in\n%s", row, &printed)
	}
}

// The row of a hold was its reason, a paragraph that pushed the figures of all rows out of sight.
func TestEachRowIsALineThatTellsNoReasons(t *testing.T) {
	var printed strings.Builder
	paragraph := strings.Repeat("nobody who is here has layer 3, and ", 9)
	list(&printed, []changes.Change{{Generation: 1, State: changes.Pending, Held: &events.Hold{Reason: paragraph}}},
		[]changes.Halt{{Generation: 1, Step: 40, Reason: paragraph}})
	for row := range strings.Lines(printed.String()) {
		if len(row) > 170 {
			t.Errorf("a row has %d characters: %s", len(row), row)
		}
	}
	if !strings.Contains(printed.String(), " the cluster holds ") || !strings.Contains(printed.String(), " stop after step 40: nobody w…") {
		t.Error(printed.String())
	}
}

func TestAStopAndAResetHaveRowsWithTheirStepAndWhoAskedBehindThePlanThatTheyEnd(t *testing.T) {
	var printed strings.Builder
	list(&printed, []changes.Change{{Generation: 1, State: changes.Committed}, {Generation: 2, State: changes.Committed}}, []changes.Halt{
		{Generation: 1, Step: 40, Reason: "the rack is moved"}, {Generation: 2, Step: 55, Reason: "a wrong setting", Reset: true},
	})
	rows := regexp.MustCompile(`(?s)\n1 .*committed.*\n1 .* stop after step 40: the rack is moved +-.*\n2 .*committed.*` +
		`\n2 .* reset at step 55, to the first one: a wrong setting +-`)
	if !rows.MatchString(printed.String()) {
		t.Errorf("expected rows of a stop and a reset in\n%s", &printed)
	}
}

// Once the next plan was committed nobody could see any more who had been refused before it.
func TestWhoWasRefusedOnTheWayToAPlanStaysInTheList(t *testing.T) {
	log := newTeller()
	refuse := func(node string, times int) {
		for range times {
			log.say(events.MembershipRefused, "/negotiator", node, &events.Refusal{Node: node, Refused: events.ChangeJoin, Incarnation: "i",
				Reason: `field "job.globalBatch": expected 12 as in the cluster's job, got 24`})
		}
	}
	refuse("n7", 3)
	log.failure(1)
	refuse("n8", 1)
	var printed strings.Builder
	list(&printed, log.changes(), nil)
	rows := regexp.MustCompile(`(?s)\n1 .* join of n7, 3 times +refused +- .*\n1 .* failure of .*\n2 .* join of n8 +refused +0 s`)
	if !rows.MatchString(printed.String()) {
		t.Errorf("expected rows of n7 and n8 in\n%s", &printed)
	}
	log.open("g2", 2, all, events.Change{Kind: events.ChangeJoin, Node: "n4"})
	printed.Reset()
	list(&printed, log.changes(), nil)
	if rows := regexp.MustCompile(`(?s)\n2 .* join of n8 +refused +- .*\n2 .* join of n4 `); !rows.MatchString(printed.String()) {
		t.Errorf("expected rows of n8 and n4 in\n%s", &printed)
	}
}
