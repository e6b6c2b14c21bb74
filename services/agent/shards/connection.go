package shards

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/services/agent/queue"
)

// Bounds of a source's connection. It bears nothing but bulk; a PONG waits behind that, so it is given time.
const (
	dialTimeout   = 2 * time.Second
	reconnectWait = 250 * time.Millisecond
	pingInterval  = 5 * time.Second
)

// errBroken says that the connection to a source was lost.
var errBroken = errors.New("connection lost")

// dial returns a source that looks for its connection until it is closed. It calls changed when the connection comes or
// goes, with its round trip, and late with bytes that nobody awaits any more. The connection is warmed before it comes, while idle says so.
func dial(
	ctx context.Context, config Source, idle func() bool, changed func(bool, time.Duration), late func(bytes int64),
) (*source, error) {
	s := &source{
		bucket: config.Bucket, api: cmp.Or(config.API, "$JS.API"), began: time.Now(), late: late, seal: config.Seal,
		answers: map[string]*answer{}, ahead: map[string]*answer{}, used: map[string]int{},
		kept: map[string]*queue.Part{},
	}
	if config.Stored {
		s.kind = keeps
	}
	keys := ReaderOptions()
	if config.Options != nil {
		keys = append(keys, config.Options()...)
	}
	conn, err := nats.Connect(config.URL, append(keys,
		nats.SetCustomDialer(dialer{ctx, s}), nats.Timeout(dialTimeout),
		nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true), nats.ReconnectBufSize(-1),
		nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(reconnectWait, reconnectWait),
		nats.PingInterval(pingInterval),
		nats.ConnectHandler(func(conn *nats.Conn) {
			warm(conn, config.Bucket, warmCount(config.BytesPerSecond), idle)
			changed(true, s.roundTrip())
		}),
		nats.ReconnectHandler(func(*nats.Conn) { changed(true, s.roundTrip()) }),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { changed(false, s.roundTrip()) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { s.refused(err) }),
	)...)
	if err != nil {
		return nil, err
	}
	s.conn, s.inbox = conn, conn.NewInbox()+"."
	subscription, err := conn.Subscribe(s.inbox+"*", s.deliver)
	if err == nil {
		err = subscription.SetPendingLimits(-1, -1) // bounded by what is asked for
	}
	return s, err
}

// ReaderOptions are those of a connection that reads a store: it hears answers below a subject that nobody guesses, and is
// named after that.
func ReaderOptions() []nats.Option {
	inbox := nats.InboxPrefix + rand.Text() // the library's own tokens follow from one another
	return []nats.Option{nats.Name(inbox), nats.CustomInboxPrefix(inbox)}
}

// dialer gives up with the transfer, and measures the round trip that a connection begins with.
type dialer struct {
	ctx    context.Context
	source *source
}

func (d dialer) Dial(network, address string) (net.Conn, error) {
	began := time.Now()
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(d.ctx, network, address)
	if err != nil {
		return nil, err
	}
	s := d.source
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.trip = time.Since(began)
	s.hear()
	h := &hearing{Conn: conn, source: s, broken: make(chan struct{})}
	// A server that greets and falls silent would hold the transfer's end up for dialTimeout.
	h.keep = context.AfterFunc(d.ctx, func() { _ = h.end() })
	s.present, s.broken = h, h.broken
	return h, nil
}

// hearing is a connection that notes when bytes come: over a slow link a message takes longer than a source may be
// silent. It also notes when no byte will come any more. The client tells that later, perhaps when something was asked
// for on the next connection already.
type hearing struct {
	net.Conn
	source *source
	broken chan struct{}
	keep   func() bool // from ending with the transfer
	lost   sync.Once
}

func (h *hearing) Read(into []byte) (int, error) {
	read, err := h.Conn.Read(into)
	if err != nil {
		h.lost.Do(func() { h.source.lost(h.broken) })
		return read, err
	}
	h.source.hear()
	return read, nil
}

func (h *hearing) Close() error {
	h.keep()
	return h.end()
}

func (h *hearing) end() error {
	h.lost.Do(func() { h.source.lost(h.broken) })
	return h.Conn.Close()
}

func (s *source) hear() { s.heard.Store(int64(time.Since(s.began))) }

func (s *source) silence() time.Duration { return time.Since(s.began) - time.Duration(s.heard.Load()) }

// refused hears what a server says of a request that it does not pass on. Nothing answers that: it shows as a stall, too.
func (s *source) refused(err error) {
	if errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), wantSubject(s.bucket)) {
		s.learn(keeps)
	}
}

// drop ends the present connection, with what was asked for on it. The client makes another.
func (s *source) drop() {
	s.mutex.Lock()
	present := s.present
	s.mutex.Unlock()
	if present != nil {
		_ = present.Close() // whatever it says, it is not used any more
	}
}

func (s *source) roundTrip() time.Duration {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.trip
}

// lost ends every wait for an answer on a connection.
func (s *source) lost(broken chan struct{}) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	close(broken)
	for digest, asked := range s.ahead {
		delete(s.answers, asked.token)
		delete(s.ahead, digest)
	}
	clear(s.kept)
}
