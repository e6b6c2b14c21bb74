// Package bus carries events over NATS JetStream: it publishes each once, delivers them in order, and lets nothing
// in that is not an event of the catalogue.
package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// Config says where the bus is and who speaks on it.
type Config struct {
	URL     string // of a NATS server, or several joined by commas; what is made on three or more has three replicas
	Name    string // the service or node, for the server's list of connections
	Cluster string // events of another cluster are refused, in and out
	Kit     string // folder of keys and certificates; empty where NATS asks for none
	Command bool   // of a person, to whom not every one says that NATS asks for none

	Options []nats.Option // other keys and certificates, as a command line has them
	API     string        // prefix of JetStream's subjects, where neither a kit tells it nor it is the usual one
}

// Bus is one connection to NATS. Its methods may be called by several goroutines.
type Bus struct {
	conn       *nats.Conn
	js         jetstream.JetStream
	kit        kit
	cluster    string
	replicas   int         // of the streams and buckets that are made
	makes      atomic.Bool // it has made what was missing, and does so again
	connection atomic.Pointer[connection]
	fence      atomic.Pointer[fence]
	stores     sync.Map // *store by bucket: those that were looked up
	leaders    sync.Map // jetstream.Stream by name: the same
	missing    allowance
	mark       mark
	replaced   chan error             // the last word that the log was replaced
	revoked    context.Context        // ends once the kit is worth nothing any more
	looks      atomic.Int32           // at the log, that were asked for since the last one began
	looked     atomic.Int64           // when it was looked because a stream was missing
	trouble    atomic.Pointer[string] // what is repeated, and why; nil: nothing is, for long
	ends       context.Context        // with the bus
	end        context.CancelFunc
}

// connection is the time from one reconnection to the next.
type connection struct {
	lasts context.Context // ends with it
	end   context.CancelFunc
	since time.Time // zero for the first
	count uint64    // of reconnections before it
}

// The connection survives whatever happens to the server: it looks for it for ever, soon and not in step with others.
// A server that does not answer two pings is left with the third, so that a node is back before it counts as lost: one
// that is silent does after 4.4 s. Nothing is buffered while there is no connection: what is sent late would arrive
// behind what replaced it, and Publish repeats on its own.
const (
	reconnectWait    = 250 * time.Millisecond
	pingInterval     = time.Second
	pingsOutstanding = 2
	dialTimeout      = 2 * time.Second
	handshakeTimeout = 30 * time.Second // as a provisioned server's
	sayAgain         = 30 * time.Second // that no server answers
)

// Regroup is the time in which everybody who lost the same server has noticed it and is back.
const Regroup = (pingsOutstanding+1)*pingInterval + 2*reconnectWait

// Connect returns a connected bus. While no server answers it keeps trying until ctx ends.
func Connect(ctx context.Context, config Config) (*Bus, error) {
	connected := make(chan struct{}, 1)
	log := slog.With("connection", config.Name)
	revoked, revoke := context.WithCancel(context.WithoutCancel(ctx))
	kit, err := openKit(config, revoke)
	if err != nil {
		return nil, err
	}
	b := &Bus{kit: kit, cluster: config.Cluster, replicas: 1, replaced: make(chan error, 1), revoked: revoked}
	b.ends, b.end = context.WithCancel(context.WithoutCancel(ctx))
	servers := slices.Sorted(slices.Values(strings.FieldsFunc(config.URL, func(r rune) bool { return r == ',' || r == ' ' })))
	if servers = slices.Compact(servers); len(servers) >= 3 {
		b.replicas = 3
	}
	config.URL = strings.Join(servers, ",")
	dial := &dialer{}
	conn, err := nats.Connect(config.URL, append(slices.Concat(b.Options(), config.Options),
		nats.Name(config.Name), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true),
		nats.SetCustomDialer(dial), nats.Timeout(handshakeTimeout), nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectWait, reconnectWait), nats.ReconnectBufSize(-1),
		nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(pingsOutstanding),
		nats.ConnectHandler(func(c *nats.Conn) {
			dial.attempts.Store(0)
			b.connected(c, time.Time{})
			connected <- struct{}{}
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("disconnected from NATS", "error", err)
			}
		}),
		nats.ReconnectHandler(func(c *nats.Conn) {
			log.Info("reconnected to NATS", "url", c.ConnectedUrlRedacted())
			dial.attempts.Store(0)
			b.connected(c, time.Now())
			b.remake()
			b.lookAgain()
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if log.Error("NATS", "error", err); errors.Is(err, nats.ErrAuthRevoked) {
				revoke()
			}
		}),
	)...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %q: %w", config.URL, err)
	}
	if err := b.awaitServer(ctx, config, conn, dial, connected); err != nil {
		conn.Close()
		return nil, err
	}
	b.conn = conn
	if b.js, err = jetstream.NewWithAPIPrefix(conn, cmp.Or(b.kit.API, config.API, jetstream.DefaultAPIPrefix)); err != nil {
		conn.Close()
		return nil, err
	}
	return b, nil
}

// awaitServer returns once a server lets the connection in, and says now and then that none does.
func (b *Bus) awaitServer(ctx context.Context, config Config, conn *nats.Conn, dial *dialer, connected <-chan struct{}) error {
	patience := time.NewTicker(dialTimeout)
	defer patience.Stop()
	for {
		select {
		case <-connected:
			return nil
		case <-patience.C:
			slog.Warn(dial.unheard(config.Kit), "connection", config.Name, "url", config.URL,
				"error", cmp.Or(conn.LastError(), dial.failure(), errUnanswered))
			patience.Reset(sayAgain)
		case <-b.Revoked():
			return ErrRevoked
		case <-ctx.Done():
			return fmt.Errorf("connect to NATS at %q: %w", config.URL, ctx.Err())
		}
	}
}

// ErrRevoked says that the kit with which somebody connected is worth nothing any more.
var ErrRevoked = errors.New("the kit was revoked, or its folder holds another key by now (REKNIT_NATS_KIT): expected a start with the new kit")

// Revoked is closed once the kit is worth nothing any more: the server has said so, or its folder holds another key.
func (b *Bus) Revoked() <-chan struct{} { return b.revoked.Done() }

func (b *Bus) connected(c *nats.Conn, since time.Time) {
	ctx, end := context.WithCancel(context.Background())
	if before := b.connection.Swap(&connection{ctx, end, since, c.Stats().Reconnects}); before != nil {
		before.end()
	}
}

// Together reports whether there is a connection, and the last reconnection was at least regroup ago.
func (b *Bus) Together(regroup time.Duration) bool {
	last := b.connection.Load()
	return b.conn.IsConnected() && last.count == b.conn.Stats().Reconnects && time.Since(last.since) >= regroup
}

// Conn returns the connection, for core NATS: pulses, probes and relays are no events.
func (b *Bus) Conn() *nats.Conn { return b.conn }

// JetStream returns the JetStream context of the connection.
func (b *Bus) JetStream() jetstream.JetStream { return b.js }

// Replicas returns how many servers keep what is made over this bus: three where so many are named, any one of which
// may die, and one else. Two keep nothing that one does not: neither of them is a majority.
func (b *Bus) Replicas() int { return b.replicas }

// Cluster returns the cluster the bus speaks for.
func (b *Bus) Cluster() string { return b.cluster }

// Lane returns what the cluster's own stream or bucket of a sort is called.
func (b *Bus) Lane(sort string) string { return events.Lane(b.cluster, sort) }

// Close sends what is under way and ends the connection.
func (b *Bus) Close() {
	b.end()
	if err := b.conn.FlushTimeout(time.Second); err != nil {
		slog.Debug("flush before closing", "error", err)
	}
	b.conn.Close()
}
