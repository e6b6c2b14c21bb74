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
)

func TestAnAgentRemovesTheSocketThatAKilledOneLeft(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	killed, serves := filepath.Join(os.TempDir(), socketPrefix+"1"), filepath.Join(os.TempDir(), socketPrefix+"2")
	for _, dir := range []string{killed, serves} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, socketName), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		if dir == killed {
			listener.SetUnlinkOnClose(false)
			listener.Close()
		}
	}
	newRan(t).run("true", 0)
	if _, err := os.Stat(killed); err == nil {
		t.Error("what the killed agent left is there")
	}
	if _, err := os.Stat(serves); err != nil {
		t.Errorf("the directory of an agent that serves: %v", err)
	}
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
