package dev

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/processes"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
)

// cluster is everything that runs: an embedded NATS server, the services and trainers as processes, and dev's own
// ears on the log and the heartbeats.
type cluster struct {
	options   Options
	server    *embedded.Server
	bus       *bus.Bus
	processes *processes.Supervisor
	log       *recorder
	page      string // host:port; empty: none
}

func startCluster(ctx context.Context, options Options, story *story, screen *screen) (*cluster, error) {
	c := &cluster{options: options}
	logs := filepath.Join(options.Dir, "logs")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c.processes = processes.New(program, logs, func(name string, err error) {
		screen.println(fmt.Sprintf("          %s ended by itself, %v", name, err))
	})
	if c.server, err = embedded.Start(embedded.Config{StoreDir: filepath.Join(options.Dir, "nats")}); err != nil {
		return nil, err
	}
	screen.println(fmt.Sprintf("NATS at %s; in another terminal export REKNIT_NATS_URL=%[1]s, and reknit status, watch, history, explain "+
		"and plan tell of this cluster while it trains: more --steps give more time", c.server.URL()))
	if c.page, err = processes.PageAddress(options.Page); err != nil {
		return c, err
	}
	if c.page != "" {
		screen.println(processes.PageShows(c.page))
	}
	if c.log, err = newRecorder(options.Log); err != nil {
		return c, err
	}
	if c.bus, err = bus.Connect(ctx, bus.Config{URL: c.server.URL(), Name: "dev", Cluster: options.Cluster}); err != nil {
		return c, err
	}
	if err := c.listen(ctx, story); err != nil {
		return c, err
	}
	return c, c.startProcesses()
}

func (c *cluster) listen(ctx context.Context, story *story) error {
	if err := c.bus.Provision(ctx); err != nil {
		return err
	}
	hear := func(stream events.Stream) func(events.Event) {
		return func(event events.Event) {
			c.log.write(stream, event)
			story.hear(event)
		}
	}
	for _, stream := range []events.Stream{events.EventStream, events.PlanStream} {
		if _, err := c.bus.Follow(ctx, stream, stream.Subjects(c.options.Cluster), bus.All, hear(stream)); err != nil {
			return err
		}
	}
	_, err := c.bus.Conn().Subscribe(events.PulseSubject(c.options.Cluster, "*"), func(message *nats.Msg) {
		var pulse events.Pulse
		if err := json.Unmarshal(message.Data, &pulse); err != nil {
			slog.Warn("heartbeat not understood", "error", err)
			return
		}
		story.pulse(pulse, time.Now())
	})
	return err
}

func (c *cluster) startProcesses() error {
	for _, name := range processes.Services {
		env := c.environment(map[string]string{
			"REKNIT_START_NODES": fmt.Sprint(c.options.Trainers), "REKNIT_PAGE_ADDRESS": c.page,
		})
		if err := c.processes.Start(name, name, env, true); err != nil {
			return err
		}
	}
	for i := range c.options.Trainers {
		if err := c.startTrainer(fmt.Sprintf("n%d", i+1)); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) startTrainer(name string) error {
	return c.processes.Start(name, processes.Trainer, c.environment(c.options.trainerEnvironment(name)), false)
}

// environment adds what every process needs to know.
func (c *cluster) environment(env map[string]string) map[string]string {
	env["REKNIT_NATS_URL"] = c.server.URL()
	env["REKNIT_CLUSTER"] = c.options.Cluster
	return env
}

func (c *cluster) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c.processes.Close(ctx)
	if c.bus != nil {
		c.bus.Close()
	}
	if c.server != nil {
		c.server.Shutdown()
	}
	if err := c.log.close(); err != nil {
		slog.Error("log not written", "error", err)
	}
}
