package security

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator"
	"github.com/reknit/reknit/services/reknit/provision"
)

// negotiate runs a negotiator with an admission policy for a moment, and returns why it did not start.
func (p *place) negotiate(policy, kit string) error {
	p.Helper()
	var config negotiator.Config
	settings := map[string]string{"REKNIT_NATS_URL": p.url, "REKNIT_CLUSTER": cluster, "REKNIT_NATS_KIT": kit, "REKNIT_ADMISSION": policy}
	if err := env.ParseWithOptions(&config, env.Options{Environment: settings}); err != nil {
		p.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(p.Context(), 2*time.Second)
	defer cancel()
	return negotiator.Run(ctx, config)
}

// TestAnAdmissionPolicyCountsAsItsInstitutionsSignedIt has a negotiator read policies that were signed, changed, and signed
// by too few.
func TestAnAdmissionPolicyCountsAsItsInstitutionsSignedIt(t *testing.T) {
	t.Parallel()
	p := open(t)
	policy, kit := filepath.Join(p.dir, "admission.json"), p.kit("negotiator")
	quorum := func(number int) *int { return &number }
	write := func(options provision.AdmissionOptions) {
		t.Helper()
		options.Dir, options.Cluster = p.dir, cluster
		if err := provision.Admission(options); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what, reason string, err error) {
		t.Helper()
		if (err == nil) != (reason == "") || err != nil && !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: expected %q, got %v", what, reason, err)
		}
	}
	expect("none", "expected the signed policy of who may join", p.negotiate("", kit))
	write(provision.AdmissionOptions{Quorum: quorum(1), Sign: []string{"alpha"}})
	expect("signed by one of two, in the kit", "expected the signed policy of who may join", p.negotiate("", kit))
	expect("signed by one of two", "these did not sign it as it is: beta", p.negotiate(policy, kit))
	write(provision.AdmissionOptions{Quorum: quorum(1), Sign: []string{"beta"}})
	expect("signed by the other, too", "", p.negotiate(policy, kit))
	expect("signed by both, in the kit", "", p.negotiate("", kit))
	expect("without a kit", "REKNIT_NATS_KIT", p.negotiate(policy, ""))
	good, err := os.ReadFile(policy)
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string][2]string{
		"another quorum": {`"quorum": 1`, `"quorum": 0`}, "another node": {p.key("n1"), p.key("n2")},
		"another version": {`"version": 1`, `"version": 2`}, "another cluster": {cluster, "other"},
	} {
		changed := bytes.Replace(good, []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(changed, good) {
			t.Fatalf("%s: nothing changed in %s", what, good)
		}
		if err := os.WriteFile(policy, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		expect(what, "these did not sign it as it is: alpha, beta", p.negotiate(policy, kit))
	}
	if err := os.WriteFile(policy, good, 0o600); err != nil {
		t.Fatal(err)
	}
	write(provision.AdmissionOptions{Quorum: quorum(2), Sign: []string{"alpha"}})
	expect("changed, and signed by one", "these did not sign it as it is: beta", p.negotiate(policy, kit))
	write(provision.AdmissionOptions{Quorum: quorum(2), Sign: []string{"beta"}})
	said := events.Speaker{Source: events.NodeSource(p.key("n1")), Cluster: cluster}.First(time.Now(), "1", events.LeaveRequested, p.key("n1"),
		&events.Leave{Node: p.key("n1"), Reason: "done"})
	if _, err := p.connect("n1").Publish(t.Context(), said); err != nil { // a negotiator that heard nothing remembers nothing
		t.Fatal(err)
	}
	expect("changed, and signed by both", "", p.negotiate(policy, kit))
	if err := os.WriteFile(policy, good, 0o600); err != nil {
		t.Fatal(err)
	}
	expect("the one before", "version: expected 2 at least", p.negotiate(policy, kit))
	if err := os.Remove(filepath.Join(kit, negotiator.AdmissionFile)); err != nil {
		t.Fatal(err)
	}
	expect("none any more", "expected the signed policy of who may join", p.negotiate("", kit))
}
