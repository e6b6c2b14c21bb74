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
