// Package up runs NATS and the four services on one machine, for trainers that others start.
package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/cluster"
	"github.com/reknit/reknit/services/reknit/processes"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
	"github.com/reknit/reknit/shared/service"
)

// closeTimeout bounds the wait for the services' end.
const closeTimeout = 5 * time.Second

// options are the flags.
type options struct {
	dir, cluster, host, page string
	port, startNodes         int
	secured                  bool
	nodes                    []string // names, or institution/name, of those that get a kit
}

// Command is `reknit up`. It ends with its context.
func Command() *cobra.Command {
	var o options
	command := tell.Command(&cobra.Command{
		Use: "up", Short: "run NATS and the services here, for trainers that you start",
		Long: `Runs NATS and the four services here, until it is interrupted. Trainers join it with
reknit agent run -- COMMAND. Started again with the same --dir it goes on where it was. With --port 0 it takes a free port,
and keeps that in --dir: started again with --port 0 it takes the same one, where that is still free. So it does with the page's.
With --secured everybody who connects needs a kit of keys. They are made in DIR/secret, which nobody else should read, and only nodes that
are named may join: --node n1 --node n2, or alpha/n1 --node beta/n1 for two institutions.`,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context(), c.OutOrStdout()) },
	})
	flags := command.Flags()
	flags.StringVar(&o.dir, "dir", "reknit-data", "directory of NATS' store and the logs")
	flags.StringVar(&o.cluster, "cluster", "default", "id of the cluster")
	flags.StringVar(&o.host, "host", "127.0.0.1",
		"address on which NATS listens; 0.0.0.0 lets other machines in, and asks nobody for a password")
	flags.IntVar(&o.port, "port", 4222, "port on which NATS listens; 0 takes a free one, and the same one again")
	processes.PageFlag(flags, &o.page)
	flags.BoolVar(&o.secured, "secured", false, "whoever connects proves who it is by a kit of keys in DIR/secret")
	flags.StringArrayVar(&o.nodes, "node", nil, "NAME, or INSTITUTION/NAME, of a node that gets a kit and may join; again for each")
	flags.IntVar(&o.startNodes, "start-nodes", 1, "trainers that the first plan waits for, of the job that most who wait train")
	return command
}

func (o options) run(ctx context.Context, out io.Writer) error {
	if err := o.check(); err != nil {
		return tell.UsageError{Err: err}
	}
	logs := filepath.Join(o.dir, "logs")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	lock, err := lock(o.dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := o.checkSecured(); err != nil {
		return tell.UsageError{Err: err}
	}
	config, err := o.prepare()
	if err != nil {
		return err
	}
	config.Warns = warns(out)
	server, err := embedded.Start(config)
	if err != nil {
		return err
	}
	store, err := open(config, server, out)
	if err != nil {
		server.Shutdown()
		return err
	}
	defer func() { store.close() }()
	url := o.url(config.Port)
	go tellHolds(ctx, bus.Config{URL: url, Kit: o.kit("monitor"), Name: "up", Cluster: o.cluster, Command: true}, once(out, ""))
	page, err := o.pageAddress() // behind NATS, whose port it must not find free
	if err != nil {
		return err
	}
	stop, err := o.start(url, page, logs, out)
	defer stop()
	if err != nil {
		return err
	}
	if err := o.tell(url, page, logs, out); err != nil {
		return err
	}
	if err := store.watch(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "stopped; what there is stays in %s, and reknit up with the same --dir goes on from there\n", o.dir)
	return nil
}

// prepare returns how NATS is started, with the keys of all who may connect where the installation is secured.
func (o options) prepare() (embedded.Config, error) {
	config := o.config()
	var err error
	if config.Port, err = o.freePort(); err != nil || !o.secured {
		return config, err
	}
	config.File = o.secret().configuration()
	return config, o.provision(config.Port)
}

// tell says how trainers are started, and where one looks.
func (o options) tell(url, page, logs string, out io.Writer) error {
	if o.secured {
		return o.secret().tell(page, logs, out)
	}
	if page != "" {
		fmt.Fprintln(out, processes.PageShows(page))
	}
	_, err := fmt.Fprintf(out, "logs in %s; REKNIT_NATS_URL=%s REKNIT_CLUSTER=%s reknit agent run -- COMMAND starts a trainer\n",
		logs, url, o.cluster)
	return err
}

// url is where those of this machine find NATS.
func (o options) url(port int) string {
	host := o.host
	if net.ParseIP(host).IsUnspecified() {
		host = "127.0.0.1"
	}
	return "nats://" + net.JoinHostPort(host, strconv.Itoa(port))
}

func (o options) config() embedded.Config {
	return embedded.Config{StoreDir: filepath.Join(o.dir, "nats"), Host: o.host, Port: o.port}
}

// lock keeps two servers from writing one store. It ends with the file that it returns.
func lock(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("--dir: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return file, nil
	}
	file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("--dir: %s is in use by another reknit up; beside it: reknit up --cluster OTHER --dir OTHER-data --port 0", dir)
	}
	return nil, fmt.Errorf("--dir: %s: %w", dir, err)
}

func (o options) check() error {
	switch {
	case o.dir == "":
		return errors.New("--dir: expected a directory")
	case !events.Token(o.cluster):
		return fmt.Errorf("--cluster: expected %s, got %q", cluster.Tokens, o.cluster)
	case net.ParseIP(o.host) == nil:
		return fmt.Errorf("--host: expected an IP address, got %q", o.host)
	case o.port < 0 || o.port > 65535:
		return fmt.Errorf("--port: expected 0 to 65535, got %d", o.port)
	case o.startNodes < 1:
		return fmt.Errorf("--start-nodes: expected at least 1, got %d", o.startNodes)
	}
	return nil
}

// start starts the services; stop ends those that were started.
func (o options) start(url, page, logs string, out io.Writer) (stop func(), err error) {
	program, err := os.Executable()
	if err != nil {
		return func() {}, err
	}
	running := processes.New(program, logs, func(name string, err error) {
		becomes := "is started again"
		if errors.As(err, &service.Misconfigured{}) {
			becomes = "is not started again, for it would end again"
		}
		fmt.Fprintf(out, "%s ended by itself and %s, %v\n", name, becomes, err)
	})
	stop = func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		running.Close(ctx)
	}
	for _, name := range processes.Services {
		env := map[string]string{
			"REKNIT_NATS_URL": url, "REKNIT_CLUSTER": o.cluster, "REKNIT_START_NODES": fmt.Sprint(o.startNodes),
			"REKNIT_PAGE_ADDRESS": page,
		}
		if o.secured {
			theirs, err := o.secret().settings(name)
			if err != nil {
				return stop, err
			}
			maps.Copy(env, theirs)
		}
		if err := running.Start(name, name, env, true); err != nil {
			return stop, err
		}
	}
	return stop, nil
}
