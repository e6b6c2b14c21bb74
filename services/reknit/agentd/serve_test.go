package agentd

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reknit/reknit/services/agent/consent"
	"github.com/reknit/reknit/shared/bus"
)

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

func TestADaemonDoesNotStartWithAPolicyThatIsNone(t *testing.T) {
	config := Config{
		URL: "nats://127.0.0.1:1", Cluster: "test", Listen: "127.0.0.1:0", Policy: consent.Policy{Hours: "22-6"},
	}
	served, end := context.WithCancel(t.Context())
	end()
	if err := Serve(served, served, config, io.Discard); err == nil || !strings.Contains(err.Error(), "REKNIT_CONSENT_HOURS") {
		t.Errorf("expected an error about REKNIT_CONSENT_HOURS, got %v", err)
	}
}

func TestAnAgentSaysTheNameOfItsNodeInEachLineOfItsLog(t *testing.T) {
	kit, log, before := t.TempDir(), bytes.Buffer{}, slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	if err := os.WriteFile(filepath.Join(kit, bus.IdentityFile), []byte(`{"key": "UABC", "name": "gpu-1", "speakers": {}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	served, end := context.WithCancel(t.Context())
	end()
	config := Config{URL: "nats://127.0.0.1:1", Kit: kit, Cluster: "test", Listen: "127.0.0.1:0", Node: "UABC"}
	_ = Serve(served, served, config, io.Discard) // whether it may connect is asked when a trainer joins
	slog.Info("told")
	if !strings.Contains(log.String(), "msg=told name=gpu-1") {
		t.Errorf("it says %s", &log)
	}
}
