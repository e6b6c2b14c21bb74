package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/services/reknit/processes"
	"github.com/reknit/reknit/tests/proxies"
)

const serverCount = 3

// servers are three NATS servers, each a process of its own, that reach each other through proxies.
type servers struct {
	directory string
	addresses [serverCount]string // host:port for clients
	routes    [serverCount][serverCount]*proxies.Proxy
	processes *processes.Supervisor
}

// newServers starts the servers. One that ends by itself is told to died.
func newServers(program, directory string, died func(name string, err error)) (*servers, error) {
	s := &servers{directory: directory, processes: processes.New(program, directory, died)}
	var listens [serverCount]string
	for i := range serverCount {
		var err error
		if s.addresses[i], err = freeAddress(); err != nil {
			return nil, err
		}
		if listens[i], err = freeAddress(); err != nil {
			return nil, err
		}
	}
	for from := range serverCount {
		var routes []string
		for to := range serverCount {
			if from == to {
				continue
			}
			route, err := proxies.New(listens[to], 0)
			if err != nil {
				return nil, err
			}
			s.routes[from][to] = route
			routes = append(routes, "nats://"+route.Address())
		}
		if err := os.WriteFile(s.configuration(from), s.configure(from, listens[from], routes), 0o644); err != nil {
			return nil, err
		}
		if err := s.start(from); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// leastPort and mostPort bound the ports that are listened on: below those that systems give to who connects, which would
// take one while its owner is away.
const leastPort, mostPort = 20_000, 30_000

// freeAddress returns a host:port that a process can have again after it was away.
func freeAddress() (string, error) {
	for range 100 {
		address := fmt.Sprint("127.0.0.1:", leastPort+rand.IntN(mostPort-leastPort))
		if listener, err := net.Listen("tcp", address); err == nil {
			return address, listener.Close()
		}
	}
	return "", fmt.Errorf("expected a free port from %d to %d", leastPort, mostPort)
}

func (s *servers) configuration(server int) string {
	return filepath.Join(s.directory, serverName(server)+".conf")
}

func serverName(server int) string { return fmt.Sprint("nats-", server+1) }

// configure writes what deploy/README.md says of several hosts. Further addresses that servers and clients tell each
// other lead nowhere: a way around the proxies would be no partition.
func (s *servers) configure(server int, listen string, routes []string) []byte {
	return fmt.Appendf(nil, `server_name: %s
listen: %s
max_payload: 8MB
max_pending: 512MB
write_deadline: "60s"
ping_interval: "5s"
ping_max: 3
jetstream { store_dir: %q, sync_interval: always, max_memory_store: 256MB, max_file_store: 64GB, max_buffered_size: 256MB }
cluster { name: chaos, listen: %s, advertise: "127.0.0.1:1", no_advertise: true, routes: [%s] }
`, serverName(server), s.addresses[server], filepath.Join(s.directory, serverName(server)), listen, strings.Join(routes, ", "))
}

func (s *servers) start(server int) error {
	return s.processes.Start(serverName(server), "--config="+s.configuration(server), nil, false)
}

func (s *servers) signal(server int, signal syscall.Signal) error {
	return s.processes.Signal(serverName(server), signal)
}

// between are the proxies between a server and the two others.
func (s *servers) between(server int) (routes []*proxies.Proxy) {
	for other := range serverCount {
		if other != server {
			routes = append(routes, s.routes[server][other], s.routes[other][server])
		}
	}
	return routes
}

// whole reports whether every stream has a leader and two followers that have what it has.
func (s *servers) whole(ctx context.Context, js jetstream.JetStream) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	streams, count := js.ListStreams(ctx), 0
	for stream := range streams.Info() {
		count++
		if stream.Cluster == nil || stream.Cluster.Leader == "" || len(stream.Cluster.Replicas) != serverCount-1 {
			return false
		}
		for _, follower := range stream.Cluster.Replicas {
			if !follower.Current || follower.Offline {
				return false
			}
		}
	}
	return streams.Err() == nil && count > 0
}

// leader returns the server that leads a stream; the first where nobody says.
func (s *servers) leader(ctx context.Context, js jetstream.JetStream, stream string) int {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	info, err := js.Stream(ctx, stream)
	for i := range serverCount {
		if err == nil && info.CachedInfo().Cluster != nil && info.CachedInfo().Cluster.Leader == serverName(i) {
			return i
		}
	}
	return 0
}

func (s *servers) close(ctx context.Context) {
	s.processes.Close(ctx)
	for _, routes := range s.routes {
		for _, route := range routes {
			if route != nil {
				route.Close()
			}
		}
	}
}
