package connect

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
)

// home is that of somebody who uses the nats command, and has nothing in the environment.
func home(t *testing.T) (config string) {
	t.Helper()
	config = t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", config)
	for _, name := range []string{"NATS_CONTEXT", "NATS_URL", "NATS_CREDS", "REKNIT_NATS_URL", "REKNIT_CLUSTER"} {
		t.Setenv(name, "")
	}
	if err := os.MkdirAll(filepath.Join(config, "nats", "context"), 0o700); err != nil {
		t.Fatal(err)
	}
	return config
}

func write(t *testing.T, path, format string, arguments ...any) string {
	t.Helper()
	if err := os.WriteFile(path, fmt.Appendf(nil, format, arguments...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// guarded is a server that lets one key in.
func guarded(t *testing.T, dir string) (url, seedFile string) {
	t.Helper()
	key, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, _ := key.PublicKey()
	seed, _ := key.Seed()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
		Nkeys: []*server.NkeyUser{{Nkey: public}}})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.Shutdown)
	return s.ClientURL(), write(t, filepath.Join(dir, "seed"), "%s\n", seed)
}

func TestAContextOfTheNatsCommandSaysWhereNATSIsAndHoldsTheKey(t *testing.T) {
	config := home(t)
	url, seed := guarded(t, config)
	write(t, filepath.Join(config, "nats", "context", "site.json"), `{"url": %q, "nkey": %q, "jetstream_domain": "hub"}`, url, seed)
	entered := func(how string, f Flags) {
		t.Helper()
		conn, _, err := f.Dial()
		if err != nil {
			t.Errorf("%s: %v", how, err)
			return
		}
		conn.Close()
	}
	entered("named by a flag", Flags{Context: "site"})
	if to, err := (Flags{Context: "site"}).settings(); err != nil || to.api != "$JS.hub.API" {
		t.Errorf("JetStream is asked on %q, %v, expected the context's domain", to.api, err)
	}
	t.Setenv("NATS_CONTEXT", "site")
	entered("named by the environment", Flags{})
	entered("with another URL", Flags{URL: url})
	t.Setenv("NATS_CONTEXT", "")
	write(t, filepath.Join(config, "nats", "context.txt"), "site")
	entered("selected", Flags{})
	t.Setenv("NATS_URL", url) // stands for another server, whose key is not the selected context's
	if _, _, err := (Flags{}).Dial(); !errors.As(err, &Unreachable{}) || !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("without a key: %v, expected to be refused", err)
	}
	t.Setenv("NATS_CREDS", "/no/credentials")
	if _, _, err := (Flags{}).Dial(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("with credentials that are not there: %v", err)
	}
}

func TestWhereNATSIsComesFromTheNearestThatSaysIt(t *testing.T) {
	home(t)
	expect := func(f Flags, url string) {
		t.Helper()
		if to, err := f.settings(); err != nil || to.url != url {
			t.Errorf("%+v: %q, %v, expected %q", f, to.url, err, url)
		}
	}
	expect(Flags{}, "nats://127.0.0.1:4222")
	t.Setenv("NATS_URL", "nats://n:1")
	expect(Flags{}, "nats://n:1")
	t.Setenv("REKNIT_NATS_URL", "nats://r:1")
	expect(Flags{}, "nats://r:1")
	expect(Flags{URL: "nats://f:1"}, "nats://f:1")
}

func TestWhatIsNotThereIsNamed(t *testing.T) {
	home(t)
	if _, _, err := (Flags{Context: "nosuch"}).Dial(); !errors.As(err, &tell.UsageError{}) {
		t.Errorf("a context that is not there: %v", err)
	}
	_, err := Flags{URL: "nats://127.0.0.1:1"}.Open(t.Context())
	if unreachable := (Unreachable{}); !errors.As(err, &unreachable) || unreachable.URL != "nats://127.0.0.1:1" ||
		!strings.Contains(err.Error(), "; reknit up starts one here; ") {
		t.Errorf("a server that is not there: %v", err)
	}
}

func TestACommandSaysNothingOfKeysThatNobodyAsksFor(t *testing.T) {
	home(t)
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	service, err := bus.Connect(t.Context(), bus.Config{URL: server.URL(), Name: "planner", Cluster: "c"})
	if err != nil {
		t.Fatal(err)
	}
	if err := service.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	service.Close()
	var log bytes.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	b, err := Flags{URL: server.URL(), Cluster: "c"}.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	if log.Len() > 0 {
		t.Errorf("it says %s", &log)
	}
	if service, err = bus.Connect(t.Context(), bus.Config{URL: server.URL(), Name: "planner", Cluster: "c"}); err != nil {
		t.Fatal(err)
	}
	service.Close()
	if strings.Contains(log.String(), "no keys and no TLS") {
		t.Errorf("a service beside a server that only this machine reaches says %q", &log)
	}
}
