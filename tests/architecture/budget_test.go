package architecture

import (
	"maps"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// mostSeconds is what .ci/run may take. CI ends it after 90 minutes, whatever it does.
const mostSeconds = 40 * 60

var (
	ofScript = regexp.MustCompile(`(?m)^(?:with \S+ )*(?:section|install) (\S+) (\d+) `)
	ofTable  = regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)` \\| (\\d+) \\|")
)

// budgets are the seconds that a text gives each section.
func budgets(t *testing.T, file string, row *regexp.Regexp) map[string]int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, match := range row.FindAllSubmatch(text, -1) {
		seconds, err := strconv.Atoi(string(match[2]))
		if err != nil {
			t.Fatal(err)
		}
		found[string(match[1])] = seconds
	}
	return found
}

func TestTheBudgetsOfCIStandInTheTableAndFitIntoItsTime(t *testing.T) {
	run := budgets(t, "../../.ci/run", ofScript)
	sum := 0
	for _, seconds := range run {
		sum += seconds
	}
	if len(run) < 10 || sum > mostSeconds {
		t.Errorf("the %d budgets of .ci/run are %d s in all: expected %d at most", len(run), sum, mostSeconds)
	}
	maps.Copy(run, budgets(t, "../../.ci/release", ofScript))
	told := budgets(t, "../README.md", ofTable)
	for name, seconds := range run {
		if told[name] != seconds {
			t.Errorf("%s has %d s: the table of tests/README.md tells %d", name, seconds, told[name])
		}
	}
	for name := range told {
		if run[name] == 0 {
			t.Errorf("the table of tests/README.md tells of %s, which neither .ci/run nor .ci/release has", name)
		}
	}
}
