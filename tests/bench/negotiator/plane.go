package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/reknit/reknit/services/reknit/processes"
)

const (
	cluster   = "bench"
	broker    = "nats"
	closeTime = 5 * time.Second
)

// plane is a NATS server or three, and the four services, each a process of its own.
type plane struct {
	url      string // of all servers, joined by commas
	kits     string // folder that reknit provision security made; empty where nobody needs a key
	brokers  []string
	servers  *processes.Supervisor
	services *processes.Supervisor
}

// start starts a control plane that makes the first plan for so many nodes.
func start(directory, programs string, servers, nodes int) (*plane, error) {
	p := begin(directory, programs)
	return p, p.run(p.serve(directory, servers), nodes)
}

func begin(directory, programs string) *plane {
	died := func(name string, err error) {
		fmt.Fprintf(os.Stderr, "%s ended by itself, %v: see %s\n", name, err, directory)
	}
	return &plane{
		servers:  processes.New(filepath.Join(programs, "reknit-nats"), directory, died),
		services: processes.New(filepath.Join(programs, "reknit"), directory, died),
	}
}

// run starts the services, unless the servers did not start.
func (p *plane) run(err error, nodes int) error {
	for _, service := range processes.Services {
		settings := map[string]string{
			"REKNIT_NATS_URL": p.url, "REKNIT_CLUSTER": cluster, "REKNIT_START_NODES": strconv.Itoa(nodes),
		}
		if p.kits != "" {
			settings["REKNIT_NATS_KIT"] = filepath.Join(p.kits, "services", service)
		}
		if err == nil {
			err = p.services.Start(service, service, settings, true)
		}
	}
	if err != nil {
		p.close()
	}
	return err
}

// serve starts so many servers. Several keep three copies of all, and each write is on a disk before it is acknowledged.
func (p *plane) serve(directory string, servers int) error {
	var clients, routes []string
	for range 2 * servers {
		port, err := freePort()
		if err != nil {
			return err
		}
		routes = append(routes, fmt.Sprintf("127.0.0.1:%d", port))
	}
	clients, routes = routes[:servers], routes[servers:]
	for i := range servers {
		name := fmt.Sprint(broker, "-", i+1)
		configuration := fmt.Appendf(nil, "server_name: %s\nlisten: %q\n", name, clients[i])
		if servers == 1 {
			configuration = fmt.Appendf(configuration, "jetstream { store_dir: %q, max_file_store: 1TB }\n", filepath.Join(directory, name))
		} else {
			configuration = fmt.Appendf(configuration, "jetstream { store_dir: %q, sync_interval: always, max_file_store: 1TB }\n"+
				"cluster { name: bench, listen: %q, routes: [\"nats://%s\"] }\n",
				filepath.Join(directory, name), routes[i], strings.Join(routes, `", "nats://`))
		}
		file := filepath.Join(directory, name+".conf")
		if err := os.WriteFile(file, configuration, 0o644); err != nil {
			return err
		}
		if err := p.servers.Start(name, "--config="+file, nil, false); err != nil {
			return err
		}
		p.brokers = append(p.brokers, name)
	}
	p.url = "nats://" + strings.Join(clients, ",nats://")
	return nil
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
	p.servers.Close(ctx)
}

// use is what a process has used so far.
type use struct {
	seconds float64 // of the processor
	bytes   int64   // of memory, at most
}

// uses returns what each service has used, and all servers together.
func (p *plane) uses() (map[string]use, error) {
	uses := map[string]use{}
	for _, name := range processes.Services {
		used, err := usedAs(p.services, name)
		if err != nil {
			return nil, err
		}
		uses[name] = used
	}
	for _, name := range p.brokers {
		used, err := usedAs(p.servers, name)
		if err != nil {
			return nil, err
		}
		uses[broker] = use{uses[broker].seconds + used.seconds, uses[broker].bytes + used.bytes}
	}
	return uses, nil
}

func usedAs(supervisor *processes.Supervisor, name string) (use, error) {
	pid, err := supervisor.Pid(name)
	if err != nil {
		return use{}, err
	}
	return usedBy(pid)
}
