package torch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Worker is the process that a user starts, torchrun or an agent, and the training script that it starts in turn.
type Worker struct {
	Name    string
	command *exec.Cmd
	ended   chan struct{} // closed when the process has ended
	spared  []int         // ports of connections that are no collective's
}

// pipeWait is for how long the output of a process is waited for that was killed, while its children may hold it.
const pipeWait = time.Second

func startWorker(name string, command *exec.Cmd, course *Course, logs string) (*Worker, error) {
	log, err := os.OpenFile(filepath.Join(logs, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	command.Stdout, command.Stderr, command.WaitDelay = &listener{worker: name, course: course, log: log}, log, pipeWait
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		log.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	worker := &Worker{Name: name, command: command, ended: make(chan struct{})}
	go func() {
		_ = command.Wait() // most of them are killed
		log.Close()
		close(worker.ended)
	}()
	return worker, nil
}

// Parent is the process that was started.
func (w *Worker) Parent() int { return w.command.Process.Pid }

// Trainer is the process of the training script; an error while there is none.
func (w *Worker) Trainer() (int, error) {
	for _, pid := range descendants(w.Parent()) {
		if words := commandLine(pid); len(words) > 1 && isScript(words) {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("%s: expected a training script among its processes", w.Name)
}

// Signal sends a signal to the parent alone.
func (w *Worker) Signal(signal syscall.Signal) error { return w.command.Process.Signal(signal) }

// SignalTrainer sends a signal to the training script alone.
func (w *Worker) SignalTrainer(signal syscall.Signal) error {
	pid, err := w.Trainer()
	if err != nil {
		return err
	}
	return syscall.Kill(pid, signal)
}

// SignalAll sends a signal to all its processes, as if the machine failed.
func (w *Worker) SignalAll(signal syscall.Signal) error {
	pids := append([]int{w.Parent()}, descendants(w.Parent())...)
	for _, pid := range pids {
		if err := syscall.Kill(pid, signal); err != nil && err != syscall.ESRCH {
			return fmt.Errorf("%s: signal process %d: %w", w.Name, pid, err)
		}
	}
	return nil
}

// isScript reports whether a command line is that of Python and one of the examples.
func isScript(words []string) bool {
	if !strings.HasPrefix(filepath.Base(words[0]), "python") {
		return false
	}
	for _, word := range words[1:] {
		if !strings.HasPrefix(word, "-") {
			return slices.Contains([]string{Elastic, Pipeline, DDP, Soak}, filepath.Base(word))
		}
	}
	return false
}

// descendants returns the processes that came of a process, its children first.
func descendants(pid int) []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		_, fields, _ := strings.Cut(string(text), ") ") // behind the program's name
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if words := strings.Fields(fields); len(words) > 1 {
			parent, _ := strconv.Atoi(words[1])
			children[parent] = append(children[parent], child)
		}
	}
	var all []int
	for waiting := children[pid]; len(waiting) > 0; waiting = waiting[1:] {
		all = append(all, waiting[0])
		waiting = append(waiting, children[waiting[0]]...)
	}
	return all
}

func commandLine(pid int) []string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}
