package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/reknit/reknit/services/reknit/processes"
)

const (
	cluster   = "bench"
	broker    = "nats"
	closeTime = 5 * time.Second
)

// plane is a NATS server and the four services, each a process of its own.
type plane struct {
	url       string
	directory string
	server    *exec.Cmd
	services  *processes.Supervisor
}

// start starts a control plane that makes the first plan for so many nodes.
func start(directory, programs string, nodes int) (*plane, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	p := &plane{url: fmt.Sprintf("nats://127.0.0.1:%d", port), directory: directory}
	p.server = exec.Command(filepath.Join(programs, "reknit-nats"), "-a", "127.0.0.1", "-p", strconv.Itoa(port), "-js",
		"-sd", filepath.Join(directory, "store"), "-l", filepath.Join(directory, "nats.log"))
	if err := p.server.Start(); err != nil {
		return nil, err
	}
	p.services = processes.New(filepath.Join(programs, "reknit"), directory, func(name string, err error) {
		fmt.Fprintf(os.Stderr, "%s ended by itself, %v: see %s\n", name, err, directory)
	})
	settings := map[string]string{
		"REKNIT_NATS_URL": p.url, "REKNIT_CLUSTER": cluster, "REKNIT_START_NODES": strconv.Itoa(nodes),
	}
	for _, service := range processes.Services {
		if err := p.services.Start(service, service, settings, true); err != nil {
			p.close()
			return nil, err
		}
	}
	return p, nil
}

// freePort is one that nobody listens on.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func (p *plane) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	p.services.Close(ctx)
	_ = p.server.Process.Kill()
	_ = p.server.Wait()
}

// use is what a process has used so far.
type use struct {
	seconds float64 // of the processor
	bytes   int64   // of memory, at most
}

// uses returns what each service and the server have used.
func (p *plane) uses() (map[string]use, error) {
	uses := map[string]use{}
	for _, name := range append([]string{broker}, processes.Services...) {
		pid := p.server.Process.Pid
		if name != broker {
			var err error
			if pid, err = p.services.Pid(name); err != nil {
				return nil, err
			}
		}
		used, err := usedBy(pid)
		if err != nil {
			return nil, err
		}
		uses[name] = used
	}
	return uses, nil
}
