package doctor

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
)

// A service's memory lies where the log does, and goes back with it.
func TestALogThatWasPutBackIsFound(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	config, kept := embedded.Config{StoreDir: filepath.Join(t.TempDir(), "store")}, filepath.Join(t.TempDir(), "kept")
	started := func() *clinic {
		server, err := embedded.Start(config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Shutdown)
		address, err := url.Parse(server.URL())
		if err == nil {
			config.Port, err = strconv.Atoi(address.Port())
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := bus.Connect(t.Context(), bus.Config{URL: server.URL(), Name: "test", Cluster: "c"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		if err := b.Provision(t.Context()); err != nil {
			t.Fatal(err)
		}
		return &clinic{t: t, bus: b, url: server.URL(), stop: server.Shutdown}
	}
	finds := func(c *clinic, says string) {
		t.Helper()
		findings, _ := examined(t, c.url)
		isFound := slices.ContainsFunc(findings, func(finding string) bool { return strings.HasPrefix(finding, "log ") })
		if isFound != (says != "") || isFound && !strings.Contains(strings.Join(findings, "; "), says) {
			t.Errorf("expected of the log %q, got %q", says, findings)
		}
	}
	c := started()
	c.commit(1)
	finds(c, "")
	c.stop()
	if err := os.CopyFS(kept, os.DirFS(config.StoreDir)); err != nil {
		t.Fatal(err)
	}
	c = started()
	c.said = 1
	c.commit(2)
	c.plan("127.0.0.1:1")
	finds(c, "")
	finds(c, "")
	c.stop()
	if err := errors.Join(os.RemoveAll(config.StoreDir), os.CopyFS(config.StoreDir, os.DirFS(kept))); err != nil {
		t.Fatal(err)
	}
	c = started()
	finds(c, "it went back: it ends at sequence 1, and had 2")
	finds(c, "it went back") // until it is further than it was
	c.said = 10
	c.say("/negotiator", events.Committed, "g3", &events.Commitment{Negotiation: "g3", Generation: 3, PlanDigest: events.Digest(nil)})
	finds(c, "plans went back: the newest is of generation 0, and was of 1")
	c.plan("127.0.0.1:1")
	finds(c, "sequence 2 is another message")
	finds(c, "sequence 2 is another message") // to whoever looks
	c.say("/user", events.LogAccepted, "c", &events.Acceptance{Reason: "the newer store is gone"})
	finds(c, "")
	finds(c, "")
}
