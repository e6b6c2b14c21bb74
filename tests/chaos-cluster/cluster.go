package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/reknit/reknit/services/reknit/processes"
	"github.com/reknit/reknit/services/trainer"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/tests/observer"
	"github.com/reknit/reknit/tests/proxies"
)

const (
	clusterID    = "chaos"
	copies       = 2
	trainers     = 12
	stages       = 3
	compareEvery = 50        // steps
	endless      = 1_000_000 // steps: training ends with the run and not by itself
	restartPause = 200 * time.Millisecond
)

// cluster is what chaos happens to: three servers, two copies of each service, and trainers. Each process reaches each
// server through a proxy of its own; trainers reach each other directly.
type cluster struct {
	servers   *servers
	bus       *bus.Bus
	observer  *observer.Observer
	processes *processes.Supervisor
	doors     map[string][]*proxies.Proxy // by process, to each server
	health    map[string]string           // by copy of a service: host:port
	text      string                      // file to train on

	mutex sync.Mutex
	over  bool
	died  []error
}

// newCluster starts a cluster. The returned cluster has to be closed also after an error.
func newCluster(ctx context.Context, programs programs, text, directory string) (*cluster, error) {
	c := &cluster{doors: map[string][]*proxies.Proxy{}, health: map[string]string{}, text: text}
	c.processes = processes.New(programs.reknit, directory, c.ended)
	var err error
	if c.servers, err = newServers(programs.nats, directory, c.ended); err != nil {
		return c, err
	}
	urls := "nats://" + strings.Join(c.servers.addresses[:], ",nats://")
	if c.bus, err = bus.Connect(ctx, bus.Config{URL: urls, Name: "chaos", Cluster: clusterID}); err != nil {
		return c, err
	}
	if err := eventually(ctx, "streams on three servers", func() bool { return c.bus.Provision(ctx) == nil }); err != nil {
		return c, err
	}
	if c.observer, err = observer.Listen(ctx, c.bus); err != nil {
		return c, err
	}
	for _, service := range processes.Services {
		for i := range copies {
			name := copyName(service, i)
			if c.health[name], err = freeAddress(); err != nil {
				return c, err
			}
			if err := c.start(name); err != nil {
				return c, err
			}
		}
	}
	for i := range trainers {
		if err := c.start(trainerName(i)); err != nil {
			return c, err
		}
	}
	return c, nil
}

func copyName(service string, i int) string { return fmt.Sprint(service, "-", i+1) }

func trainerName(i int) string { return fmt.Sprint("n", i+1) }

// start starts a process by its name, as often as it is asked to.
func (c *cluster) start(name string) error {
	if c.doors[name] == nil {
		for _, address := range c.servers.addresses {
			door, err := proxies.New(address, 0)
			if err != nil {
				return err
			}
			c.doors[name] = append(c.doors[name], door)
		}
	}
	if role, _, isCopy := strings.Cut(name, "-"); isCopy {
		return c.processes.Start(name, role, c.environment(name), false)
	}
	return c.processes.Start(name, processes.Trainer, c.environment(name), false)
}

func (c *cluster) environment(name string) map[string]string {
	var urls []string
	for _, door := range c.doors[name] {
		urls = append(urls, "nats://"+door.Address())
	}
	return map[string]string{
		"REKNIT_NATS_URL": strings.Join(urls, ","), "REKNIT_CLUSTER": clusterID, "REKNIT_LOG_LEVEL": "INFO",
		"REKNIT_START_NODES": strconv.Itoa(trainers), "REKNIT_HTTP_ADDRESS": c.health[name],
		"REKNIT_TRAINER_NODE": name, "REKNIT_TRAINER_TEXT": c.text, "REKNIT_TRAINER_STEPS": strconv.Itoa(endless),
		"REKNIT_TRAINER_WIDTH": "8", "REKNIT_TRAINER_HIDDEN": "16", "REKNIT_TRAINER_BLOCKS": "4",
		"REKNIT_TRAINER_GLOBAL_BATCH": strconv.Itoa(trainers), "REKNIT_TRAINER_COMPARE_EVERY": strconv.Itoa(compareEvery),
		"REKNIT_TRAINER_LEAST_STAGES": strconv.Itoa(stages), "REKNIT_TRAINER_MOST_STAGES": strconv.Itoa(stages),
	}
}

// ended hears of a process that ended by itself. A copy of a service is started again, as compose or systemd would have
// it; nothing else may end.
func (c *cluster) ended(name string, err error) {
	role, _, isCopy := strings.Cut(name, "-")
	if isCopy && slices.Contains(processes.Services, role) {
		go func() {
			time.Sleep(restartPause)
			if err := c.start(name); err != nil {
				c.fail(err)
			}
		}()
		return
	}
	c.fail(fmt.Errorf("%s ended by itself: %w", name, err))
}

func (c *cluster) fail(err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if !c.over {
		c.died = append(c.died, err)
	}
}

// losses returns what ended by itself, or could not be started again.
func (c *cluster) losses() error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return errors.Join(c.died...)
}

// acting returns the copy of a service that is ready; none where no copy is.
func (c *cluster) acting(service string) (name string, acts bool) {
	for i := range copies {
		if name := copyName(service, i); c.ready(name) {
			return name, true
		}
	}
	return "", false
}

// asking opens a connection for each question: whoever is asked may have been killed since the last one.
var asking = http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func (c *cluster) ready(name string) bool {
	response, err := asking.Get("http://" + c.health[name] + "/readyz")
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// trainer is the configuration of a trainer, for who judges what it trained.
func (c *cluster) trainer() (config trainer.Config, err error) {
	err = env.ParseWithOptions(&config, env.Options{Environment: c.environment(trainerName(0))})
	return config, err
}

// trains reports whether all trainers have a place and train.
func trains(s observer.Scene) bool { return len(s.Plan.Nodes) == trainers && s.Trains() }

func (c *cluster) close() {
	c.mutex.Lock()
	c.over = true
	c.mutex.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c.processes.Close(ctx)
	if c.bus != nil {
		c.bus.Close()
	}
	if c.servers != nil {
		c.servers.close(ctx)
	}
	for _, doors := range slices.Collect(maps.Values(c.doors)) {
		for _, door := range doors {
			door.Close()
		}
	}
}
