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

	"github.com/reknit/reknit/services/negotiator/machine"
	"github.com/reknit/reknit/services/negotiator/protocol"
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
	identity := func(institutions map[string]string) {
		write(filepath.Join(folder, bus.IdentityFile), bus.Identity{Institutions: institutions})
	}
	identity(map[string]string{"alpha": institution})
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
	policy(3, true, second)
	expect("one that is there again", true)
	_, another := keyed(t, nkeys.CreateAccount)
	identity(map[string]string{"alpha": another})
	policy(4, true, second)
	expect("one of an institution that the kit does not know yet", false)
	identity(map[string]string{"alpha": institution})
	expect("the same, once the kit knows it", true)

	acting := admitting{machine.New(machine.Settings{Cluster: "c", Admission: protocol.Admission{Version: 4}}), p}
	memory, err := acting.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	by := &policyFile{file: file, kit: folder, cluster: "c", version: 3}
	stoodBy := admitting{machine.New(machine.Settings{Cluster: "c", Admission: protocol.Admission{Version: 3}}), by}
	if err := stoodBy.Restore(memory); err != nil {
		t.Errorf("one that stood by cannot take over: %v", err)
	}
}
