package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stage is where rows are tried: each in a cluster of its own.
type stage struct{ program, python string }

// others is how many train beside a script, unless it is alone.
const others = 2

// try starts a cluster, those who train in it and then the wrong script, and waits until what is wrong is said.
func (s stage) try(ctx context.Context, r row) outcome {
	ctx, cancel := context.WithTimeout(ctx, 3*patience)
	defer cancel()
	dir, err := os.MkdirTemp("", "reknit-scripts-")
	if err != nil {
		return outcome{err: err}
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	up := s.start(ctx, &running, nil, "up", "--dir", dir, "--port", "0", "--page", "none")
	found, err := await(ctx, up.String, regexp.MustCompile(`REKNIT_NATS_URL=(\S+) REKNIT_CLUSTER=(\S+)`))
	if err != nil {
		return outcome{err: fmt.Errorf("reknit up: %w: %s", err, end(up.String()))}
	}
	hub := []string{"REKNIT_NATS_URL=" + found[1], "REKNIT_CLUSTER=" + found[2], "REKNIT_AGENT_STATE_DIR=" + dir}
	if !r.alone {
		if err := s.company(ctx, &running, hub); err != nil {
			return outcome{err: err}
		}
	}
	began := time.Now()
	for _, setting := range r.settings {
		hub = append(hub, strings.ReplaceAll(setting, "DIR", dir))
	}
	wrong := s.agent(ctx, &running, hub, "wrong", r.wrong)
	said := wrong.String
	if r.where != script {
		said = func() string { return s.ask(ctx, hub, r.where) }
	}
	for missing := lacking(said(), r.says); ; missing = lacking(said(), r.says) {
		switch {
		case missing == "":
			return outcome{seconds: time.Since(began).Seconds()}
		case time.Since(began) > r.limit() || ctx.Err() != nil:
			return outcome{missing: missing, said: end(said())}
		}
		pause(ctx)
	}
}

// company has others train, and waits until each has made a step.
func (s stage) company(ctx context.Context, running *sync.WaitGroup, hub []string) error {
	for i := range others {
		s.agent(ctx, running, hub, fmt.Sprint("n", i+1), "none")
	}
	trains := regexp.MustCompile(fmt.Sprintf(`nodes +%d training\n(?s:.*)done in`, others))
	if _, err := await(ctx, func() string { return s.ask(ctx, hub, status) }, trains); err != nil {
		return fmt.Errorf("the others do not train: %w: %s", err, end(s.ask(ctx, hub, status)))
	}
	return nil
}

// agent starts a script under an agent.
func (s stage) agent(ctx context.Context, running *sync.WaitGroup, settings []string, node, wrong string) *output {
	return s.start(ctx, running, append(settings[:len(settings):len(settings)], "REKNIT_AGENT_NODE="+node),
		"agent", "run", "--", s.python, filepath.Join("tests", "scripts", "wrong.py"), wrong)
}

// start starts the command, which ends with ctx, and with it all that it started.
func (s stage) start(ctx context.Context, running *sync.WaitGroup, settings []string, arguments ...string) *output {
	said, command := new(output), exec.Command(s.program, arguments...)
	command.Env = append(os.Environ(), settings...)
	command.Stdout, command.Stderr = said, said
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.WaitDelay = time.Second // a script may hold the pipe
	if err := command.Start(); err != nil {
		fmt.Fprintln(said, err)
		return said
	}
	ended := make(chan struct{})
	running.Go(func() {
		defer close(ended)
		if err := command.Wait(); err != nil {
			fmt.Fprintln(said, err)
		}
	})
	running.Go(func() {
		select {
		case <-ended:
			return
		case <-ctx.Done():
		}
		_ = command.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(time.Second):
		}
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // whatever is left of it
	})
	return said
}

// ask runs a command that looks at the cluster, and returns all that it says; its exit status has to tell that something is wrong.
func (s stage) ask(ctx context.Context, hub []string, command string) string {
	asking := exec.CommandContext(ctx, s.program, command)
	asking.Env = append(os.Environ(), hub...)
	said, err := asking.CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%s\n%v", said, err)
	}
	return string(said)
}

// lacking returns the first of the words that are not said; empty where all are.
func lacking(said string, words []string) string {
	for _, one := range words {
		if !strings.Contains(said, one) {
			return one
		}
	}
	return ""
}

// await waits until a text matches.
func await(ctx context.Context, text func() string, expected *regexp.Regexp) ([]string, error) {
	for began := time.Now(); time.Since(began) < patience && ctx.Err() == nil; pause(ctx) {
		if found := expected.FindStringSubmatch(text()); found != nil {
			return found, nil
		}
	}
	return nil, errors.New("expected " + expected.String())
}

func pause(ctx context.Context) {
	select {
	case <-time.After(200 * time.Millisecond):
	case <-ctx.Done():
	}
}

// end returns the last of a text.
func end(text string) string { return text[max(0, len(text)-2000):] }

// output is what a process and its children write.
type output struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (o *output) Write(text []byte) (int, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.text.Write(text)
}

func (o *output) String() string {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.text.String()
}
