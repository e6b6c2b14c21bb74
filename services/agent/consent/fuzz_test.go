package consent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/services/agent/consent"
)

// A policy is refused by the name of its setting, or answers: always the same, and never where nobody joins.
func FuzzPolicy(f *testing.F) {
	f.Add("a,b1", 2, "22:00-06:00", int64(1000), int64(0))
	f.Add("", 0, "", int64(0), int64(1_800_000_000))
	f.Add("a, b", -1, "9-5", int64(-1), int64(86399))
	f.Fuzz(func(t *testing.T, allow string, sites int, hours string, bytes, at int64) {
		policy := consent.Policy{Allow: allow, Sites: sites, Hours: hours, Bytes: bytes}
		if err := policy.Validate(); err != nil {
			if !strings.HasPrefix(err.Error(), "REKNIT_CONSENT_") {
				t.Errorf("%v names no setting", err)
			}
			return
		}
		asked := question
		asked.At = time.Unix(at, 0)
		if first := policy.Objection(asked); first != policy.Objection(asked) {
			t.Errorf("%+v objects with %q once, and then not", policy, first)
		}
		asked.Joining = nil
		if objection := policy.Objection(asked); objection != "" {
			t.Errorf("%+v objects to nobody: %s", policy, objection)
		}
	})
}
