package provision

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/shared/bus"
)

func TestANodeIsRevokedByItsNameAloneUnlessSeveralHaveIt(t *testing.T) {
	dir := t.TempDir()
	for institution, nodes := range map[string][]string{"alpha": {"n1", "n2"}, "beta": {"n1", "n3"}} {
		if err := Security(Options{Dir: dir, Institution: institution, Nodes: nodes}); err != nil {
			t.Fatal(err)
		}
	}
	kit := func(institution, node string) string {
		return filepath.Join(dir, institutionsFolder, institution, node)
	}
	known, err := bus.ReadIdentity(kit("beta", "n3"))
	if err != nil {
		t.Fatal(err)
	}
	if err := Security(Options{Dir: dir, Revoke: []string{"n3"}}); err != nil || !isRevoked(t, dir, known.Key, 1) {
		t.Errorf("n3 of beta is not revoked: %v", err)
	}
	for node, says := range map[string]string{
		"n1": `--institution: expected one of alpha, beta, each of which has a node "n1"`,
		"n3": `--revoke: expected a service, a public key, or a node that has a kit here (alpha/n1, alpha/n2, beta/n1), got "n3"`,
	} {
		if err := Security(Options{Dir: dir, Revoke: []string{node}}); err == nil || err.Error() != says {
			t.Errorf("%s: %v, expected %s", node, err, says)
		}
	}
	if err := Security(Options{Dir: dir, Institution: "beta", Revoke: []string{"n1"}}); err != nil {
		t.Error(err)
	}
	for _, stays := range []string{kit("alpha", "n1"), kit("alpha", "n2")} {
		if _, err := os.Stat(stays); err != nil {
			t.Error(err)
		}
	}
}

// It tried for 30 s in silence, and then said that a deadline was exceeded.
func TestAPushToNobodySaysAtOnceWhatItDoesAndAtTheEndWhatToDo(t *testing.T) {
	var said strings.Builder
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	const url = "nats://127.0.0.1:1"
	err := Options{Dir: t.TempDir()}.run(ctx, url, &said)
	if err == nil || !strings.HasPrefix(err.Error(), "--push: expected the URL of a running server of this installation") {
		t.Errorf("ends with %v", err)
	}
	if !strings.Contains(said.String(), "tells NATS at "+url+" who was revoked") {
		t.Errorf("says %q", &said)
	}
}
