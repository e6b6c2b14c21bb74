package history

import (
	"regexp"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/monitor/machine/changes"
)

// A failure of a job that runs --unchanged took 18 ms, it said, and seconds until the next step.
func TestWhatIsNotKnownBeforeAllMadeAStepIsNotTold(t *testing.T) {
	var printed strings.Builder
	list(&printed, []changes.Change{{Generation: 4, State: changes.Committed, TotalSeconds: 0.018,
		Phases: []changes.Phase{{Name: changes.Consent, Seconds: 0.016}, {Name: changes.Commit, Seconds: 0.002}}}})
	if row := regexp.MustCompile(` committed +0 s +16 ms +0 s +- +- +- `); !row.MatchString(printed.String()) {
		t.Errorf("expected %s in\n%s", row, &printed)
	}
}
