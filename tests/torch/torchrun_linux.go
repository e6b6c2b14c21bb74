package torch

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// Torchrun is how torchrun is set.
type Torchrun struct {
	flags     []string
	keepAlive int // seconds between keep-alives of a node, of which three may be missing; 0 leaves torchrun's own
	timeout   int // seconds of a collective; 0 leaves PyTorch's own
}

// Documented is torchrun as its documentation starts an elastic job, and Tightest what it can be brought to: the
// keep-alives can be set in PyTorch since 2025, and are patched into older ones.
var (
	Documented = Torchrun{}
	Tightest   = Torchrun{keepAlive: 1, timeout: 10, flags: []string{
		"--monitor_interval=0.1",
		"--rdzv_conf=last_call_timeout=1,join_timeout=120,close_timeout=5,read_timeout=10",
	}}
)

// NewTorchrun starts ddp.py under torchrun, one process a worker; at least three train. The first worker hosts the
// rendezvous, and the job is lost with it.
func NewTorchrun(
	ctx context.Context, setting Torchrun, place Place, directory string, workers []string,
) (*Job, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	job := newJob(directory, func(worker string) *exec.Cmd {
		arguments := append([]string{filepath.Join(place.Tests, "torchrun.py")}, setting.flags...)
		arguments = append(arguments, "--nnodes=3:4", "--nproc_per_node=1", "--max_restarts=100", "--rdzv_id=job",
			"--rdzv_backend=c10d", fmt.Sprintf("--rdzv_endpoint=localhost:%d", port), filepath.Join(place.Examples, DDP),
			"--text", place.Text, "--steps", fmt.Sprint(Endless), "--snapshot", filepath.Join(directory, "snapshot.pt"))
		if setting.timeout > 0 {
			arguments = append(arguments, "--timeout", fmt.Sprint(setting.timeout))
		}
		command := exec.Command(Python, arguments...)
		command.Dir, command.Env = directory, append(os.Environ(), place.environment(worker)...)
		command.Env = append(command.Env, fmt.Sprintf("KEEP_ALIVE_SECONDS=%d", setting.keepAlive))
		return command
	}, port)
	for i, worker := range workers {
		if err == nil {
			err = job.Start(worker)
		}
		if i == 0 && err == nil {
			err = answers(ctx, port)
		}
	}
	if err != nil {
		job.Close()
	}
	return job, err
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}

// Torchrun imports PyTorch before it listens.
const (
	startLimit = 30 * time.Second
	dialPause  = 50 * time.Millisecond
)

// answers returns when somebody listens at a port.
func answers(ctx context.Context, port int) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		connection, err := net.Dial("tcp", net.JoinHostPort("localhost", strconv.Itoa(port)))
		if err == nil {
			return connection.Close()
		}
		select {
		case <-time.After(dialPause):
		case <-ctx.Done():
			return fmt.Errorf("port %d: expected torchrun to listen within %v", port, startLimit)
		}
	}
}

// Endless is more steps than a benchmark lasts.
const Endless = 1_000_000
