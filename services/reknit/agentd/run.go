package agentd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/reknit/reknit/services/agent/local"
)

const (
	askedToGo     = "asked to go"
	leaveDeadline = 30 * time.Second // the shortest notice that clouds give for a spot instance

	firstPause    = time.Second // before a trainer that failed is started again; then twice as long each time
	longestWait   = 30 * time.Second
	alonePatience = time.Minute // imports and data take their time

	soundAfter = 5 * time.Minute // a trainer that ran so long has all its restarts again
)

// parent runs a trainer and is its parent: it knows of its end at once.
type parent struct {
	server   *local.Server
	socket   string
	command  []string
	restarts int              // that are left
	signals  <-chan os.Signal // wishes to go
	asked    bool             // to go
	started  int              // times
	child    *exec.Cmd        // under way
	stuck    chan struct{}    // a token: it is to be killed
}

// trainerIsStuck has the trainer killed.
func (p *parent) trainerIsStuck() {
	select {
	case p.stuck <- struct{}{}:
	default:
	}
}

// Run runs a command as the trainer of this agent, and again where it fails, restarts times at most, unless its join is
// no proper one. It returns the status of the last. The first of the signals is a wish to leave the cluster; the ones
// after it go to the trainer.
func Run(
	ctx context.Context, config Config, command []string, restarts int, signals <-chan os.Signal,
) (status int, err error) {
	p := &parent{command: command, restarts: restarts, signals: signals, stuck: make(chan struct{}, 1)}
	server, end, err := config.serve(ctx, p.trainerIsStuck)
	if err != nil {
		return 0, err
	}
	defer end()
	p.server, p.socket = server, config.Socket
	pause := firstPause
	for {
		began := time.Now()
		status, err = p.once()
		if time.Since(began) > soundAfter {
			p.restarts, pause = restarts, firstPause
		}
		if err != nil || status == 0 || p.asked || p.restarts == 0 {
			return status, err
		}
		if refused := server.Refused(); refused != nil {
			slog.Error("the trainer is not started again: it would be refused again", "status", status, "reason", refused)
			return status, nil
		}
		p.restarts--
		slog.Warn("the trainer failed; it is started again", "status", status, "after", pause, "restarts left", p.restarts)
		select {
		case <-time.After(pause):
		case <-p.signals:
			return status, nil
		}
		pause = min(2*pause, longestWait)
	}
}

// once runs the trainer to its end, and ends with it all processes that it started.
func (p *parent) once() (status int, err error) {
	runtime.LockOSThread() // the trainer ends with the thread that started it
	defer runtime.UnlockOSThread()
	select {
	case <-p.stuck: // was said of the one before
	default:
	}
	p.child = exec.Command(p.command[0], p.command[1:]...)
	p.child.Stdout, p.child.Stderr = os.Stdout, os.Stderr
	if about, err := os.Stdin.Stat(); err == nil && about.Mode()&os.ModeCharDevice == 0 {
		p.child.Stdin = os.Stdin // no terminal: a process group in its background stands still for good where it reads there
	}
	p.child.Env = append(os.Environ(), p.environment()...)
	p.child.SysProcAttr = attributes()
	if err := p.child.Start(); err != nil {
		return 0, fmt.Errorf("start the trainer: %w", err)
	}
	p.started++
	slog.Info("the trainer runs", "pid", p.child.Process.Pid, "socket", p.socket)
	alone := time.AfterFunc(alonePatience, p.sayThatItTrainsAlone)
	defer alone.Stop()
	ended := make(chan error, 1)
	go func() { ended <- p.child.Wait() }()
	for {
		select {
		case err := <-ended:
			state := p.child.ProcessState
			_ = syscall.Kill(-p.child.Process.Pid, syscall.SIGKILL) // the rest of its group; mostly there is none
			slog.Info("the trainer has ended", "how", state.String())
			p.server.Gone(state.String(), state.ExitCode())
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return 0, fmt.Errorf("wait for the trainer: %w", err)
			}
			return statusOf(state), nil
		case signal := <-p.signals:
			p.ask(signal)
		case <-p.stuck:
			slog.Warn("the trainer hangs, and is killed", "pid", p.child.Process.Pid)
			_ = p.child.Process.Kill() // it may have ended
		}
	}
}

// sayThatItTrainsAlone tells who started a script that knows nothing of the agent what he has.
func (p *parent) sayThatItTrainsAlone() {
	if p.server.Trainers() == 0 {
		slog.Warn("the script has not joined: until it does, it trains alone, and what it trains is lost with it. "+
			"reknit.py, or reknit_torch.py, joins", "after", alonePatience, "socket", p.socket)
	}
}

// statusOf is what a shell would say of a process that ended.
func statusOf(state *os.ProcessState) int {
	if wait, ok := state.Sys().(syscall.WaitStatus); ok && wait.Signaled() {
		return 128 + int(wait.Signal())
	}
	return state.ExitCode()
}

// ask has a trainer leave the cluster. One that takes no part in it, and one that was asked before, hears the signal
// itself.
func (p *parent) ask(signal os.Signal) {
	if !p.asked && p.server.Trainers() > 0 {
		p.asked = true
		slog.Warn("the trainer ends once the cluster does without it; a second signal ends it at once", "signal", signal)
		p.server.Leave(askedToGo, leaveDeadline)
		return
	}
	p.asked = true
	if number, ok := signal.(syscall.Signal); ok {
		_ = syscall.Kill(-p.child.Process.Pid, number) // all its processes; they may have ended
	}
}

// environment is where the agent is, and the world before there is a plan: of one.
func (p *parent) environment() []string {
	return []string{
		"REKNIT_AGENT=" + p.socket, "REKNIT_AGENT_IS_PARENT=1", // so that nobody waits for another agent there
		"RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
		"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + strconv.Itoa(freePort()),
		"TORCHELASTIC_RESTART_COUNT=" + strconv.Itoa(p.started),
	}
}

// freePort is one that nobody listens on at this moment; 0 where there is none.
func freePort() int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}
