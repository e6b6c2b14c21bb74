package contract

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// A feature without a row has no user whom anybody could name. services/reknit/cmd/reknit holds the commands to the page.
func TestThePageOfFeaturesNamesEachWayIn(t *testing.T) {
	named, ways := namedFeatures(t), waysIn(t)
	for _, way := range ways {
		if !slices.Contains(named, way) {
			t.Errorf("%s: expected a row of deploy/features.md that tells for whom it is", way)
		}
	}
	isWay := regexp.MustCompile(`^(REKNIT_[A-Z_]+|[a-z]+\.[a-z-]+|[A-Z]+ /.*|reknit_\w+\.py)$`)
	outside := []string{"reknit.py", "settings.md"}
	for _, name := range named {
		if isWay.MatchString(name) && !slices.Contains(ways, name) && !slices.Contains(outside, name) {
			t.Errorf("deploy/features.md names %s, which there is not", name)
		}
	}
}

// namedFeatures returns what the page has in code.
func namedFeatures(t *testing.T) (named []string) {
	t.Helper()
	page, err := os.ReadFile("../../deploy/features.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile("`([^`]+)`").FindAllSubmatch(page, -1) {
		named = append(named, string(match[1]))
	}
	return named
}

// waysIn lists settings, events of nodes and users, Python files beside a script, and calls of the agent.
func waysIn(t *testing.T) (ways []string) {
	t.Helper()
	for _, s := range settings() {
		ways = append(ways, s.Name)
	}
	for _, row := range events.Catalogue {
		if slices.Contains(row.SaidBy, "node") || slices.Contains(row.SaidBy, "user") {
			ways = append(ways, string(row.Kind))
		}
	}
	files, err := filepath.Glob("../../services/agent/python/reknit_*.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		ways = append(ways, filepath.Base(file))
	}
	calls, err := os.ReadFile("../../services/agent/local/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile("(?m)^\\| `([A-Z]+ /v1/\\w+)").FindAllSubmatch(calls, -1) {
		ways = append(ways, string(match[1]))
	}
	if len(ways) < 100 {
		t.Errorf("%d ways in were found, expected all: %s", len(ways), strings.Join(ways, " "))
	}
	return ways
}
