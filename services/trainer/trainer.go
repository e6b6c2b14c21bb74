// Package trainer is the reference trainer: real training of a small language model, data times pipeline parallel,
// over processes that come and go. Its sums have no order, so its result has one digest whatever happened.
package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	_ "gocloud.dev/blob/s3blob" // for REKNIT_SNAPSHOT_BUCKET

	"github.com/reknit/reknit/services/agent"
	"github.com/reknit/reknit/services/agent/mtls"
	"github.com/reknit/reknit/services/agent/shards"
	"github.com/reknit/reknit/services/trainer/internal/state"
	"github.com/reknit/reknit/services/trainer/internal/training"
	"github.com/reknit/reknit/services/trainer/internal/transport"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/service"
	"github.com/reknit/reknit/shared/telemetry"
)

// Run trains until the node has left the cluster. The end of ctx (SIGTERM) is a wish to leave: the cluster first takes
// over what only this node holds. Once training is complete there is nothing to take over, and Run ends at once.
func Run(ctx context.Context, config Config) error {
	if config.Kit != "" {
		known, err := bus.ReadIdentity(config.Kit)
		if err != nil {
			return fmt.Errorf("REKNIT_NATS_KIT: %w", err)
		}
		config.Node = cmp.Or(config.Node, known.Key)
		if known.Name != "" {
			slog.SetDefault(slog.With("name", known.Name))
		}
	}
	if err := config.validate(); err != nil {
		return service.Misconfigured{Err: err}
	}
	what, samples, err := config.Training()
	if err != nil {
		return service.Misconfigured{Err: err}
	}
	job, err := config.job(what)
	if err != nil {
		return err
	}
	telemetry.Level.Set(config.LogLevel)
	asked := ctx // ends when the trainer is asked to go
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	identity, err := mtls.Open(config.Kit)
	if err != nil {
		return err
	}
	var plane dataPlane
	network, err := transport.Listen(ctx, transport.Config{
		Cluster: config.Cluster, Node: config.Node, Listen: config.Listen, Identity: identity,
		Suspect: plane.suspect, Relay: plane.relay,
	})
	if err != nil {
		return err
	}
	defer network.Close()
	joined := context.AfterFunc(asked, end) // while there is no membership there is nothing to leave
	session, err := agent.Join(ctx, agent.Config{
		NATSURL: config.URL, NATSKit: config.Kit, Identity: identity, Cluster: config.Cluster, Node: config.Node,
		Address: config.address(network), Site: config.Site, Neighbours: config.Neighbours,
		MemoryBytes: config.MemoryBytes, Versions: state.Versions, Job: job, Snapshots: config.Settings, Consent: config.Policy,
		PreCopies: true, Measure: network.Measure, Relayed: network.Relayed,
		Store: shards.StoreConfig{Host: config.listenHost(), Port: config.ShardPort, Dir: config.ShardDir},
	})
	joined()
	if err != nil {
		return err
	}
	defer session.Close()
	plane.session.Store(session)
	if err := serveHealth(ctx, config.HTTPAddress, session.Ready); err != nil {
		return err
	}
	loop := training.New(training.Config{
		Node: config.Node, Shape: what.Shape, Adam: what.Adam, Seed: config.Seed, GlobalBatch: config.GlobalBatch,
		MicroBatch: config.MicroBatch, Steps: config.Steps, CompareEvery: config.CompareEvery, Samples: samples, Job: job,
	}, session, network)
	defer context.AfterFunc(asked, func() { leave(ctx, session, loop.Complete(), end) })()
	if err := loop.Run(ctx); err != nil && !finished(ctx, loop) {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			err = errors.New("ended by a second signal")
		}
		exited(session, err)
		return err
	}
	return nil
}

// lastWords is how long a trainer that fails tries to say so. Its peers notice anyway, though later.
const lastWords = 2 * time.Second

func exited(session *agent.Session, why error) {
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	if err := session.Exited(ctx, why.Error(), 1); err != nil {
		slog.Warn("end not told", "error", err)
	}
}

// finished reports whether the loop was ended after its last step.
func finished(ctx context.Context, loop *training.Trainer) bool {
	select {
	case <-loop.Complete():
		return ctx.Err() != nil
	default:
		return false
	}
}

// address returns where other trainers reach this one.
func (c Config) address(network *transport.Transport) string {
	if c.Advertise != "" {
		return c.Advertise
	}
	return network.Address()
}

// listenHost is that of the data plane, for the shard store.
func (c Config) listenHost() string {
	host, _, _ := net.SplitHostPort(c.Listen) // the data plane listens there already
	return host
}

// dataPlane gives the transport the session, which needs the transport's address to begin with.
type dataPlane struct{ session atomic.Pointer[agent.Session] }

func (d *dataPlane) suspect(node string, refused bool, reason string) {
	if session := d.session.Load(); session != nil {
		session.Suspect(node, refused, reason)
	}
}

func (d *dataPlane) relay(node string, frame []byte) error {
	session := d.session.Load()
	if session == nil {
		return fmt.Errorf("relay to %s: not connected yet", node)
	}
	return session.Relay(node, frame)
}

// leaveDeadline is what a trainer says it has: the shortest notice that clouds give for a spot instance.
const leaveDeadline = 30 * time.Second

// leave says that the node wants to leave. It ends at once if training is complete, or when asked a second time.
func leave(ctx context.Context, session *agent.Session, complete <-chan struct{}, end context.CancelFunc) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(again)
	select {
	case <-complete:
		end()
		return
	default:
	}
	slog.Warn("the trainer ends once the cluster does without it. A second signal ends it at once, and what only it holds is lost; " +
		"a whole job is stopped by two to each of its trainers")
	session.Leave("asked to go", leaveDeadline)
	select {
	case <-complete:
		end()
	case <-again:
		end()
	case <-ctx.Done():
	}
}

// serveHealth answers /healthz while the process lives and /readyz while it can take part; no address, no answers.
func serveHealth(ctx context.Context, address string, ready func() error) error {
	if address == "" {
		return nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("REKNIT_HTTP_ADDRESS: %w", err)
	}
	handler := http.NewServeMux()
	handler.HandleFunc("/healthz", func(response http.ResponseWriter, _ *http.Request) { fmt.Fprintln(response, "ok") })
	handler.HandleFunc("/readyz", func(response http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(response, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(response, "ok")
	})
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { server.Close() })
	go server.Serve(listener)
	return nil
}
