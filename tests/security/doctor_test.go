package security

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/doctor"
	"github.com/reknit/reknit/services/reknit/inventory"
	"github.com/reknit/reknit/services/reknit/tell"
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
		command.SetArgs([]string{}) // not those of the test
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

// TestStatusIsForUsersAndWaitsForNobodyButHeartbeats asks it with the kits of a user, whose readings of the log share a
// consumer, and of a node, who hears nobody.
func TestStatusIsForUsersAndWaitsForNobodyButHeartbeats(t *testing.T) {
	p := open(t)
	if err := p.connect("negotiator").Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	user := p.connect("user")
	for i := range 1000 { // so that to read them takes a while
		leave := events.Speaker{Source: "/user", Cluster: cluster}.First(time.Now(), "r", events.LeaveRequested, fmt.Sprint("n", i),
			&events.Leave{Node: fmt.Sprint("n", i), Reason: "drained"})
		if _, err := user.Publish(t.Context(), leave); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("REKNIT_NATS_URL", p.url)
	status := func(who, cluster string) error {
		t.Setenv("REKNIT_NATS_KIT", p.kit(who))
		command := inventory.Status()
		command.SetArgs([]string{"--cluster", cluster})
		command.SetOut(io.Discard)
		return command.ExecuteContext(t.Context())
	}
	log := listenToTheLog(t)
	for range 3 {
		if err := status("user", cluster); !errors.As(err, &tell.NotWell{}) {
			t.Errorf("to a user it says %v", err)
		}
	}
	if waited := log.count("they take turns"); waited > 0 {
		t.Errorf("%d times it waited for readings that are done", waited)
	}
	if err := status("n1", cluster); !errors.As(err, &tell.UsageError{}) || !strings.Contains(err.Error(), "expected the kit of a user") {
		t.Errorf("to a node it says %v", err)
	}
	if err := status("user", "another"); err == nil || !strings.Contains(err.Error(), "it is not that of the kit") {
		t.Errorf("of another cluster it says %v", err)
	}
}
