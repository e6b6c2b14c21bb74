package up

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/services/reknit/provision"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

// runs has the command run with a free port until the test ends, or stop is called, which returns what it said.
func runs(t *testing.T, dir string, arguments ...string) (stop func() string) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	said, out := io.Pipe()
	ended, words := make(chan error, 1), make(chan string, 1)
	go func() {
		err := up(ctx, out, append([]string{"--dir", dir, "--port", "0", "--page", "none"}, arguments...)...)
		out.Close()
		ended <- err
	}()
	started := make(chan struct{})
	go func() {
		var all strings.Builder
		for buffer := make([]byte, 1<<12); ; {
			n, err := said.Read(buffer)
			had := strings.Contains(all.String(), "reknit status")
			if all.Write(buffer[:n]); !had && strings.Contains(all.String(), "reknit status") {
				close(started)
			}
			if err != nil {
				words <- all.String()
				return
			}
		}
	}()
	select {
	case <-started:
	case err := <-ended:
		t.Fatalf("it ends with %v, and says %q", err, <-words)
	}
	return func() string {
		interrupt()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		return <-words
	}
}

// entered reports whether NATS lets in who has a kit, "" being none.
func entered(t *testing.T, dir, kit string) bool {
	t.Helper()
	environment, err := os.ReadFile(filepath.Join(dir, "secret", "services", "user", "environment"))
	if err != nil {
		t.Fatal(err)
	}
	url := regexp.MustCompile(`REKNIT_NATS_URL=(\S+)`).FindSubmatch(environment)[1]
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	b, err := bus.Connect(ctx, bus.Config{URL: string(url), Name: "test", Cluster: "default", Kit: kit, Command: true})
	if err == nil {
		b.Close()
	}
	return err == nil
}

func TestASecuredClusterLetsInWhoHasAKitAndGoesOnWithTheSameKeys(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	stop := runs(t, dir, "--secured", "--node", "alpha/n1", "--node", "n2")
	of := func(parts ...string) string { return filepath.Join(append([]string{dir, "secret"}, parts...)...) }
	for _, kit := range []string{of("services", "user"), of("institutions", "alpha", "n1"), of("institutions", "local", "n2")} {
		if !entered(t, dir, kit) {
			t.Errorf("%s lets nobody in", kit)
		}
	}
	if entered(t, dir, "") {
		t.Error("who has no kit is let in")
	}
	said := stop()
	if expected := "(set -a; . " + of("institutions", "alpha", "n1", "environment") + "; reknit agent run -- COMMAND)"; !strings.Contains(said, expected) {
		t.Errorf("said %q, expected %q", said, expected)
	}
	first, err := bus.ReadIdentity(of("institutions", "alpha", "n1"))
	if err != nil {
		t.Fatal(err)
	}
	stop = runs(t, dir, "--secured", "--node", "alpha/n3")
	again, err := bus.ReadIdentity(of("institutions", "alpha", "n1"))
	if err != nil || again.Key != first.Key {
		t.Errorf("the node is %v, expected %v: %v", again.Key, first.Key, err)
	}
	if policy, err := os.ReadFile(of("admission.json")); err != nil || strings.Count(string(policy), first.Key) != 1 {
		t.Errorf("the policy lists %s, expected the node once: %v", policy, err)
	}
	if !entered(t, dir, of("institutions", "alpha", "n3")) {
		t.Error("the node that came later is not let in")
	}
	stop()
}

// A process that was killed before it wrote the token left an empty file, and the page was open to everybody.
func TestAnEmptyFileIsNoTokenOfThePage(t *testing.T) {
	t.Setenv("REKNIT_PAGE_TOKEN", "")
	s := secret{folder: t.TempDir()}
	if err := os.WriteFile(s.pageTokenFile(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	token, err := s.pageToken()
	if kept, unread := os.ReadFile(s.pageTokenFile()); err != nil || unread != nil || token == "" || string(kept) != token {
		t.Errorf("the token is %q, and %q is kept: %v, %v", token, kept, err, unread)
	}
}

func TestASecuredClusterIsNotStartedWithoutItsKeysNorAnOpenOneWithKeys(t *testing.T) {
	open, secured := t.TempDir(), t.TempDir()
	for _, folder := range []string{filepath.Join(open, "nats"), filepath.Join(secured, "secret")} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, wrong := range []struct {
		arguments []string
		expected  string
	}{
		{[]string{"--dir", open, "--secured"}, "--secured: " + open + " was begun without keys"},
		{[]string{"--dir", secured}, "--secured: expected, for " + secured + " was begun with it"},
		{[]string{"--dir", open, "--node", "n1"}, "--node: expected --secured beside it"},
		{[]string{"--dir", secured, "--secured", "--node", "a/b/c"}, "--node: expected NAME or INSTITUTION/NAME"},
		{[]string{"--dir", secured, "--secured", "--node", "/n1"}, "--node: expected NAME or INSTITUTION/NAME"},
	} {
		err := up(t.Context(), io.Discard, append(wrong.arguments, "--port", "0")...)
		if !errors.As(err, &tell.UsageError{}) || !strings.HasPrefix(err.Error(), wrong.expected) {
			t.Errorf("%v: %v, expected %q", wrong.arguments, err, wrong.expected)
		}
	}
}

func TestASecuredClusterThatIsStartedAgainListsNobodyWhomNobodyNamedAndBringsNobodyBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	first := options{dir: dir, cluster: "c", host: "127.0.0.1", secured: true, nodes: []string{"alpha/a1", "alpha/a2"}}
	if err := first.provision(4222); err != nil {
		t.Fatal(err)
	}
	folder := first.secret().folder
	for _, more := range []provision.Options{
		{Dir: folder, Institution: "gamma", Nodes: []string{"g1"}}, {Dir: folder, Institution: "alpha", Revoke: []string{"a2"}},
	} {
		if err := provision.Security(more); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.checkSecured(); err == nil || !strings.HasPrefix(err.Error(), "--node: the kit of alpha/a2 was revoked") {
		t.Errorf("with the same words: %v", err)
	}
	again := first
	again.nodes = []string{"alpha/a1", "alpha/a3"}
	if err := errors.Join(again.checkSecured(), again.provision(4222)); err != nil {
		t.Fatal(err)
	}
	policy, err := os.ReadFile(filepath.Join(folder, "admission.json"))
	if err != nil {
		t.Fatal(err)
	}
	for name, listed := range map[string]bool{"alpha/a1": true, "alpha/a3": true, "gamma/g1": false} {
		if identity, err := bus.ReadIdentity(filepath.Join(folder, "institutions", name)); err != nil ||
			strings.Contains(string(policy), identity.Key) != listed {
			t.Errorf("%s is listed: expected %v: %v", name, listed, err)
		}
	}
	other := again
	other.cluster = "d"
	if err := other.checkSecured(); err == nil || !strings.HasPrefix(err.Error(), "--cluster: expected c") {
		t.Errorf("with another cluster: %v", err)
	}
}
