package agentd

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"syscall"
)

// child is a process that the agent started. Processes that the child starts end with it.
type child struct {
	command *exec.Cmd
	ended   chan end // one
}

// end is how a process ended.
type end struct {
	state *os.ProcessState
	err   error // it is not known
}

// begin starts a process, which ends with the thread that starts it: the caller keeps its thread until then.
func begin(command, environment []string, in *input) (*child, error) {
	c := &child{exec.Command(command[0], command[1:]...), make(chan end, 1)}
	c.command.Stdout, c.command.Stderr = os.Stdout, os.Stderr
	file, opened, err := in.open()
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	if file != nil {
		c.command.Stdin = file
	}
	c.command.Env = append(os.Environ(), environment...)
	c.command.SysProcAttr = attributes()
	if err := c.command.Start(); err != nil {
		return nil, fmt.Errorf("start the trainer: %w", err)
	}
	go func() { c.ended <- c.wait() }()
	return c, nil
}

func (c *child) pid() int { return c.command.Process.Pid }

func (c *child) wait() end {
	err := c.command.Wait()
	c.signal(syscall.SIGKILL) // the rest of its group; mostly there is none
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return end{err: fmt.Errorf("wait for the trainer: %w", err)}
	}
	slog.Info("the trainer has ended", "how", c.command.ProcessState.String())
	return end{state: c.command.ProcessState}
}

// signal sends a signal to all its processes; they may have ended.
func (c *child) signal(number syscall.Signal) { _ = syscall.Kill(-c.pid(), number) }

// faults are the signals that a process raises by what it does itself.
var faults = []syscall.Signal{
	syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGILL, syscall.SIGFPE, syscall.SIGTRAP, syscall.SIGSYS,
}

// code is the status of a process that ended by itself, by a fault of its own too, and -1 of one that a signal of others ended.
func (e end) code() int {
	if wait, ok := e.state.Sys().(syscall.WaitStatus); ok && wait.Signaled() && slices.Contains(faults, wait.Signal()) {
		return e.status()
	}
	status := e.state.ExitCode()
	if number := syscall.Signal(status - 128); number > 0 && number < mostSignal && !slices.Contains(faults, number) {
		return -1 // a shell tells so of what it ran
	}
	return status
}

// mostSignal is behind the last signal of Linux.
const mostSignal = syscall.Signal(65)

// status is what a shell would say of the process.
func (e end) status() int {
	if wait, ok := e.state.Sys().(syscall.WaitStatus); ok && wait.Signaled() {
		return 128 + int(wait.Signal())
	}
	return e.state.ExitCode()
}
