package shards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// Bounds of a source's connection. It bears nothing but bulk; a PONG waits behind that, so it is given time.
const (
	dialTimeout   = 2 * time.Second
	reconnectWait = 250 * time.Millisecond
	pingInterval  = 5 * time.Second
)

// batchMessages bounds the messages of an answer whose chunks another writer made smaller.
const batchMessages = 64

// errBroken says that the connection to a source was lost.
var errBroken = errors.New("connection lost")

// source is a connection to a bucket, and the answers that are awaited on it.
type source struct {
	conn   *nats.Conn
	bucket string
	inbox  string // answers arrive below it
	late   func(bytes int64)

	began time.Time
	heard atomic.Int64 // when the last byte came, in nanoseconds from then on

	mutex   sync.Mutex
	answers map[string]*answer // by the last token of their subject
	ahead   map[string]*answer // of manifests that will be read later, by digest
	token   uint64
	present *hearing
	broken  chan struct{} // closed when the present connection is lost
	trip    time.Duration
}

// answer receives the messages that one request asks for.
type answer struct {
	token    string
	messages chan *nats.Msg
	broken   <-chan struct{}
}

// dialer gives up with the transfer, and measures the round trip that a connection begins with.
type dialer struct {
	ctx context.Context
	*source
}

func (d dialer) Dial(network, address string) (net.Conn, error) {
	began := time.Now()
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(d.ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.trip = time.Since(began)
	d.hear()
	h := &hearing{Conn: conn, source: d.source, broken: make(chan struct{})}
	h.keep = context.AfterFunc(d.ctx, func() { _ = h.end() }) // a server that greets and falls silent would hold it up for dialTimeout
	d.present, d.broken = h, h.broken
	return h, nil
}

// hearing is a connection that notes when bytes come, as over a slow link a message takes longer than a source may be silent,
// and when none will any more: the client tells that later, perhaps when something was asked for on the next one already.
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

// drop ends the present connection, on which what was asked for is not wanted any more; the client makes another.
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

// dial returns a source whose connection is looked for until it is closed; changed is called when it comes or goes. It is
// warmed before it comes, while idle says so.
func dial(ctx context.Context, config Source, idle func() bool, changed func(connected bool), late func(bytes int64)) (*source, error) {
	s := &source{bucket: config.Bucket, began: time.Now(), inbox: nats.NewInbox() + ".", late: late, answers: map[string]*answer{}, ahead: map[string]*answer{}}
	conn, err := nats.Connect(config.URL, nats.Name("shards"), nats.SetCustomDialer(dialer{ctx, s}), nats.Timeout(dialTimeout),
		nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true), nats.ReconnectBufSize(-1),
		nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(reconnectWait, reconnectWait), nats.PingInterval(pingInterval),
		nats.ConnectHandler(func(conn *nats.Conn) {
			warm(conn, config.Bucket, warmCount(config.BytesPerSecond), idle)
			changed(true)
		}),
		nats.ReconnectHandler(func(*nats.Conn) { changed(true) }),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { changed(false) }),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // shows as a stall
	)
	if err != nil {
		return nil, err
	}
	s.conn = conn
	subscription, err := conn.Subscribe(s.inbox+"*", s.deliver)
	if err == nil {
		err = subscription.SetPendingLimits(-1, -1) // bounded by what is asked for
	}
	return s, err
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
}

// deliver hands a message to who asked for it. One that nobody awaits any more is counted.
func (s *source) deliver(message *nats.Msg) {
	token := strings.TrimPrefix(message.Subject, s.inbox)
	s.mutex.Lock()
	awaited := s.answers[token]
	s.mutex.Unlock()
	if awaited != nil {
		select {
		case awaited.messages <- message:
			return
		default: // more than was asked for
		}
	}
	s.late(int64(len(message.Data)))
}

// ask sends a request of which at most messages answers are awaited.
func (s *source) ask(subject string, request []byte, messages int) (*answer, error) {
	s.mutex.Lock()
	s.token++
	asked := &answer{strconv.FormatUint(s.token, 10), make(chan *nats.Msg, messages), s.broken}
	s.answers[asked.token] = asked
	s.mutex.Unlock()
	err := s.conn.PublishRequest(subject, s.inbox+asked.token, request)
	if err != nil {
		s.forget(asked)
	}
	return asked, err
}

func (s *source) forget(asked *answer) {
	s.mutex.Lock()
	delete(s.answers, asked.token)
	s.mutex.Unlock()
	for {
		select {
		case message := <-asked.messages:
			s.late(int64(len(message.Data)))
		default:
			return
		}
	}
}

// askManifest asks for a digest's manifest.
func (s *source) askManifest(digest string) (*answer, error) {
	return s.ask(directSubject(s.bucket)+"."+metaSubject(s.bucket, digest), nil, 1)
}

// askManifestAhead asks for a manifest that takeManifest will hand out.
func (s *source) askManifestAhead(digest string) error {
	s.mutex.Lock()
	there := s.ahead[digest] != nil
	s.mutex.Unlock()
	if there {
		return nil
	}
	asked, err := s.askManifest(digest)
	if err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.ahead[digest] = asked
	return nil
}

// takeManifest returns the answer that was asked for ahead, or nil.
func (s *source) takeManifest(digest string) *answer {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	asked := s.ahead[digest]
	delete(s.ahead, digest)
	return asked
}

// askFirstChunks asks for the first chunks of a digest whose manifest did not come yet; the answer ends with a message that has
// a status. Other objects' chunks of the same content may be among them.
func (s *source) askFirstChunks(digest string, chunks int) (*answer, error) {
	subject := chunkSubject(s.bucket, strings.TrimPrefix(digest, "sha256:")+".>")
	return s.ask(directSubject(s.bucket), fmt.Appendf(nil, `{"seq":1,"next_by_subj":%q,"batch":%d}`, subject, chunks), chunks+1)
}

// askChunk asks for the chunk at a sequence; the answer is one message, with a status where there is none.
func (s *source) askChunk(sequence uint64) (*answer, error) {
	return s.ask(directSubject(s.bucket), fmt.Appendf(nil, `{"seq":%d}`, sequence), 1)
}

// askChunks asks for chunks from a sequence on; the answer ends with a message that has a status.
func (s *source) askChunks(found *object, from uint64, chunks int, bytes int64) (*answer, error) {
	request, err := json.Marshal(struct {
		From    uint64 `json:"seq"`
		Subject string `json:"next_by_subj"`
		Batch   int    `json:"batch"`
		Bytes   int64  `json:"max_bytes,omitempty"`
	}{from, chunkSubject(s.bucket, found.info.NUID), chunks, bytes})
	if err != nil {
		return nil, err
	}
	return s.ask(directSubject(s.bucket), request, chunks+1)
}
