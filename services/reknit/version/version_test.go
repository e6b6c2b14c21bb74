package version

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// printed runs the command.
func printed(t *testing.T, arguments ...string) string {
	t.Helper()
	var out strings.Builder
	command := Command()
	command.SetArgs(arguments)
	command.SetOut(&out)
	if err := command.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// A test's program tells of no modules that it needs (golang/go#33976), so that only what it is compiled from is looked at.
func TestAProgramTellsOfWhichBuildItIs(t *testing.T) {
	var build Build
	if err := json.Unmarshal([]byte(printed(t, "--json")), &build); err != nil {
		t.Fatal(err)
	}
	if build.Version == "" || !strings.HasPrefix(build.Go, "go1.") || build.Contract != "v1" || build.Events != len(events.Catalogue) {
		t.Errorf("expected a version, the Go that compiled it and the events' version, got %+v", build)
	}
	if told := printed(t); !strings.Contains(told, build.Version) {
		t.Errorf("the table does not say %s: %s", build.Version, told)
	}
}
