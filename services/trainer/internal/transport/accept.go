package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/reknit/reknit/services/agent/links"
	"github.com/reknit/reknit/services/agent/mtls"
)

// accept serves connections until the listener closes.
func (t *Transport) accept() {
	for {
		connection, err := t.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of file descriptors, for example: that passes
			slog.Warn("data plane: connection not accepted", "error", err)
			select {
			case <-t.context.Done():
			case <-time.After(redialEvery):
			}
			continue
		}
		t.receiving.Go(func() { t.serve(connection) })
	}
}

func (t *Transport) serve(connection net.Conn) {
	defer connection.Close()
	defer context.AfterFunc(t.context, func() { connection.Close() })()
	hello, secured, reader, err := links.Accept(t.context, t.config.Identity, t.config.Cluster, connection)
	release := func() {}
	if err == nil {
		release, err = t.config.Identity.Hold(t.context, hello.Node, func() { connection.Close() })
	}
	if err != nil {
		level := slog.LevelWarn
		if errors.Is(err, io.EOF) || t.context.Err() != nil {
			level = slog.LevelDebug // whoever tries the port, as reknit doctor does, or ends
		}
		slog.Log(t.context, level, "data plane: connection refused", "from", connection.RemoteAddr(), "error", err)
		return
	}
	defer release()
	if hello.Probe {
		links.AnswerProbes(secured, reader)
		return
	}
	if err := t.read(hello, reader); err != nil {
		t.broken(hello.Node, err)
	}
}

// read takes frames until the connection ends; nil after a bye.
func (t *Transport) read(hello links.Hello, reader io.Reader) error {
	pieces := new(assembler)
	for {
		frame, err := readFrame(reader)
		if err != nil {
			return err
		}
		t.hear(hello, frame, pieces, true)
		if frame.kind == bye {
			return nil
		}
	}
}

// Relayed takes a frame that came through the hub. It never waits: what finds no room is dropped, and asked for
// again when it is missed. It is refused where it is known that another sent it than it says.
func (t *Transport) Relayed(from string, envelope []byte) {
	reader := bytes.NewReader(envelope)
	hello, err := links.ReadHello(reader, t.config.Cluster)
	if err == nil && from != "" && from != hello.Node {
		err = fmt.Errorf("hello.node: expected %s, who sent it, got %.100q", from, hello.Node)
	}
	if err == nil {
		var frame frame
		if frame, err = readFrame(reader); err == nil {
			t.mutex.Lock()
			pieces := &t.sender(hello.Node).relayed
			t.mutex.Unlock()
			t.hear(hello, frame, pieces, false)
			return
		}
	}
	slog.Warn("data plane: relayed frame refused", "error", err)
}

// hear acts on a frame. Frames of one connection, and relayed frames, come one after another.
func (t *Transport) hear(hello links.Hello, frame frame, pieces *assembler, patient bool) {
	t.mutex.Lock()
	sender := t.sender(hello.Node)
	sender.heard(time.Now())
	link := t.links[hello.Node]
	stale := frame.position.generation == t.generation && sender.incarnation != hello.Incarnation
	t.mutex.Unlock()
	switch frame.kind {
	case data:
		if message, complete := pieces.add(hello.Node, frame); complete && !stale {
			t.keep(sender, message, patient)
		}
	case again:
		if link != nil {
			link.rewind()
		}
	case bye:
		t.left(hello.Node, frame.position.generation)
	}
}

// keep hands a message to the inbox. While there is no room for it, the sender is not silent: it is not listened to.
func (t *Transport) keep(sender *sender, message Message, patient bool) {
	t.mutex.Lock()
	sender.waiting++
	t.mutex.Unlock()
	t.inbox.put(message, patient)
	t.mutex.Lock()
	sender.waiting--
	sender.heard(time.Now())
	t.mutex.Unlock()
}

// left ends the link to a peer that went on to a newer generation without this node, or ended.
func (t *Transport) left(node string, generation uint64) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if link := t.links[node]; link != nil && generation > t.generation {
		link.leave(t.generation)
	}
}

// refusals are what a peer's kernel says when its process is gone.
var refusals = []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.EPIPE}

// broken reports a peer whose connection was reset or refused, or that is not who it is meant to be. Other errors, such as
// no route, leave the peer silent, which the watch finds out.
func (t *Transport) broken(node string, err error) {
	t.mutex.Lock()
	link := t.links[node]
	t.mutex.Unlock()
	if link == nil || link.isLeaving() || t.context.Err() != nil {
		return
	}
	isRefusal := func(refusal error) bool { return errors.Is(err, refusal) }
	if gone := slices.ContainsFunc(refusals, isRefusal); gone || mtls.Refused(err) {
		t.config.Suspect(node, gone, err.Error())
	}
}
