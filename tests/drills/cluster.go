package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/reknit/reknit/services/reknit/processes"
	"github.com/reknit/reknit/services/trainer"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
	"github.com/reknit/reknit/tests/observer"
	"github.com/reknit/reknit/tests/proxies"
)

// cluster is what a drill happens to: a NATS server in this process, and services and trainers as processes of their
// own, each trainer behind a proxy of its own. Peers reach each other directly.
type cluster struct {
	store     embedded.Config
	nats      *embedded.Server
	bus       *bus.Bus
	processes *processes.Supervisor
	observer  *observer.Observer
	snapshots *store                    // nil: trainers write them to a folder, or none
	proxies   map[string]*proxies.Proxy // by trainer
	settings  map[string]string         // of every trainer
	delays    map[string]time.Duration  // by trainer: of what it says to NATS

	mutex sync.Mutex
	died  []error // trainers that ended by themselves
}

const clusterID = "drill"

// newCluster starts a cluster that waits for so many trainers. The returned cluster has to be closed also after an
// error.
func newCluster(ctx context.Context, reknit, directory string, trainers int) (*cluster, error) {
	c := &cluster{proxies: map[string]*proxies.Proxy{}}
	port, err := freePort()
	if err != nil {
		return c, err
	}
	c.store = embedded.Config{StoreDir: filepath.Join(directory, "nats"), Port: port}
	if c.nats, err = embedded.Start(c.store); err != nil {
		return c, err
	}
	if err := c.connect(ctx); err != nil {
		return c, err
	}
	if c.observer, err = observer.Listen(ctx, c.bus); err != nil {
		return c, err
	}
	c.processes = processes.New(reknit, directory, c.ended)
	for _, service := range processes.Services {
		environment := c.environment(map[string]string{"REKNIT_START_NODES": fmt.Sprint(trainers)})
		if err := c.processes.Start(service, service, environment, true); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *cluster) connect(ctx context.Context) (err error) {
	if c.bus, err = bus.Connect(ctx, bus.Config{URL: c.nats.URL(), Name: "drill", Cluster: clusterID}); err != nil {
		return err
	}
	return c.bus.Provision(ctx)
}

// freePort returns a port that the server can have again after it was away.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}

func (c *cluster) environment(more ...map[string]string) map[string]string {
	all := map[string]string{"REKNIT_NATS_URL": c.nats.URL(), "REKNIT_CLUSTER": clusterID, "REKNIT_LOG_LEVEL": "INFO"}
	for _, settings := range more {
		maps.Copy(all, settings)
	}
	return all
}

// ended hears of a process that ended by itself. A service is started again; a trainer is missing from then on.
func (c *cluster) ended(name string, err error) {
	if slices.Contains(processes.Services, name) {
		return
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.died = append(c.died, fmt.Errorf("trainer %s ended by itself: %w", name, err))
}

// join starts a trainer; restart says whether it is started again whenever it was killed.
func (c *cluster) join(node string, restart bool) error {
	through, err := proxies.New(net.JoinHostPort("127.0.0.1", fmt.Sprint(c.store.Port)), c.delays[node])
	if err != nil {
		return err
	}
	c.proxies[node] = through
	own := map[string]string{"REKNIT_TRAINER_NODE": node, "REKNIT_NATS_URL": "nats://" + through.Address()}
	environment := c.environment(c.settings, own)
	return c.processes.Start(node, processes.Trainer, environment, restart)
}

// trainer is the configuration of a trainer, for who judges what it trained.
func (c *cluster) trainer() (config trainer.Config, err error) {
	environment := c.environment(c.settings, map[string]string{"REKNIT_TRAINER_NODE": "oracle"})
	err = env.ParseWithOptions(&config, env.Options{Environment: environment})
	return config, err
}

// stopNATS takes the server away and brings it back with what it had stored.
func (c *cluster) stopNATS(ctx context.Context, away time.Duration) (err error) {
	c.nats.Shutdown()
	if err := pause(ctx, away); err != nil {
		return err
	}
	c.nats, err = embedded.Start(c.store)
	return err
}

// withoutNATS does something to the server's store while it is away.
func (c *cluster) withoutNATS(what func(store string) error) (err error) {
	c.nats.Shutdown()
	if err := what(c.store.StoreDir); err != nil {
		return err
	}
	c.nats, err = embedded.Start(c.store)
	return err
}

func (c *cluster) backUp(store string) error { return os.CopyFS(store+"-backup", os.DirFS(store)) }

// restore brings the server back with the store that was backed up. The observer connects anew, to miss nothing of that log.
func (c *cluster) restore(ctx context.Context) error {
	c.bus.Close()
	if err := c.withoutNATS(func(store string) error {
		return errors.Join(os.RemoveAll(store), os.CopyFS(store, os.DirFS(store+"-backup")))
	}); err != nil {
		return err
	}
	if err := c.connect(ctx); err != nil {
		return err
	}
	return c.observer.ListenTo(ctx, c.bus)
}

// cut takes NATS, and nothing else, away from some trainers.
func (c *cluster) cut(ctx context.Context, away time.Duration, nodes ...string) error {
	for _, node := range nodes {
		c.proxies[node].Cut()
		defer c.proxies[node].Mend()
	}
	return pause(ctx, away)
}

func pause(ctx context.Context, duration time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(duration):
		return nil
	}
}

// losses returns what became of trainers that ended by themselves.
func (c *cluster) losses() error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return errors.Join(c.died...)
}

func (c *cluster) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if c.processes != nil {
		c.processes.Close(ctx)
	}
	if c.snapshots != nil {
		c.snapshots.close()
	}
	if c.bus != nil {
		c.bus.Close()
	}
	if c.nats != nil {
		c.nats.Shutdown()
	}
	for _, proxy := range c.proxies {
		proxy.Close()
	}
}
