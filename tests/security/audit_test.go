package security

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/audit"
	"github.com/reknit/reknit/services/reknit/provision"
)

// What nodes, users and services said is recorded with the key of a service, and anybody who has a kit verifies all of it.
func TestAnAuditLogIsVerifiedWithAnybodysKit(t *testing.T) {
	p := open(t)
	negotiator := p.connect("negotiator")
	if err := negotiator.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	n1 := p.key("n1")
	for _, said := range []struct {
		by, source string
		kind       events.Kind
		payload    events.Payload
	}{
		{"n1", events.NodeSource(n1), events.LeaveRequested, &events.Leave{Node: n1, Reason: "<maintenance> & rest"}},
		{"user", "/user", events.LeaveRequested, &events.Leave{Node: n1, Reason: "drained"}},
		{"negotiator", "/negotiator", events.MembershipRefused, &events.Refusal{Node: n1, Refused: events.ChangeLeave, Reason: "it is needed"}},
	} {
		event := events.Speaker{Source: said.source, Cluster: cluster}.First(time.Now(), "1", said.kind, n1, said.payload)
		if _, err := p.connect(said.by).Publish(t.Context(), event); err != nil {
			t.Fatalf("%s by %s: %v", said.kind, said.by, err)
		}
	}
	path := filepath.Join(t.TempDir(), "audit")
	t.Setenv("REKNIT_NATS_KIT", p.kit("monitor"))
	recorded := p.audits("record", path, "--nats", p.url, "--cluster", cluster, "--policy", filepath.Join(p.dir, "server", "accounts.conf"))
	head := recorded[strings.LastIndexByte(recorded, '\n')+1:]
	t.Setenv("REKNIT_NATS_KIT", "")
	says := p.audits("verify", path, "--kit", p.kit("n3"), "--expect", head)
	if !strings.Contains(says, "records 1 to 4 follow each other; each is signed by somebody of the installation") {
		t.Errorf("it says %q", says)
	}
	p.provision(provision.Options{Institution: "alpha", Revoke: []string{"negotiator"}})
	if again := p.audits("verify", path, "--kit", p.kit("n3"), "--expect", head); again != says {
		t.Errorf("once the key of a service is replaced it says %q", again)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Replace(text, []byte("it is needed"), []byte("it was needed"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	command := audit.Command()
	command.SetArgs([]string{"verify", path, "--kit", p.kit("n3")})
	if err := command.Execute(); err == nil || !strings.Contains(err.Error(), "record 4: expected the signature of "+p.key("monitor")) {
		t.Errorf("got %v", err)
	}
}

func (p *place) audits(arguments ...string) string {
	p.Helper()
	command, out := audit.Command(), new(bytes.Buffer)
	command.SetArgs(arguments)
	command.SetOut(out)
	if err := command.ExecuteContext(p.Context()); err != nil {
		p.Fatal(fmt.Errorf("%s: %w", arguments[0], err))
	}
	return strings.TrimSpace(out.String())
}
