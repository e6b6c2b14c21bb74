package loop_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// door is a way to a real server. It counts what goes through that is to be stored or acknowledged, and at the one that
// at names it cuts the connection: before that reaches the server, or when it did and before the answer is back.
type door struct {
	listener net.Listener
	target   string
	at       int
	reaches  bool
	closes   bool // for good: nobody comes in again
	cut      func()

	mutex  sync.Mutex
	writes int
}

// openDoor calls cut once, when it has cut the connection.
func openDoor(t *testing.T, target string, at int, reaches, closes bool, cut func()) *door {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	d := &door{listener: listener, target: target, at: at, reaches: reaches, closes: closes, cut: cut}
	go d.accept()
	return d
}

func (d *door) url() string { return "nats://" + d.listener.Addr().String() }

func (d *door) accept() {
	for {
		client, err := d.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", strings.TrimPrefix(d.target, "nats://"))
		if err != nil {
			client.Close()
			return
		}
		muted := new(atomic.Bool)
		go func() { // what the server says
			defer client.Close()
			_, _ = io.Copy(unless{muted, client}, server)
		}()
		go func() { // what the client says
			defer client.Close()
			defer server.(*net.TCPConn).CloseWrite()
			d.relay(bufio.NewReader(client), server, muted)
		}()
	}
}

// unless drops what is written once it is muted.
type unless struct {
	muted *atomic.Bool
	to    io.Writer
}

func (u unless) Write(data []byte) (int, error) {
	if u.muted.Load() {
		return len(data), nil
	}
	return u.to.Write(data)
}

func (d *door) relay(from *bufio.Reader, to io.Writer, muted *atomic.Bool) {
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			return
		}
		message, err := withPayload(from, line)
		if err != nil {
			return
		}
		cuts := writes(line) && d.counts()
		if muted.Store(cuts); !cuts || d.reaches {
			if _, err := io.WriteString(to, message); err != nil {
				return
			}
		}
		if cuts {
			if d.closes {
				d.listener.Close()
			}
			d.cut()
			return
		}
	}
}

// withPayload reads what belongs to a line of the NATS protocol.
func withPayload(from io.Reader, line string) (string, error) {
	if !strings.HasPrefix(line, "PUB ") && !strings.HasPrefix(line, "HPUB ") {
		return line, nil
	}
	words := strings.Fields(line)
	size, err := strconv.Atoi(words[len(words)-1])
	if err != nil {
		return "", fmt.Errorf("%q: %w", line, err)
	}
	payload := make([]byte, size+len("\r\n"))
	_, err = io.ReadFull(from, payload)
	return line + string(payload), err
}

// writes reports whether a line brings something to store or an acknowledgement.
func writes(line string) bool {
	words := strings.Fields(line)
	if len(words) < 3 || words[0] != "PUB" && words[0] != "HPUB" {
		return false
	}
	for _, prefix := range []string{"reknit.event.", "reknit.plan.", "$KV.", "$JS.ACK."} {
		if strings.HasPrefix(words[1], prefix) {
			return true
		}
	}
	return false
}

func (d *door) counts() bool {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.writes++
	return d.writes == d.at
}
