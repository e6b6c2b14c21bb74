package agentd

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAnAgentRemovesTheSocketThatAKilledOneLeft(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	hourAgo := time.Now().Add(-time.Hour)
	killed, serves, starts := socketOf(t, "killed", hourAgo), socketOf(t, "serves", hourAgo), socketOf(t, "starts", time.Now())
	killed.Close()
	starts.Close() // it refuses, as one that is bound and does not listen yet
	newRan(t).run("true", 0)
	if _, err := os.Stat(killed.Addr().String()); err == nil {
		t.Error("what the killed agent left is there")
	}
	for _, living := range []*net.UnixListener{serves, starts} {
		if _, err := os.Stat(living.Addr().String()); err != nil {
			t.Errorf("the socket of an agent that lives: %v", err)
		}
	}
}

// socketOf makes an agent's directory with a socket of some age.
func socketOf(t *testing.T, agent string, made time.Time) *net.UnixListener {
	t.Helper()
	path := filepath.Join(os.TempDir(), socketPrefix+agent, socketName)
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	t.Cleanup(func() { listener.Close() })
	if err := os.Chtimes(path, made, made); err != nil {
		t.Fatal(err)
	}
	return listener
}

func TestADaemonSaysWhereItIsAndEndsWhenItIsAskedTo(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	output, say := io.Pipe()
	served := make(chan error, 1)
	config := Config{URL: "nats://127.0.0.1:1", Cluster: "test", Listen: "127.0.0.1:0"}
	go func() { served <- Serve(ctx, t.Context(), config, say) }()
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	socket, says := strings.CutPrefix(strings.TrimSpace(line), "export REKNIT_AGENT=")
	if !says || !filepath.IsAbs(socket) {
		t.Errorf("it says %q: expected what a shell takes", line)
	}
	connection, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	connection.Close()
	end()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("unix", socket); err == nil {
		t.Error("its socket still answers")
	}
}
