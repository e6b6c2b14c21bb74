package contract

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// What a page says that a program says is a promise to who searches for it at night. Messages are compared as the source
// has them; what is put together from several lines is quoted up to the end of one.
func TestEachSymptomIsWhatTheCodeSays(t *testing.T) {
	page, err := os.ReadFile("../../deploy/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	var sources strings.Builder
	eachSource(t, func(_, text string) { sources.WriteString(text) })
	sources.WriteString(nats.ErrReconnectBufExceeded.Error()) // programs hand on what the client says
	said, quoted := strings.ReplaceAll(sources.String(), `\"`, `"`), regexp.MustCompile("`([^`]+)`")
	symptoms := 0
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		symptom, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		symptom, _, _ = strings.Cut(symptom, "` (") // and who says it
		for _, match := range quoted.FindAllStringSubmatch(symptom+"`", -1) {
			symptoms++
			if !strings.Contains(said, match[1]) {
				t.Errorf("%q: no program says so; expected it in the source of services or shared", match[1])
			}
		}
	}
	if symptoms < 30 {
		t.Errorf("%d symptoms found, expected all of the page", symptoms)
	}
}

func TestEachPageThatIsLinkedIsThere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:\s]+)(#[^)]*)?\)`)
	for _, folder := range []string{"", "deploy/", "services/", "services/agent/", "tests/", "tests/bench/", ".github/", "events/"} {
		for _, name := range []string{"README.md", "features.md", "settings.md", "troubleshooting.md", "CONTRIBUTING.md", "CHANGELOG.md"} {
			text, err := os.ReadFile("../../" + folder + name)
			if err != nil {
				continue
			}
			for _, match := range link.FindAllStringSubmatch(string(text), -1) {
				if _, err := os.Stat("../../" + folder + match[1]); err != nil {
					t.Errorf("%s%s leads to %s: %v", folder, name, match[1], err)
				}
			}
		}
	}
}
