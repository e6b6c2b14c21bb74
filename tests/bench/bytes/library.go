package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// library is a server in this process with a bucket in memory, which the client library alone writes and reads.
type library struct {
	server *server.Server
	conn   *nats.Conn
	bucket jetstream.ObjectStore
	dir    string
}

func openLibrary(ctx context.Context) (l *library, err error) {
	l = &library{}
	if l.dir, err = os.MkdirTemp("", "reknit-bench-"); err != nil {
		return nil, err
	}
	l.server, err = server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: l.dir, JetStreamMaxMemory: 2 << 30,
		MaxPayload: 1 << 20, MaxPending: 512 << 20, StreamMaxBufferedSize: 256 << 20, NoSigs: true, NoLog: true, DisableJetStreamBanner: true,
	})
	if err != nil {
		return nil, err
	}
	l.server.Start()
	if l.conn, err = nats.Connect("", nats.InProcessServer(l.server)); err != nil {
		return nil, err
	}
	js, err := jetstream.New(l.conn)
	if err != nil {
		return nil, err
	}
	l.bucket, err = js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: libBucket, Storage: jetstream.MemoryStorage})
	return l, err
}

func (l *library) put(ctx context.Context, digest string, part []byte) error {
	meta := jetstream.ObjectMeta{Name: digest, Opts: &jetstream.ObjectMetaOptions{ChunkSize: 512 << 10}}
	_, err := l.bucket.Put(ctx, meta, bytes.NewReader(part))
	return err
}

func (l *library) close() {
	l.conn.Close()
	l.server.Shutdown()
	l.server.WaitForShutdown()
	_ = os.RemoveAll(l.dir) // of the system's temporary directory
}

// getPart reads an object of a part, and drops it.
func getPart(ctx context.Context, bucket jetstream.ObjectStore, digest string, into []byte) error {
	object, err := bucket.Get(ctx, digest)
	if err != nil {
		return err
	}
	defer object.Close()
	if _, err := io.ReadFull(object, into); err != nil {
		return err
	}
	return object.Error()
}

// beyond is how many bytes of memory this process has had at most beside an object of a size; zero where nobody tells.
func beyond(size int) int {
	text, _ := os.ReadFile("/proc/self/status") // of Linux
	_, peak, _ := strings.Cut(string(text), "VmHWM:")
	kibibytes := 0
	_, _ = fmt.Sscan(peak, &kibibytes)
	return max(0, kibibytes<<10-size)
}
