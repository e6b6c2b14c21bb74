package up

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/shared/embedded"
)

// disk is a small one, which can be filled.
func disk(t *testing.T) string {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"); err != nil {
		t.Skipf("no disk that can be filled without root: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// watched is a store in a folder, with what was told of it.
func watched(t *testing.T, dir string) (s *store, told *strings.Builder) {
	config := embedded.Config{StoreDir: filepath.Join(dir, "nats")}
	server, err := embedded.Start(config)
	if err != nil {
		t.Fatal(err)
	}
	told = &strings.Builder{}
	if s, err = open(config, server, told); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.close() })
	return s, told
}

func TestADiskThatWasFullOrReadOnlyIsNamedAndNATSGoesOnBehindIt(t *testing.T) {
	dir := disk(t)
	s, told := watched(t, dir)
	server := s.server
	js := streaming(t, server.URL())
	store := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := js.Publish(ctx, "s", make([]byte, 64<<10), jetstream.WithRetryAttempts(0))
		return err
	}
	look := func(want int) {
		t.Helper()
		if err := s.look(); err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(told.String(), "\n"); lines != want {
			t.Fatalf("%d lines, expected %d: %s", lines, want, told)
		}
	}
	if err := store(); err != nil {
		t.Fatal(err)
	}
	look(0)
	fill := filepath.Join(dir, "fill")
	if err := os.WriteFile(fill, make([]byte, 16<<20), 0o600); err == nil {
		t.Fatal("the disk takes all")
	}
	if err := store(); err == nil {
		t.Fatal("a full disk stores")
	}
	look(1)
	look(1)
	if !strings.Contains(told.String(), "no space left on device") {
		t.Errorf("told: %s", told)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	look(3)
	if s.server.URL() != server.URL() {
		t.Errorf("it listens at %s, and did at %s", s.server.URL(), server.URL())
	}
	js = streaming(t, server.URL())
	if err := store(); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err == nil {
		look(4)
		if !strings.Contains(told.String(), "read-only file system") {
			t.Errorf("told: %s", told)
		}
		if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT, ""); err != nil {
			t.Fatal(err)
		}
		look(6)
	}
}

func TestAStoreThatIsRemovedUnderNATSIsSaidAndNATSBeginsWithAnEmptyOne(t *testing.T) {
	s, told := watched(t, t.TempDir())
	server := s.server
	js := streaming(t, server.URL())
	if _, err := js.Publish(t.Context(), "s", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(s.config.StoreDir); err != nil {
		t.Fatal(err)
	}
	if err := s.look(); err != nil {
		t.Fatal(err)
	}
	if said := told.String(); !strings.Contains(said, "NATS' store in "+s.config.StoreDir+" was removed") ||
		strings.Count(said, "\n") != 2 {
		t.Errorf("it says %q", said)
	}
	if ack, err := streaming(t, server.URL()).Publish(t.Context(), "s", []byte("new")); err != nil || ack.Sequence != 1 {
		t.Errorf("the first in the empty store: %v, %v", ack, err)
	}
	if err := s.look(); err != nil || strings.Count(told.String(), "\n") != 2 {
		t.Errorf("said again: %v, %s", err, told)
	}
}

// streaming connects to a server and makes the stream there, if it is not there yet.
func streaming(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err == nil {
		_, err = js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func TestAStoreThatIsTornIsNamed(t *testing.T) {
	config := embedded.Config{StoreDir: filepath.Join(t.TempDir(), "nats")}
	server, err := embedded.Start(config)
	if err != nil {
		t.Fatal(err)
	}
	streaming(t, server.URL())
	server.Shutdown()
	infos, err := filepath.Glob(filepath.Join(config.StoreDir, "jetstream", "*", "streams", "S", "meta.inf"))
	if err != nil || len(infos) != 1 {
		t.Fatal(infos, err)
	}
	if err := os.WriteFile(infos[0], nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var told strings.Builder
	config.Warns = once(&told, "NATS warns: ")
	if server, err = embedded.Start(config); err != nil {
		t.Fatal(err)
	}
	server.Shutdown()
	if said := told.String(); !strings.HasPrefix(said, "NATS warns: ") || !strings.Contains(said, "meta") {
		t.Errorf("it says %q", said)
	}
}
