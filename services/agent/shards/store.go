package shards

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/services/agent/mtls"
	"github.com/reknit/reknit/services/agent/window"
)

// StoreConfig says what a node serves and where.
type StoreConfig struct {
	Bucket string // unique among the nodes: a bucket's subjects do not tell servers apart
	Host   string // where receivers dial; default 127.0.0.1
	Port   int    // 0 takes any free one
	Dir    string // of this store alone: a few kilobytes lie in Dir/shards; default a new directory in shared memory

	Identity *mtls.Identity // by which readers prove who they are, and are let in; nil: whoever comes is
}

// Limits of a store's server. A slow link needs more than the default 10 s to take what was asked for on it; and the server
// cuts a connection for which more waits than a quarter of its pending bytes (both measured). A reader asks for 32 MiB at most.
const (
	maxPayload    = 1 << 20
	maxPending    = 128 << 20
	streamBuffer  = 256 << 20
	writeDeadline = time.Minute
	closePatience = 2 * time.Second
	startTimeout  = 10 * time.Second
	tlsTimeout    = 10 * time.Second                         // of a handshake, beside the bytes of others
	bucketBytes   = window.TotalBytes + window.TotalBytes/16 // with records, and what messages take beside their bytes
)

// Store is a node's own bucket, in memory, on a server of its own. It begins empty, and nothing of it outlives Close. Its
// methods may be called by several goroutines.
type Store struct {
	bucket string
	dir    string
	server *server.Server
	conn   *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
	gives  gives
}

// Serve returns when receivers may dial. A client that reaches the port may read, and do nothing else.
func Serve(ctx context.Context, config StoreConfig) (*Store, error) {
	if config.Bucket == "" || strings.ContainsAny(config.Bucket, " .*>\"") {
		return nil, fmt.Errorf("shard store: Bucket: expected a name without blanks, dots and wildcards, got %.80q", config.Bucket)
	}
	if config.Host == "" {
		config.Host = "127.0.0.1"
	}
	if err := portFree(config); err != nil {
		return nil, err
	}
	dir, err := emptyDir(config)
	if err != nil {
		return nil, fmt.Errorf("shard store: Dir: %w", err)
	}
	store := &Store{bucket: config.Bucket, dir: dir, gives: newGives()}
	if err := store.start(ctx, config); err != nil {
		store.Close()
		return nil, fmt.Errorf("shard store on %s:%d: %w", config.Host, config.Port, err)
	}
	return store, nil
}

// portFree fails where nobody can listen: the server would try for ten seconds, and not say why.
func portFree(config StoreConfig) error {
	listener, err := net.Listen("tcp", net.JoinHostPort(config.Host, strconv.Itoa(config.Port)))
	if err != nil {
		return fmt.Errorf("shard store: expected a free port in REKNIT_AGENT_SHARD_PORT, or REKNIT_TRAINER_SHARD_PORT of the reference "+
			"trainer: %w", err)
	}
	return listener.Close()
}

// emptyDir also removes what a process left that was killed. The store's few kilobytes of books lie in shared memory, or on a
// disk where there is none.
func emptyDir(config StoreConfig) (string, error) {
	if config.Dir != "" {
		dir := filepath.Join(config.Dir, "shards")
		return dir, os.RemoveAll(dir)
	}
	var failures error
	for _, parent := range []string{sharedMemory, os.TempDir()} {
		sweep(parent)
		dir, err := os.MkdirTemp(parent, fmt.Sprintf("%s%d-", tempPrefix, os.Getpid()))
		if err == nil {
			return dir, nil
		}
		failures = errors.Join(failures, err)
	}
	return "", failures
}

const (
	sharedMemory = "/dev/shm" // a file system in memory, on Linux
	tempPrefix   = "reknit-shards-"
)

// sweep removes the directories of processes that are no more.
func sweep(parent string) {
	left, _ := filepath.Glob(filepath.Join(parent, tempPrefix+"*-*")) // the pattern is sound
	for _, dir := range left {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), tempPrefix), "-")
		pid, err := strconv.Atoi(owner)
		if err != nil || pid == os.Getpid() {
			continue
		}
		process, err := os.FindProcess(pid)
		if err == nil && errors.Is(process.Signal(syscall.Signal(0)), os.ErrProcessDone) {
			_ = os.RemoveAll(dir) // a few kilobytes; the next one tries again
		}
	}
}

func (s *Store) start(ctx context.Context, config StoreConfig) (err error) {
	secret := rand.Text()
	settings, err := options(config, s.dir)
	if err != nil {
		return err
	}
	door := &admission{bucket: s.bucket, secret: secret, identity: config.Identity, open: map[string][]connected{}}
	settings.CustomClientAuthentication = door
	if s.server, err = server.NewServer(settings); err != nil {
		return err
	}
	door.server = s.server
	if config.Identity != nil {
		s.server.SetLogger(refusals{bucket: config.Bucket}, true, false)
	}
	s.server.Start()
	if !s.server.ReadyForConnections(startTimeout) {
		return fmt.Errorf("expected it to accept connections within %v (is the port taken?)", startTimeout)
	}
	if err := s.open(ctx, secret); err != nil {
		return err
	}
	if err := serveWarming(s.conn, s.bucket); err != nil {
		return err
	}
	if err := s.listen(); err != nil {
		return err
	}
	return s.writeContext(secret)
}

// open makes the bucket, as its owner.
func (s *Store) open(ctx context.Context, secret string) (err error) {
	user := nats.UserInfo(owner, secret)
	if s.conn, err = nats.Connect("", nats.InProcessServer(s.server), user, nats.Name("shards")); err != nil {
		return err
	}
	window := jetstream.WithPublishAsyncMaxPending(windowChunks)
	if s.js, err = jetstream.New(s.conn, window, jetstream.WithPublishAsyncTimeout(ackTimeout)); err != nil {
		return err
	}
	s.stream, err = s.js.CreateStream(ctx, streamOf(s.bucket))
	return err
}

// streamOf is the stream under the bucket, as the library makes it for an object store.
func streamOf(bucket string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: streamName(bucket), Subjects: []string{chunkSubject(bucket, ">"), metaSubjects(bucket)},
		Storage: jetstream.MemoryStorage, Discard: jetstream.DiscardNew, MaxBytes: bucketBytes,
		AllowRollup: true, AllowDirect: true,
	}
}

// URL returns where receivers dial.
func (s *Store) URL() string {
	address := s.server.Addr().(*net.TCPAddr)
	return "nats://" + net.JoinHostPort(address.IP.String(), strconv.Itoa(address.Port))
}

// Port returns the port on which receivers dial.
func (s *Store) Port() int { return s.server.Addr().(*net.TCPAddr).Port }

// Close ends the server and removes what it stored. The server ends by itself after writeDeadline, and takes no
// connections until then, if a reader takes nothing of what is sent to it.
func (s *Store) Close() {
	s.gives.mutex.Lock()
	s.gives.end() // nothing is put or removed from here on
	s.gives.mutex.Unlock()
	s.gives.work.Wait()
	if s.conn != nil {
		s.conn.Close()
	}
	if s.server != nil {
		ended := make(chan struct{})
		go func() { s.server.Shutdown(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(closePatience):
		}
	}
	if err := os.RemoveAll(s.dir); err != nil {
		slog.Warn("a shard store's files are left", "error", err)
	}
}
