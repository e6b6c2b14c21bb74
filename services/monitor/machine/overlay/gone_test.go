package overlay

import (
	"strings"
	"testing"
)

// A user was told to wait for a node whose kit had been revoked.
func TestOnlyWhereKitsAreRevokedItIsSaidThatSuchANodeStaysAway(t *testing.T) {
	const start = "; else start it again to have it back (reknit agent run -- COMMAND)"
	for name, test := range map[string]struct {
		gone    Gone
		secured bool
		says    string
	}{
		"open":                      {Gone{}, false, "it comes back by itself where it runs on" + start},
		"secured":                   {Gone{}, true, "it comes back by itself where it runs on, unless its kit was revoked" + start},
		"its script ended":          {Gone{Proven: true}, false, "its agent starts it again while that runs" + start},
		"secured, its script ended": {Gone{Proven: true}, true, "its agent starts it again while that runs, unless its kit was revoked" + start},
		"secured, it left":          {Gone{Left: true}, true, "; start it again to have it back (reknit agent run -- COMMAND)"},
	} {
		if says := test.gone.Says(test.secured); !strings.HasSuffix(says, test.says) {
			t.Errorf("%s: it says %q, expected %q", name, says, test.says)
		}
	}
}
