package negotiator

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/reknit/reknit/shared/bus"
)

// keyed is a key with what is public of it.
func keyed(t *testing.T, create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
	t.Helper()
	pair, err := create()
	if err != nil {
		t.Fatal(err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return pair, public
}

func TestARunningNegotiatorTakesTheNextPolicyThatIsSignedAndNoneOfBefore(t *testing.T) {
	folder := t.TempDir()
	alpha, institution := keyed(t, nkeys.CreateAccount)
	_, first := keyed(t, nkeys.CreateUser)
	_, second := keyed(t, nkeys.CreateUser)
	file := filepath.Join(folder, "admission.json")
	write := func(file string, content any) {
		t.Helper()
		text, err := json.Marshal(content)
		if err == nil {
			err = os.WriteFile(file, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(folder, bus.IdentityFile), bus.Identity{Institutions: map[string]string{"alpha": institution}})
	policy := func(version int, isSigned bool, nodes ...string) {
		t.Helper()
		content, err := json.Marshal(Policy{Cluster: "c", Version: version, Institutions: map[string][]string{"alpha": nodes}})
		if err != nil {
			t.Fatal(err)
		}
		signed := Signed{Policy: content, Signatures: map[string]string{}}
		if text, err := SignedText(content); err == nil && isSigned {
			signature, err := alpha.Sign(text)
			if err != nil {
				t.Fatal(err)
			}
			signed.Signatures["alpha"] = base64.RawURLEncoding.EncodeToString(signature)
		}
		write(file, signed)
	}
	policy(1, true, first)
	p := &policyFile{file: file, kit: folder, cluster: "c"}
	admission, err := p.read()
	if err != nil || admission.Nodes[first] != "alpha" || !strings.HasPrefix(admission.Lists, "reknit provision admission --dir DIR, ") {
		t.Fatalf("admits %+v: %v", admission, err)
	}
	now := time.Unix(0, 0)
	expect := func(what string, takes bool) {
		t.Helper()
		now = now.Add(lookEvery)
		next, found := p.next(now)
		if found != takes || found && next.Nodes[second] != "alpha" {
			t.Errorf("%s: takes %v, %+v", what, found, next)
		}
	}
	expect("the same", false)
	policy(2, false, first, second)
	expect("the next, which nobody signed", false)
	policy(1, true, first, second)
	expect("another one by the same number", false)
	policy(2, true, first, second)
	expect("the next", true)
	policy(1, true, first)
	expect("the one before", false)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	expect("none", false)
	if err := os.Mkdir(filepath.Join(folder, "operator"), 0o700); err != nil {
		t.Fatal(err)
	}
	policy(3, true, second)
	expect("one that is there again", true)
	if expected := "reknit provision admission --dir " + folder + " lists"; !strings.HasPrefix(p.lists(), expected) {
		t.Errorf("says %q, expected %q", p.lists(), expected)
	}
}
