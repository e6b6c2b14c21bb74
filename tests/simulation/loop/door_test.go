package loop_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reknit/reknit/tests/simulation/loop"
)

// door is a way to a real server. It keeps what goes through that is to be stored or acknowledged, and at the one that
// at names, counted from 1, it cuts the connection: before that reaches the server, or when it did and before the
// answer is back.
type door struct {
	listener net.Listener
	target   string
	at       int
	reaches  bool
	closes   bool // for good: nobody comes in again
	cut      func()
	pause    func() // instead of a cut; nothing goes either way until it returns

	mutex  sync.Mutex
	writes []loop.Point
	wrote  chan struct{} // something was, since written looked
}

// openDoor calls cut once, when it has cut the connection.
func openDoor(t *testing.T, target string, at int, reaches, closes bool, cut func()) *door {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	d := &door{listener: listener, target: target, at: at, reaches: reaches, closes: closes, cut: cut,
		wrote: make(chan struct{}, 1)}
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
		back := &wayBack{to: client}
		go func() { // what the server says
			defer client.Close()
			_, _ = io.Copy(back, server)
		}()
		go func() { // what the client says
			defer client.Close()
			defer server.(*net.TCPConn).CloseWrite()
			d.relay(bufio.NewReader(client), server, back)
		}()
	}
}

// wayBack is what the server says on its way. Whoever holds its mutex stops it; once it is cut it drops everything.
type wayBack struct {
	mutex sync.Mutex
	cut   bool
	to    io.Writer
}

func (b *wayBack) Write(data []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.cut {
		return len(data), nil
	}
	return b.to.Write(data)
}

// stop holds what the server says until the pause is over, or cuts it.
func (b *wayBack) stop(pause func()) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if pause == nil {
		b.cut = true
		return
	}
	pause()
}

func (d *door) relay(from *bufio.Reader, to io.Writer, back *wayBack) {
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			return
		}
		message, err := withPayload(from, line)
		if err != nil {
			return
		}
		cuts := d.cuts(line)
		if cuts {
			back.stop(d.pause)
			cuts = d.pause == nil
		}
		if !cuts || d.reaches {
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

// writing lists what a subject is written to for.
var writing = []struct {
	prefix string
	point  loop.Point
}{
	{"reknit.event.", loop.Publish}, {"reknit.plan.", loop.Publish},
	{"$KV.", loop.Remember}, {"$JS.ACK.", loop.Acknowledge},
}

// cuts notes a line that writes, and reports whether the connection ends there.
func (d *door) cuts(line string) bool {
	words := strings.Fields(line)
	if len(words) < 3 || words[0] != "PUB" && words[0] != "HPUB" {
		return false
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for _, row := range writing {
		if strings.HasPrefix(words[1], row.prefix) {
			d.writes = append(d.writes, row.point)
			select {
			case d.wrote <- struct{}{}:
			default:
			}
			return len(d.writes) == d.at
		}
	}
	return false
}

// written returns what was written, in its order, once there is as much of it, or after a while.
func (d *door) written(count int) []loop.Point {
	for late := time.After(2 * time.Minute); ; {
		d.mutex.Lock()
		writes := slices.Clone(d.writes)
		d.mutex.Unlock()
		if len(writes) >= count {
			return writes
		}
		select {
		case <-d.wrote:
		case <-late:
			return writes
		}
	}
}
