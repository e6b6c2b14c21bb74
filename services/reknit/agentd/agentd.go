// Package agentd runs the agent as a process of its own: as the parent of one trainer (reknit agent run), or as a
// daemon for those that others start (reknit agent serve).
package agentd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/reknit/reknit/services/agent/consent"
	"github.com/reknit/reknit/services/agent/local"
	"github.com/reknit/reknit/services/agent/snapshots"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/telemetry"
)

// Config is the environment of an agent.
type Config struct {
	snapshots.Settings
	consent.Policy
	URL        string     `env:"REKNIT_NATS_URL" envDefault:"nats://127.0.0.1:4222" unit:"URL, or several with commas" reason:"where NATS listens unless told otherwise"`
	Kit        string     `env:"REKNIT_NATS_KIT" unit:"folder" reason:"of keys and certificates, written by reknit provision security; without one NATS asks for none, and anybody can speak for everybody"`
	Cluster    string     `env:"REKNIT_CLUSTER" envDefault:"default" unit:"id" reason:"one installation may serve several clusters; most serve one"`
	LogLevel   slog.Level `env:"REKNIT_LOG_LEVEL" envDefault:"INFO" unit:"DEBUG, INFO, WARN or ERROR" reason:"INFO has a line for each plan and each step that was given up"`
	Node       string     `env:"REKNIT_AGENT_NODE" unit:"id" reason:"of a trainer that names none; by default the host's name and the least number that no other agent has there, or the agent's process id where it starts no trainer"`
	Socket     string     `env:"REKNIT_AGENT_SOCKET" unit:"path" reason:"where trainers reach the agent; by default in a new temporary directory"`
	Listen     string     `env:"REKNIT_AGENT_LISTEN" envDefault:"127.0.0.1:0" unit:"host:port" reason:"where other nodes measure and watch the link to this one: those of this host only; port 0 takes a free one"`
	Advertise  string     `env:"REKNIT_AGENT_ADVERTISE" unit:"host:port" reason:"by default where it listens; set it where others see another address"`
	Site       string     `env:"REKNIT_SITE" unit:"id" reason:"none; nodes that share their way to the others have the same one, so that its failure is not taken for theirs"`
	Neighbours []string   `env:"REKNIT_NEIGHBOURS" unit:"ids, with commas" reason:"of the nodes to which this one wants direct links, out of those that there are when it joins; by default each"`
	ShardPort  int        `env:"REKNIT_AGENT_SHARD_PORT" envDefault:"0" unit:"port" is:"min=0,max=65535" reason:"where others fetch units from, on the host of REKNIT_AGENT_LISTEN; 0 takes a free one"`
	ShardDir   string     `env:"REKNIT_AGENT_SHARD_DIR" unit:"path" reason:"of a few kilobytes of the store that gives units, the owner's way into it among them; by default the temporary directory"`
	StateDir   string     `env:"REKNIT_AGENT_STATE_DIR" unit:"path" reason:"of the files that trainer and agent both map; by default /dev/shm, or the temporary directory where there is none"`
}

// Validate says what the tags cannot.
func (c Config) Validate() error { return c.complete() }

// complete fills in what was left out, and names the variable that is not as expected.
func (c *Config) complete() error {
	telemetry.Level.Set(c.LogLevel)
	if c.Node == "" {
		c.Node = hostNode()
	}
	host := hostOf(c.Listen)
	ip := net.ParseIP(host)
	if c.Advertise == "" && (host == "" || ip != nil && ip.IsUnspecified()) {
		return errors.New("REKNIT_AGENT_ADVERTISE: expected an address that others reach, " +
			"where REKNIT_AGENT_LISTEN names no host")
	}
	for _, path := range []*string{&c.Socket, &c.StateDir} { // the trainer's, too, which may change its directory before it joins
		if *path == "" {
			continue
		}
		whole, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("REKNIT_AGENT_SOCKET, REKNIT_AGENT_STATE_DIR: %q: %w", *path, err)
		}
		*path = whole
	}
	if about, err := os.Stat(filepath.Dir(c.Socket)); err != nil || !about.IsDir() {
		return fmt.Errorf("REKNIT_AGENT_SOCKET: expected a path in a folder that is there, got %.80q", c.Socket)
	}
	return errors.Join(c.Policy.Validate(), c.Settings.Validate())
}

func (c Config) local(stuck, stays func()) local.Config {
	return local.Config{
		URL: c.URL, Kit: c.Kit, Cluster: c.Cluster, Node: c.Node, Listen: c.Listen, Advertise: c.Advertise, Site: c.Site, Neighbours: c.Neighbours,
		ShardPort: c.ShardPort, ShardDir: c.ShardDir, StateDir: c.StateDir, Snapshots: c.Settings, Consent: c.Policy,
		Parent: stuck != nil, Stuck: stuck, Stays: stays,
	}
}

// serve serves the local API. A parent of the trainer hears where that is stuck, and where it may not leave.
func (c *Config) serve(ctx context.Context, stuck, stays func()) (*local.Server, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	if identity, err := bus.ReadIdentity(c.Kit); err == nil && identity.Name != "" { // who connects says what is wrong with a kit
		slog.SetDefault(slog.With("name", identity.Name))
	}
	return local.Serve(ctx, c.local(stuck, stays), c.Socket)
}

// Serve serves trainers until ctx ends, and then until all of them have left the cluster and ended, or again ends.
func Serve(ctx, again context.Context, config Config, output io.Writer) error {
	server, err := config.serve(ctx, nil, nil)
	if err != nil {
		return err
	}
	defer server.Close()
	fmt.Fprintf(output, "export REKNIT_AGENT=%s\n", server.Socket)
	<-ctx.Done()
	server.Leave(askedToGo, leaveDeadline)
	select {
	case <-server.Idle():
	case <-again.Done():
	}
	return nil
}
