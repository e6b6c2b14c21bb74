package provision

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"

	"github.com/reknit/reknit/shared/bus"
)

const siteName = "127.0.0.4"

// withASite provisions a node of alpha, and the nodes of beta's site.
func withASite(t *testing.T, nodes int) (alpha, beta Options) {
	t.Helper()
	alpha = Options{Dir: t.TempDir(), Cluster: "opticks", Institution: "alpha", Nodes: []string{"n1"}}
	alpha.Servers = []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}
	beta = Options{Dir: alpha.Dir, Institution: "beta", Leaf: siteName}
	for n := range nodes {
		beta.Nodes = append(beta.Nodes, fmt.Sprint("s", n))
	}
	for _, options := range []Options{alpha, beta} {
		if err := Security(options); err != nil {
			t.Fatal(err)
		}
	}
	return alpha, beta
}

// tokenOf reads the token of the site's server.
func tokenOf(t *testing.T, dir string) *jwt.UserClaims {
	t.Helper()
	token, err := tokenIn(filepath.Join(dir, serverFolder, siteName, bus.CredentialsFile))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func isRevoked(t *testing.T, dir, key string, written int64) bool {
	t.Helper()
	revoked, err := readRevoked(filepath.Join(dir, operatorFolder, "revoked.json"))
	if err != nil {
		t.Fatal(err)
	}
	return revoked[key] >= written
}

func TestASiteOf150NodesIsProvisioned(t *testing.T) {
	_, beta := withASite(t, 150)
	if count := len(tokenOf(t, beta.Dir).Pub.Allow); count < 150 {
		t.Errorf("the server of the site may publish on %d subjects", count)
	}
}

func TestASiteThatIsTooLargeIsRefusedByNameAndNumberAndOthersAreRevoked(t *testing.T) {
	alpha, beta := withASite(t, 1)
	kit := filepath.Join(alpha.Dir, institutionsFolder, "beta", "s0")
	stolen, err := bus.ReadIdentity(kit)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 1500 {
		beta.Nodes = append(beta.Nodes, fmt.Sprint("t", n))
	}
	beta.Nodes, beta.Revoke = beta.Nodes[1:], []string{"s0"}
	err = Security(beta)
	if err == nil || !strings.Contains(err.Error(), "site "+siteName+": the rights of 1500 nodes") {
		t.Errorf("expected the name of the site and how many nodes it has, got %v", err)
	}
	if !isRevoked(t, alpha.Dir, stolen.Key, 1) {
		t.Error("the node that was to be revoked is not")
	}
	if !isPushed(t, alpha.Dir, stolen.Key) {
		t.Error("no server will hear that it is")
	}
	if _, err := os.Stat(filepath.Join(alpha.Dir, institutionsFolder, "beta", "t0")); err == nil {
		t.Error("a node that the site has no room for has a kit")
	}
}

// A token stayed good for ever that spoke for a node which was gone, where the disk was full between the next one and its revocation.
func TestTheTokenOfBeforeIsRevokedThoughARunEndsInTheMiddle(t *testing.T) {
	_, beta := withASite(t, 1)
	before := tokenOf(t, beta.Dir)
	beta.Leaf = "" // the node connects elsewhere now
	obstacle := filepath.Join(beta.Dir, operatorFolder, "revoked.json.next")
	if err := os.Mkdir(obstacle, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Security(beta); err == nil {
		t.Error("no revocation could be noted, and the run says nothing")
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	if err := Security(beta); err != nil {
		t.Fatal(err)
	}
	now := tokenOf(t, beta.Dir)
	if !isRevoked(t, beta.Dir, before.Subject, before.IssuedAt) || isRevoked(t, beta.Dir, now.Subject, now.IssuedAt) {
		t.Errorf("expected that the token of %d is revoked, and that of %d is not", before.IssuedAt, now.IssuedAt)
	}
}

// Others are provisioned, and the run names the site at its end.
func TestASiteAtFaultKeepsNobodyElseFromAKit(t *testing.T) {
	alpha, beta := withASite(t, 1)
	if err := os.WriteFile(filepath.Join(beta.Dir, serverFolder, siteName, bus.CredentialsFile), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	alpha.Nodes = []string{"n2"}
	if err := Security(alpha); err == nil || !strings.Contains(err.Error(), siteName) {
		t.Errorf("expected the name of the site, got %v", err)
	}
	if _, err := bus.ReadIdentity(filepath.Join(alpha.Dir, institutionsFolder, "alpha", "n2")); err != nil {
		t.Error(err)
	}
}

// isPushed reports whether what Push tells servers has a key among the revoked.
func isPushed(t *testing.T, dir, key string) bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, operatorFolder, "accounts.json"))
	var tokens map[string]string
	if err == nil {
		err = json.Unmarshal(text, &tokens)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range tokens {
		claims, err := jwt.DecodeAccountClaims(token)
		if err != nil {
			t.Fatal(err)
		}
		if _, is := claims.Revocations[key]; is {
			return true
		}
	}
	return false
}
