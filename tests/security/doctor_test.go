package security

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/services/reknit/doctor"
)

// TestTheDoctorSeesALogThatItsKitLetsItSee asks it with the kits of a user and of a node, who may ask for what their cluster has and
// for nothing else.
func TestTheDoctorSeesALogThatItsKitLetsItSee(t *testing.T) {
	p := open(t)
	if err := p.connect("negotiator").Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Setenv("REKNIT_NATS_URL", p.url)
	t.Setenv("REKNIT_CLUSTER", cluster)
	for _, who := range []string{"user", "n1"} {
		t.Setenv("REKNIT_NATS_KIT", p.kit(who))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var said strings.Builder
		command := doctor.Command()
		command.SetArgs(nil)
		command.SetOut(&said)
		_ = command.ExecuteContext(ctx) // no services are here, which it finds
		cancel()
		for _, check := range []string{"JetStream", "streams"} {
			if !regexp.MustCompile(check + ` +ok`).MatchString(said.String()) {
				t.Errorf("%s: the doctor does not see that the %s are there: %s", who, check, &said)
			}
		}
	}
}
