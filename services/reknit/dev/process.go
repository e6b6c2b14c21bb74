package dev

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
)

// supervisor runs the services and trainers as processes of their own, so that a kill is a real kill. A service
// that dies is started again, as compose or systemd would; a trainer is not.
type supervisor struct {
	program string                       // this binary; its sub-commands are the roles
	logs    string                       // directory of the processes' logs
	died    func(name string, err error) // hears once of a process that failed by itself

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
	told    bool // that it failed
}

const trainerRole = "trainer"

// restartPause keeps a service that dies at once from spinning.
const restartPause = 200 * time.Millisecond

func newSupervisor(logs string, died func(string, error)) (*supervisor, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &supervisor{program: program, logs: logs, died: died, processes: map[string]*process{}}, nil
}

// start runs a role under a name until it ends; restart says whether it then runs again.
func (s *supervisor) start(name, role string, env map[string]string, restart bool) error {
	settings := os.Environ()
	for _, key := range slices.Sorted(maps.Keys(env)) {
		settings = append(settings, key+"="+env[key])
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.processes[name] != nil {
		return fmt.Errorf("%s runs already", name)
	}
	return s.launch(&process{name: name, role: role, env: settings, restart: restart})
}

// launch starts a process; the mutex is held.
func (s *supervisor) launch(p *process) error {
	log, err := os.OpenFile(filepath.Join(s.logs, p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	p.command = exec.Command(s.program, p.role)
	p.command.Env, p.command.Stdout, p.command.Stderr = p.env, log, log
	p.command.SysProcAttr = dieWithParent()
	if err := p.command.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	if p.role == trainerRole {
		yieldToControl(p.command.Process.Pid)
	}
	s.processes[p.name] = p
	s.ended.Add(1)
	go s.wait(p, p.command)
	return nil
}

func (s *supervisor) wait(p *process, command *exec.Cmd) {
	defer s.ended.Done()
	err := command.Wait()
	slog.Debug("process ended", "name", p.name, "error", err)
	if p.restart {
		time.Sleep(restartPause)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.processes, p.name)
	if err != nil && !p.killed && !p.told && !s.closing {
		p.told = true
		s.died(p.name, err)
	}
	if p.restart && !s.closing {
		if err := s.launch(p); err != nil {
			slog.Error("service not restarted", "name", p.name, "error", err)
		}
	}
}

// kill sends SIGKILL: the process gets no chance to say a word.
func (s *supervisor) kill(name string) error { return s.signal(name, syscall.SIGKILL) }

func (s *supervisor) signal(name string, signal syscall.Signal) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	p := s.processes[name]
	if p == nil {
		return fmt.Errorf("%s does not run", name)
	}
	p.killed = p.killed || signal == syscall.SIGKILL
	return p.command.Process.Signal(signal)
}

// running returns the names of the processes of a role, in order.
func (s *supervisor) running(role string) []string {
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

// close ends all processes. A trainer would take a polite signal for a wish to leave and wait for consent.
func (s *supervisor) close(ctx context.Context) {
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
