package shards

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

const testPart = 4 << 20

// within returns a context that ends the test's waits long after they should have ended.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func serve(t *testing.T, config StoreConfig) *Store {
	t.Helper()
	config.Dir = t.TempDir()
	store, err := Serve(within(t), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

func content(seed uint64, size int) []byte {
	data := make([]byte, size)
	random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	random.Read(data)
	return data
}

// layer is a test's content, cut into parts.
type layer struct {
	data  []byte
	parts []Part
}

func cut(data []byte, sources ...string) layer {
	cut := layer{data: data}
	for first := 0; first < len(data); first += testPart {
		end := min(first+testPart, len(data))
		part := Part{Digest: events.Digest(data[first:end]), First: int64(first), End: int64(end), Sources: sources}
		cut.parts = append(cut.parts, part)
	}
	return cut
}

func (l layer) offerTo(stores ...*Store) (offerings []*Offering) {
	for _, store := range stores {
		for _, part := range l.parts {
			offerings = append(offerings, store.Offer(part.Digest, l.data[part.First:part.End]))
		}
	}
	return offerings
}

// until waits until a condition holds, which some other goroutine brings about.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := within(t); !holds(); {
		select {
		case <-deadline.Done():
			t.Fatal("never: ", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// fetch runs a transfer of one layer and expects its bytes.
func fetch(t *testing.T, transfer *Transfer, want layer) Progress {
	t.Helper()
	into := make([]byte, len(want.data))
	if err := transfer.Add(Layer{Into: into, Parts: want.parts}); err != nil {
		t.Fatal(err)
	}
	transfer.Seal()
	if err := transfer.Run(within(t)); err != nil {
		t.Fatalf("%v; %v", err, transfer.Progress())
	}
	if !bytes.Equal(into, want.data) {
		t.Fatal("the transfer ended without an error, with wrong bytes")
	}
	return transfer.Progress()
}

func transferFrom(t *testing.T, sources ...Source) *Transfer {
	t.Helper()
	transfer, err := NewTransfer(sources)
	if err != nil {
		t.Fatal(err)
	}
	return transfer
}

func (s *Store) source() Source { return Source{Name: s.bucket, URL: s.URL(), Bucket: s.bucket} }

// library opens a store's bucket with nats.go, as whoever may read its context does.
func library(t *testing.T, store *Store) jetstream.ObjectStore {
	t.Helper()
	conn := ownersConn(t, store)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := js.ObjectStore(within(t), store.bucket)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func ownersConn(t *testing.T, store *Store) *nats.Conn {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(store.dir, ContextFile))
	if err != nil {
		t.Fatal(err)
	}
	var context struct{ URL, User, Password string }
	if err := json.Unmarshal(text, &context); err != nil {
		t.Fatal(err)
	}
	return dialAs(t, context.URL, nats.UserInfo(context.User, context.Password))
}

// reads connects to a store as whoever reads there.
func reads(t *testing.T, store *Store, options ...nats.Option) *nats.Conn {
	t.Helper()
	return dialAs(t, store.URL(), append(ReaderOptions(), options...)...)
}

// from has a connection come from another host, of which 127.0.0.1 is the first.
func from(host int) nats.Option {
	return nats.Dialer(&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(host))}})
}

func dialAs(t *testing.T, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	conn, err := nats.Connect(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

func messagesIn(t *testing.T, store *Store) uint64 {
	t.Helper()
	info, err := store.stream.Info(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Msgs
}

// link is a TCP proxy to a store, as good or bad as a test needs it. Zero fields mean that it is good.
type link struct {
	rate    float64 // bytes/s that a connection carries to whoever dialled
	cutAt   int64   // bytes after which it ends for ever
	breakAt int64   // bytes after which its connection ends once
	hangAt  int64   // bytes after which it carries nothing any more
	loseAt  int64   // bytes after which its connection carries nothing any more

	listener net.Listener
	closed   chan struct{}
	carried  atomic.Int64
}

// open returns the link as a source.
func (l *link) open(t *testing.T, to *Store) Source {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.listener, l.closed = listener, make(chan struct{})
	t.Cleanup(func() { listener.Close(); close(l.closed) })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			go l.join(near, to.server.Addr().String())
		}
	}()
	return Source{Name: to.bucket, URL: "nats://" + listener.Addr().String(), Bucket: to.bucket}
}

func (l *link) join(near net.Conn, to string) {
	defer near.Close()
	far, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer far.Close()
	go func() { io.Copy(far, near); far.Close() }()
	buffer := make([]byte, 64<<10)
	begin := time.Now()
	for sent := 0; ; {
		read, err := far.Read(buffer)
		if err != nil {
			return
		}
		if _, err := near.Write(buffer[:read]); err != nil {
			return
		}
		sent += read
		total := l.carried.Add(int64(read))
		if l.cutAt > 0 && total > l.cutAt {
			l.listener.Close()
			return
		}
		if l.breakAt > 0 && total > l.breakAt && total-int64(read) <= l.breakAt {
			return
		}
		lost := l.loseAt > 0 && total > l.loseAt && total-int64(read) <= l.loseAt
		if lost || l.hangAt > 0 && total > l.hangAt {
			<-l.closed
			return
		}
		if l.rate > 0 {
			time.Sleep(time.Until(begin.Add(time.Duration(float64(sent) / l.rate * float64(time.Second)))))
		}
	}
}

func bucketName(i int) string { return fmt.Sprintf("shards-n%d", i) }
