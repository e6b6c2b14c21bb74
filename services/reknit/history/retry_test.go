package history

import (
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

// Who started the script again at each node, as it said, had two of it.
func TestBeforeARetryNobodyIsToldToStartWhatAnAgentStarts(t *testing.T) {
	for _, step := range []uint64{0, 30} {
		says := BeforeARetry(events.HeldStep{Step: step})
		if !strings.Contains(says, "its agent starts the new one") || strings.Contains(says, "at each node") {
			t.Errorf("of step %d it says %q", step, says)
		}
	}
}
