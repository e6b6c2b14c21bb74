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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/local"
	"github.com/reknit/reknit/services/agent/snapshots"
	"github.com/reknit/reknit/shared/telemetry"
)

// Config is the environment of an agent.
type Config struct {
	snapshots.Settings
	URL       string     `env:"REKNIT_NATS_URL" envDefault:"nats://127.0.0.1:4222" unit:"URL, or several with commas" reason:"where NATS listens unless told otherwise"`
	Cluster   string     `env:"REKNIT_CLUSTER" envDefault:"default" unit:"id" reason:"one installation may serve several clusters; most serve one"`
	LogLevel  slog.Level `env:"REKNIT_LOG_LEVEL" envDefault:"INFO" unit:"DEBUG, INFO, WARN or ERROR" reason:"INFO has a line for each plan and each step that was given up"`
	Node      string     `env:"REKNIT_AGENT_NODE" unit:"id" reason:"of a trainer that names none; by default the host's name and the agent's process id"`
	Socket    string     `env:"REKNIT_AGENT_SOCKET" unit:"path" reason:"where trainers reach the agent; by default in a new temporary directory"`
	Listen    string     `env:"REKNIT_AGENT_LISTEN" envDefault:"127.0.0.1:0" unit:"host:port" reason:"where other nodes measure and watch the link to this one: those of this host only; port 0 takes a free one"`
	Advertise string     `env:"REKNIT_AGENT_ADVERTISE" unit:"host:port" reason:"by default where it listens; set it where others see another address"`
	ShardPort int        `env:"REKNIT_AGENT_SHARD_PORT" envDefault:"0" unit:"port" reason:"where others fetch units from, on the host of REKNIT_AGENT_LISTEN; 0 takes a free one"`
	ShardDir  string     `env:"REKNIT_AGENT_SHARD_DIR" unit:"path" reason:"of units that are given, meanwhile; by default the temporary directory, so that they need no memory beside the state"`
	StateDir  string     `env:"REKNIT_AGENT_STATE_DIR" unit:"path" reason:"of the files that trainer and agent both map; by default /dev/shm, or the temporary directory where there is none"`
}

// complete fills in what was left out, and names the variable that is not as expected.
func (c *Config) complete() error {
	telemetry.Level.Set(c.LogLevel)
	if c.Node == "" {
		c.Node = hostNode()
	}
	host, _, err := net.SplitHostPort(c.Listen)
	ip := net.ParseIP(host)
	switch {
	case !events.Token(c.Cluster):
		return fmt.Errorf("REKNIT_CLUSTER: expected 1 to 64 characters of A-Z a-z 0-9 - _, got %.80q", c.Cluster)
	case !events.Token(c.Node):
		return fmt.Errorf("REKNIT_AGENT_NODE: expected 1 to 64 characters of A-Z a-z 0-9 - _, got %.80q", c.Node)
	case err != nil:
		return fmt.Errorf("REKNIT_AGENT_LISTEN: expected host:port, got %.80q", c.Listen)
	case c.Advertise == "" && (host == "" || ip != nil && ip.IsUnspecified()):
		return errors.New("REKNIT_AGENT_ADVERTISE: expected an address that others reach, " +
			"where REKNIT_AGENT_LISTEN names no host")
	}
	return nil
}

// hostNode is another one for each agent of each host.
func hostNode() string {
	host, _ := os.Hostname() // without a name the process id must do
	word := strings.Map(func(r rune) rune {
		if events.Token(string(r)) {
			return r
		}
		return '-'
	}, host)
	const mostHost = 48
	return word[:min(mostHost, len(word))] + "-" + strconv.Itoa(os.Getpid())
}

func (c Config) local(stuck func()) local.Config {
	return local.Config{
		URL: c.URL, Cluster: c.Cluster, Node: c.Node, Listen: c.Listen, Advertise: c.Advertise,
		ShardPort: c.ShardPort, ShardDir: c.ShardDir, StateDir: c.StateDir, Snapshots: c.Settings, Parent: stuck != nil, Stuck: stuck,
	}
}

// serve serves the local API; end also removes the socket's directory, where it was made here. A parent of the trainer
// hears where that is stuck.
func (c *Config) serve(ctx context.Context, stuck func()) (server *local.Server, end func(), err error) {
	if err := c.complete(); err != nil {
		return nil, nil, err
	}
	dir := ""
	if c.Socket == "" {
		sweep()
		if dir, err = os.MkdirTemp("", socketPrefix); err != nil {
			return nil, nil, err
		}
		c.Socket = filepath.Join(dir, socketName)
	}
	remove := func() {
		if dir != "" {
			_ = os.RemoveAll(dir) // a socket and its directory
		}
	}
	if server, err = local.Serve(ctx, c.local(stuck), c.Socket); err != nil {
		remove()
		return nil, nil, err
	}
	return server, func() { server.Close(); remove() }, nil
}

const (
	socketPrefix = "reknit-agent-"
	socketName   = "agent.sock"
	oldSocket    = time.Minute
)

// sweep removes the directories of sockets that killed agents left. A young one that refuses may be an agent's that
// starts at this moment: it is bound before it listens.
func sweep() {
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), socketPrefix+"*", socketName)) // the pattern is sound
	for _, socket := range left {
		info, err := os.Stat(socket)
		if err != nil || time.Since(info.ModTime()) < oldSocket {
			continue
		}
		connection, err := net.Dial("unix", socket)
		if err == nil {
			connection.Close()
		} else if errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.RemoveAll(filepath.Dir(socket)) // another agent may have
		}
	}
}

// Serve serves trainers until ctx ends, and then until all of them have left the cluster and ended, or again ends.
func Serve(ctx, again context.Context, config Config, output io.Writer) error {
	server, end, err := config.serve(ctx, nil)
	if err != nil {
		return err
	}
	defer end()
	fmt.Fprintf(output, "export REKNIT_AGENT=%s\n", config.Socket)
	<-ctx.Done()
	server.Leave(askedToGo, leaveDeadline)
	select {
	case <-server.Idle():
	case <-again.Done():
	}
	return nil
}
