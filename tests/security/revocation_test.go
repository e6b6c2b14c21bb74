package security

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent"
	"github.com/reknit/reknit/services/negotiator"
	"github.com/reknit/reknit/services/reknit/provision"
	"github.com/reknit/reknit/shared/bus"
)

// refused reports that the server does not let a kit in.
func (p *place) refused(folder string) bool {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), 500*time.Millisecond)
	defer cancel()
	b, err := bus.Connect(ctx, bus.Config{URL: p.url, Name: identity(p.T, folder).Key, Cluster: cluster, Kit: folder})
	if err == nil {
		b.Close()
	}
	return err != nil
}

func (p *place) push() {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), waits)
	defer cancel()
	if err := provision.Push(ctx, p.dir, p.url); err != nil {
		p.Fatal(err)
	}
}

// stolen is a copy of a kit, as its thief has it.
func (p *place) stolen(name string) string {
	p.Helper()
	copied := p.TempDir()
	if err := os.CopyFS(copied, os.DirFS(p.kit(name))); err != nil {
		p.Fatal(err)
	}
	return copied
}

func TestWhoIsRevokedIsDisconnectedAndStaysOut(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"n1", "monitor"} {
		t.Run(name, func(t *testing.T) {
			p := open(t)
			stolen := p.stolen(name)
			before, others := p.connect(name), []*bus.Bus{p.connect("n2"), p.connect("planner")}
			p.provision(provision.Options{Institution: "alpha", Revoke: []string{name}})
			if p.refused(stolen) {
				t.Error("refused before the server knows")
			}
			begun := time.Now()
			p.push()
			for deadline := begun.Add(waits); before.Conn().IsConnected(); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("still connected")
				}
			}
			t.Logf("disconnected %v after the push began", time.Since(begun).Round(time.Millisecond))
			if !p.refused(stolen) {
				t.Error("the key that was revoked opens a connection")
			}
			for _, other := range others {
				if other.Conn().Status() != nats.CONNECTED || other.Conn().Stats().Reconnects > 0 {
					t.Error("somebody else was disconnected")
				}
			}
			p.provision(provision.Options{Institution: "alpha", Nodes: []string{"n1"}})
			p.push()
			if identity(t, p.kit(name)).Key == identity(t, stolen).Key {
				t.Error("the new kit has the old key")
			}
			p.connect(name)
			if !p.refused(stolen) {
				t.Error("with a new kit the old key is good again")
			}
		})
	}
}

// TestNoTokenLetsAKeyInThatWasRevoked has whoever has the key of an institution, and a node's kit, sign a token for that node's key after it
// was revoked. The node's kit goes, though it was the key that was named, so that provisioning writes no such token either.
func TestNoTokenLetsAKeyInThatWasRevoked(t *testing.T) {
	m := &matrix{place: open(t)}
	key, stolen := m.key("n1"), m.stolen("n1")
	m.provision(provision.Options{Institution: "alpha", Revoke: []string{key}})
	m.push()
	time.Sleep(1100 * time.Millisecond) // a token says in seconds when it was written
	credentials := filepath.Join(stolen, bus.CredentialsFile)
	user := must(nkeys.ParseDecoratedUserNKey(must(os.ReadFile(credentials))))
	renewed := m.forge("renewed", m.signer("alpha"), user, func(*jwt.UserClaims) {})
	if err := os.WriteFile(credentials, must(os.ReadFile(renewed)), 0o600); err != nil {
		t.Fatal(err)
	}
	if !m.refused(stolen) {
		t.Error("a token that is written after the revocation opens a connection")
	}
	m.provision(provision.Options{Institution: "alpha", Nodes: []string{"n1"}})
	m.push()
	if m.key("n1") == key {
		t.Error("the name has the key again")
	}
	m.connect("n1")
}

// TestANodeThatIsRevokedEndsAndTheOthersTrainOn has a node be revoked that trains. It reaches its neighbours without the hub, and trained on
// with them until the hub gave it up a minute later.
func TestANodeThatIsRevokedEndsAndTheOthersTrainOn(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.services()
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte(prose), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	activated := make(chan string, 64) // by whom
	if err := p.connect("negotiator").Provision(ctx); err != nil {
		t.Fatal(err)
	}
	subjects := []string{events.EventSubject(cluster, events.PlanActivated, "*")}
	if _, err := p.connect("user").Follow(ctx, events.EventStream, subjects, bus.All,
		func(event events.Event) { activated <- event.Subject }); err != nil {
		t.Fatal(err)
	}
	ended, others := make(chan error, 1), make(chan error, 1)
	whole := map[string]string{"REKNIT_TRAINER_PIPELINES": "2", "REKNIT_TRAINER_LEAST_STAGES": "1", "REKNIT_TRAINER_MOST_STAGES": "1"}
	p.train(ctx, "n1", file, whole, ended)
	p.train(ctx, "n2", file, whole, others)
	for in := map[string]bool{}; len(in) < 2; in[<-activated] = true {
	}
	p.provision(provision.Options{Institution: "alpha", Revoke: []string{"n1"}})
	p.push()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("the node that is revoked ends with %v, expected the reason", err)
	}
	for {
		select {
		case by := <-activated:
			if by == p.key("n2") {
				return
			}
		case <-ctx.Done():
			t.Fatal("there is no plan without the node")
		}
	}
}

// TestAServiceWhoseKeyIsReplacedEndsAndTheNextActs revokes a service that runs. It must not connect with the new token: it would answer the
// next one that it works, and nobody would hear what it says. A thief of its key takes the lease before the server hears of the revocation.
func TestAServiceWhoseKeyIsReplacedEndsAndTheNextActs(t *testing.T) {
	p := open(t)
	p.admit()
	ctx, cancel := context.WithCancel(t.Context())
	act := func() <-chan error {
		var config negotiator.Config
		settings := map[string]string{"REKNIT_NATS_URL": p.url, "REKNIT_CLUSTER": cluster, "REKNIT_NATS_KIT": p.kit("negotiator")}
		if err := env.ParseWithOptions(&config, env.Options{Environment: settings}); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- negotiator.Run(ctx, config) }()
		return ended
	}
	lease := events.EventSubject(cluster, events.LeaseTaken, "negotiator")
	user := p.connect("user")
	await := func(when string) {
		t.Helper()
		for end := time.Now().Add(waits); ; time.Sleep(100 * time.Millisecond) {
			if _, found, err := user.LastEvent(t.Context(), events.EventStream, lease); found && err == nil {
				return // signed by who is the negotiator by the kit of the user
			}
			if time.Now().After(end) {
				t.Fatalf("no negotiator acts %s", when)
			}
		}
	}
	before := act()
	await("at first")
	thief := p.connectWith(p.url, p.stolen("negotiator"))
	p.provision(provision.Options{Institution: "alpha", Revoke: []string{"negotiator"}})
	theirs := events.Speaker{Source: "/negotiator", Cluster: cluster}.First(time.Now(), "thief", events.LeaseTaken, "negotiator",
		&events.Lease{Service: "negotiator", Instance: "thief"})
	if _, err := thief.Publish(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	p.push()
	select {
	case err := <-before:
		if !errors.Is(err, bus.ErrRevoked) {
			t.Errorf("the negotiator whose key is replaced ends with %v, expected %v", err, bus.ErrRevoked)
		}
	case <-time.After(waits):
		t.Fatal("the negotiator whose key is replaced goes on")
	}
	user = p.connect("user")
	if _, found, _ := user.LastEvent(t.Context(), events.EventStream, lease); found {
		t.Fatal("the lease of the thief passes for one of the new key")
	}
	next := act()
	await("with its new key")
	cancel()
	if err := <-next; err != nil {
		t.Error(err)
	}
}

// TestAProcessThatStartsWithARevokedKitEndsOnceItsFolderHoldsTheNext is what follows on another host: the service that is revoked ends, is
// started again with the kit of before, and the operator copies the next one, file by file.
func TestAProcessThatStartsWithARevokedKitEndsOnceItsFolderHoldsTheNext(t *testing.T) {
	p := open(t)
	there := p.stolen("monitor")
	p.provision(provision.Options{Institution: "alpha", Revoke: []string{"monitor"}})
	p.push()
	ctx, cancel := context.WithTimeout(t.Context(), waits)
	defer cancel()
	connect := func(opened func()) error {
		b, err := bus.Connect(ctx, bus.Config{URL: p.url, Name: "monitor", Cluster: cluster, Kit: there,
			Options: []nats.Option{func(*nats.Options) error { opened(); return nil }}})
		if err == nil {
			b.Close()
		}
		return err
	}
	opened, ended := make(chan bool), make(chan error, 1)
	go func() { ended <- connect(func() { close(opened) }) }()
	copyTo := func(names ...string) {
		t.Helper()
		for _, name := range names {
			text, err := os.ReadFile(filepath.Join(p.kit("monitor"), name))
			if err == nil {
				err = os.WriteFile(filepath.Join(there, name), text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	<-opened
	copyTo(bus.CredentialsFile)
	if err := <-ended; !errors.Is(err, bus.ErrRevoked) {
		t.Errorf("it ends with %v, expected %v", err, bus.ErrRevoked)
	}
	if err := connect(func() {}); err == nil || !strings.Contains(err.Error(), bus.IdentityFile) {
		t.Errorf("with half of a kit: %v, expected the file that is of another", err)
	}
	copyTo(bus.IdentityFile, bus.CertificateFile, bus.KeyFile)
	if err := connect(func() {}); err != nil {
		t.Error(err)
	}
}

func TestAKitThatIsWrittenAnewKeepsItsIdentity(t *testing.T) {
	p := open(t)
	before := p.key("n1")
	p.provision(provision.Options{Institution: "alpha", Nodes: []string{"n1"}})
	if p.key("n1") != before {
		t.Error("the node has another id")
	}
	p.connect("n1")
}

func TestAKitIsNoGoodForAnotherNode(t *testing.T) {
	p := open(t)
	_, err := agent.Join(t.Context(), agent.Config{NATSURL: p.url, NATSKit: p.kit("n1"), Cluster: cluster, Node: p.key("n2")})
	if err == nil || !strings.Contains(err.Error(), "REKNIT_NATS_KIT") {
		t.Errorf("expected an error that names the setting, got %v", err)
	}
}

// TestWhatIsProvisionedIsItsOwnersAlone looks at all files of an installation: what is no certificate of an authority is a secret.
func TestWhatIsProvisionedIsItsOwnersAlone(t *testing.T) {
	p, looked := open(t), 0
	if err := filepath.WalkDir(p.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == p.dir || strings.HasPrefix(path, filepath.Join(p.dir, "server", "jetstream")) {
			return err
		}
		about, err := entry.Info()
		if err != nil {
			return err
		}
		looked++
		if mode := about.Mode().Perm(); mode&0o077 != 0 && !strings.HasSuffix(path, "ca.pem") {
			t.Errorf("%s has mode %v", path, mode)
		}
		return nil
	}); err != nil || looked < 50 {
		t.Errorf("%d files and folders, expected all: %v", looked, err)
	}
}
