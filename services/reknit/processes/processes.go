// Package processes runs the services and trainers of a cluster on this machine, each as a process of its own, so that
// a kill is a real kill.
package processes

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/reknit/reknit/services/monitor"
	"github.com/reknit/reknit/services/negotiator"
	"github.com/reknit/reknit/services/planner"
	"github.com/reknit/reknit/services/restorer"
	"github.com/reknit/reknit/services/trainer"
	"github.com/reknit/reknit/shared/service"
)

// Supervisor starts, kills and restarts processes. Its methods may be called by several goroutines.
type Supervisor struct {
	program string                       // the command reknit; its sub-commands are the roles
	logs    string                       // directory of the processes' logs
	died    func(name string, err error) // hears once of a process that failed by itself, and what it said last

	mutex     sync.Mutex
	processes map[string]*process
	ended     sync.WaitGroup
	closing   bool
}

type process struct {
	name    string
	role    string
	env     []string
	command *exec.Cmd
	restart bool
	killed  bool
	told    bool  // that it failed
	logged  int64 // bytes of its log from before it was started
}

// Services are the roles that steer a cluster.
var Services = []string{"monitor", "negotiator", "planner", "restorer"}

// Trainer is the role of a trainer, whose processes give way to all others.
const Trainer = "trainer"

// configs are made to read the settings of roles.
var configs = map[string]func() any{
	"monitor":    func() any { return new(monitor.Config) },
	"negotiator": func() any { return new(negotiator.Config) },
	"planner":    func() any { return new(planner.Config) },
	"restorer":   func() any { return new(restorer.Config) },
	Trainer:      func() any { return new(trainer.Config) },
}

// restartPause keeps a service that dies at once from spinning.
const restartPause = 200 * time.Millisecond

// New returns a supervisor that runs a program's sub-commands and has them log into a directory. It has died called of a process
// that failed by itself. The error is service.Misconfigured where the process would fail again, and is not started again.
func New(program, logs string, died func(name string, err error)) *Supervisor {
	return &Supervisor{program: program, logs: logs, died: died, processes: map[string]*process{}}
}

// Start runs a role under a name until it ends; restart says whether it then runs again, as compose or systemd would
// have it. A role whose settings are not as expected is not started: its error is service.Misconfigured.
func (s *Supervisor) Start(name, role string, settings map[string]string, restart bool) error {
	environment := env.ToMap(os.Environ())
	maps.Copy(environment, settings)
	if config := configs[role]; config != nil {
		if err := service.Read(config(), environment); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	var variables []string
	for _, key := range slices.Sorted(maps.Keys(environment)) {
		variables = append(variables, key+"="+environment[key])
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.processes[name] != nil {
		return fmt.Errorf("%s runs already", name)
	}
	return s.launch(&process{name: name, role: role, env: variables, restart: restart})
}

// launch starts a process; the mutex is held.
func (s *Supervisor) launch(p *process) error {
	log, err := os.OpenFile(filepath.Join(s.logs, p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	if info, err := log.Stat(); err == nil {
		p.logged = info.Size()
	}
	p.command = exec.Command(s.program, p.role)
	p.command.Env, p.command.Stdout, p.command.Stderr = p.env, log, log
	p.command.SysProcAttr = dieWithParent()
	if err := p.command.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	if p.role == Trainer {
		yieldToControl(p.command.Process.Pid)
	}
	s.processes[p.name] = p
	s.ended.Add(1)
	go s.wait(p, p.command)
	return nil
}

func (s *Supervisor) wait(p *process, command *exec.Cmd) {
	defer s.ended.Done()
	err := command.Wait()
	slog.Debug("process ended", "name", p.name, "error", err)
	again := command.ProcessState.ExitCode() != service.ExitMisconfigured
	if p.restart = p.restart && again; p.restart {
		time.Sleep(restartPause)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.processes, p.name)
	if err != nil && !p.killed && !p.told && !s.closing {
		p.told = true
		log := filepath.Join(s.logs, p.name+".log")
		err = fmt.Errorf("%w: see %s%s", err, log, lastLine(log, p.logged))
		if !again {
			err = service.Misconfigured{Err: err}
		}
		s.died(p.name, err)
	}
	if p.restart && !s.closing {
		if err := s.launch(p); err != nil {
			slog.Error("service not restarted", "name", p.name, "error", err)
		}
	}
}

// Kill sends SIGKILL: the process gets no chance to say a word.
func (s *Supervisor) Kill(name string) error { return s.Signal(name, syscall.SIGKILL) }

// Signal sends a signal to a process. One that ends upon SIGKILL has not failed by itself.
func (s *Supervisor) Signal(name string, signal syscall.Signal) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	p := s.processes[name]
	if p == nil {
		return fmt.Errorf("%s does not run", name)
	}
	p.killed = p.killed || signal == syscall.SIGKILL
	return p.command.Process.Signal(signal)
}

// Pid returns the id of the process that runs under a name.
func (s *Supervisor) Pid(name string) (int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	p := s.processes[name]
	if p == nil {
		return 0, fmt.Errorf("%s does not run", name)
	}
	return p.command.Process.Pid, nil
}

// Running returns the names of the processes of a role, in order.
func (s *Supervisor) Running(role string) []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.processes)) {
		if s.processes[name].role == role {
			names = append(names, name)
		}
	}
	return names
}

// Close ends all processes. A trainer would take a polite signal for a wish to leave and wait for consent.
func (s *Supervisor) Close(ctx context.Context) {
	s.mutex.Lock()
	s.closing = true
	for _, p := range s.processes {
		p.command.Process.Signal(syscall.SIGKILL)
	}
	s.mutex.Unlock()
	done := make(chan struct{})
	go func() { s.ended.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
