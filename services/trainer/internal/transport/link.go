package transport

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/reknit/reknit/services/agent/links"
)

const (
	aliveEvery  = time.Second            // five heartbeats within the silence limit
	dialTimeout = 2 * time.Second        // a SYN and its first repeat, after one second
	redialEvery = 250 * time.Millisecond // a peer that is starting is not kept waiting
)

// link carries messages to one peer, over a connection of its own or through the hub.
//
// It keeps what was sent in the step under way and in the one before, and sends it again over a new connection:
// what was on its way when a connection broke is lost. Two steps are enough. Between two peers messages go both
// ways in every step, so no node ends a step before its peers have begun it, and to begin one is to have received
// all of the one before.
type link struct {
	peer      Peer
	hello     links.Hello // who speaks
	transport *Transport
	news      chan struct{} // one token: the outbox has changed

	mutex   sync.Mutex
	outbox  []Message // in order of position
	sent    int       // of the outbox, over the present connection
	asking  bool      // the peer is to send its outbox again
	leaving bool      // the link ends when the outbox is sent
	next    uint64    // generation to go on with, told at the end
}

func newLink(t *Transport, peer Peer, incarnation string) *link {
	who := links.Hello{Cluster: t.config.Cluster, Node: t.config.Node, Incarnation: incarnation}
	return &link{peer: peer, hello: who, transport: t, news: make(chan struct{}, 1)}
}

// change alters the outbox and wakes the writer.
func (l *link) change(alter func()) {
	l.mutex.Lock()
	alter()
	l.mutex.Unlock()
	select {
	case l.news <- struct{}{}:
	default:
	}
}

func (l *link) send(message Message) {
	l.change(func() { l.outbox = append(l.outbox, message) })
}

// forget drops what is older than a step and has been sent.
func (l *link) forget(step position) {
	l.change(func() {
		old := 0
		for old < l.sent && l.outbox[old].position.before(step) {
			old++
		}
		l.outbox, l.sent = append([]Message(nil), l.outbox[old:]...), l.sent-old
	})
}

// rewind sends everything again.
func (l *link) rewind() { l.change(func() { l.sent = 0 }) }

// ask has the peer send everything again.
func (l *link) ask() { l.change(func() { l.asking = true }) }

// leave ends the link once everything is sent.
func (l *link) leave(next uint64) { l.change(func() { l.leaving, l.next = true, next }) }

// pop returns the frames to send next. None are left when the last one is a bye.
func (l *link) pop() []frame {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	switch {
	case l.asking:
		l.asking = false
		return []frame{{kind: again}}
	case l.sent < len(l.outbox):
		l.sent++
		return l.outbox[l.sent-1].pieces()
	case l.leaving:
		return []frame{{kind: bye, position: position{generation: l.next}}}
	}
	return nil
}

func (l *link) isLeaving() bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.leaving
}

// serves reports whether the link can go on as one to the peer.
func (l *link) serves(peer Peer) bool { return l.peer == peer && !l.isLeaving() }

// run carries messages until the link has left or the transport ends. A link that leaves does not dial again: whoever
// still needs its last messages would be there.
func (l *link) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := l.connect(ctx)
		if err == nil || ctx.Err() != nil || l.isLeaving() {
			return
		}
		l.transport.broken(l.peer.Node, err)
		l.pause(ctx)
	}
}

// pause waits before the next attempt, unless the link leaves.
func (l *link) pause(ctx context.Context) {
	timer := time.NewTimer(redialEvery)
	defer timer.Stop()
	for !l.isLeaving() {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-l.news:
		}
	}
}

func (l *link) connect(ctx context.Context) error {
	l.rewind()
	if l.peer.Relayed {
		return l.relay(ctx)
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	connection, err := links.Dial(ctx, l.transport.config.Identity, dialer, l.hello, l.peer.Node, l.peer.Address)
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { connection.Close() })()
	// The peer sends nothing here: a read ends when the connection does, long before a write would notice.
	go func() {
		_, err := io.Copy(io.Discard, connection)
		cancel(fmt.Errorf("connection closed by the peer: %w", orEnd(err)))
	}()
	buffer := bufio.NewWriterSize(connection, 64<<10)
	err = l.carry(ctx, func(f frame) error { return writeFrame(buffer, f) }, buffer.Flush)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

func orEnd(err error) error {
	if err == nil {
		return io.EOF
	}
	return err
}

// relay carries frames through the hub, each with a hello before it.
func (l *link) relay(ctx context.Context) error {
	return l.carry(ctx, func(f frame) error {
		return l.transport.config.Relay(l.peer.Node, slices.Concat(l.hello.Bytes(), f.header(), f.piece))
	}, func() error { return nil })
}

// carry writes the outbox as it fills, and heartbeats while it is empty. It returns nil when the link has left.
func (l *link) carry(ctx context.Context, write func(frame) error, flush func() error) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		frames := l.pop()
		for _, f := range frames {
			if err := write(f); err != nil {
				return err
			}
			if f.kind == bye {
				return flush()
			}
		}
		if len(frames) > 0 {
			continue
		}
		if err := flush(); err != nil {
			return err
		}
		if err := l.rest(ctx, write); err != nil {
			return err
		}
	}
}

// rest waits for something to send, and writes a heartbeat where nothing comes.
func (l *link) rest(ctx context.Context, write func(frame) error) error {
	heartbeat := time.NewTimer(aliveEvery)
	defer heartbeat.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.news:
		return nil
	case <-heartbeat.C:
		return write(frame{kind: alive})
	}
}
