package shards

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// StoreConfig says what a node serves and where.
type StoreConfig struct {
	Bucket   string // unique among the nodes: a bucket's subjects do not tell servers apart
	Host     string // where receivers dial; default 127.0.0.1
	Port     int    // 0 takes any free one
	Dir      string // of this store alone: its files lie in Dir/shards; default a new temporary directory
	Memory   bool   // stored parts lie in memory, not in files, and the temporary directory in shared memory
	MaxBytes int64  // all stored parts and their manifests; default 8 GiB

	TLS *tls.Config // how to take connections; nil: as they come
}

// Limits of a store's server. Two parts in flight for each of a few receivers need more than the default 64 MiB of
// pending bytes; a slow link needs more than the default 10 s to take them (both measured: the server cuts the
// connection else).
const (
	defaultMaxBytes = 8 << 30
	maxPayload      = 1 << 20
	maxPending      = 512 << 20
	streamBuffer    = 256 << 20
	writeDeadline   = time.Minute
	startTimeout    = 10 * time.Second
	tlsTimeout      = 10 * time.Second // of a handshake, beside the bytes of others
	maxConsumers    = 64               // that nats object get makes
)

// Store is a node's own bucket on a server of its own. It begins empty, and nothing of it outlives Close. Its methods
// may be called by several goroutines.
type Store struct {
	bucket   string
	maxBytes int64
	dir      string
	server   *server.Server
	conn     *nats.Conn
	js       jetstream.JetStream
	stream   jetstream.Stream
	lent     lent
}

// Serve returns when receivers may dial. Whoever reaches the port may read, and publish nothing; but the server's
// answer to a get goes to whatever subject its reader names, the bucket's own included, and fills it then.
func Serve(ctx context.Context, config StoreConfig) (*Store, error) {
	if config.Bucket == "" {
		return nil, fmt.Errorf("shard store: Bucket: expected a name, got none")
	}
	if config.MaxBytes == 0 {
		config.MaxBytes = defaultMaxBytes
	}
	if config.Host == "" {
		config.Host = "127.0.0.1"
	}
	dir, err := emptyDir(config)
	if err != nil {
		return nil, fmt.Errorf("shard store: Dir: %w", err)
	}
	store := &Store{bucket: config.Bucket, maxBytes: config.MaxBytes, dir: dir, lent: lent{parts: map[string]*lentPart{}}}
	if err := store.start(ctx, config); err != nil {
		store.Close()
		return nil, fmt.Errorf("shard store on %s:%d: %w", config.Host, config.Port, err)
	}
	return store, nil
}

// emptyDir also removes what a process left that was killed. A store in memory has a few kilobytes of books on a disk;
// a container without one has shared memory.
func emptyDir(config StoreConfig) (string, error) {
	if config.Dir != "" {
		dir := filepath.Join(config.Dir, "shards")
		return dir, os.RemoveAll(dir)
	}
	parents := []string{os.TempDir(), sharedMemory}
	if config.Memory {
		slices.Reverse(parents)
	}
	var failures error
	for _, parent := range parents {
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
	writer := &server.User{Username: "writer", Password: rand.Text()}
	if s.server, err = server.NewServer(options(config, s.dir, writer)); err != nil {
		return err
	}
	if config.TLS != nil {
		s.server.SetLogger(refusals{bucket: config.Bucket}, true, false)
	}
	s.server.Start()
	if !s.server.ReadyForConnections(startTimeout) {
		return fmt.Errorf("expected it to accept connections within %v (is the port taken?)", startTimeout)
	}
	user := nats.UserInfo(writer.Username, writer.Password)
	deaf := nats.NoEcho() // to what it asks for itself: storeLent hears readers
	if s.conn, err = nats.Connect("", nats.InProcessServer(s.server), user, deaf, nats.Name("shards")); err != nil {
		return err
	}
	window := jetstream.WithPublishAsyncMaxPending(windowChunks)
	s.js, err = jetstream.New(s.conn, window, jetstream.WithPublishAsyncTimeout(ackTimeout))
	if err != nil {
		return err
	}
	if s.stream, err = s.js.CreateStream(ctx, streamOf(config)); err != nil {
		return err
	}
	if err := serveWarming(s.conn, s.bucket); err != nil {
		return err
	}
	return s.serveLent()
}

func options(config StoreConfig, dir string, writer *server.User) *server.Options {
	port := config.Port
	if port == 0 {
		port = server.RANDOM_PORT
	}
	reader := &server.User{Username: "reader", Permissions: readerPermissions(config.Bucket)}
	return &server.Options{
		ServerName: config.Bucket, Host: config.Host, Port: port,
		Users: []*server.User{writer, reader}, NoAuthUser: reader.Username,
		JetStream: true, StoreDir: dir,
		JetStreamMaxMemory: config.MaxBytes, JetStreamMaxStore: config.MaxBytes,
		MaxPayload: maxPayload, MaxPending: maxPending, StreamMaxBufferedSize: streamBuffer,
		TLSConfig: config.TLS, TLSVerify: config.TLS != nil, TLSHandshakeFirst: config.TLS != nil, TLSTimeout: tlsTimeout.Seconds(),
		WriteDeadline: writeDeadline, NoSigs: true, NoLog: true, DisableJetStreamBanner: true,
	}
}

// readerPermissions lets a receiver read one bucket: by direct gets, and by the consumers of the library's Get. Nobody
// outside writes.
func readerPermissions(bucket string) *server.Permissions {
	stream := streamName(bucket)
	return &server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{
			directSubject(bucket), directSubject(bucket) + ".>", warmSubject(bucket), lentSubject(bucket),
			"$JS.API.INFO", "$JS.API.STREAM.INFO." + stream,
			"$JS.API.CONSUMER.CREATE." + stream, "$JS.API.CONSUMER.CREATE." + stream + ".>",
			"$JS.API.CONSUMER.INFO." + stream + ".>", "$JS.API.CONSUMER.DELETE." + stream + ".>",
			"$JS.FC." + stream + ".>",
		}},
		Subscribe: &server.SubjectPermission{Allow: []string{inboxes + ">"}},
	}
}

// streamOf is the stream under the bucket, as the library makes it for an object store.
func streamOf(config StoreConfig) jetstream.StreamConfig {
	stream := jetstream.StreamConfig{
		Name:     streamName(config.Bucket),
		Subjects: []string{chunkSubject(config.Bucket, ">"), metaSubjects(config.Bucket)},
		Discard:  jetstream.DiscardNew, MaxBytes: config.MaxBytes, MaxConsumers: maxConsumers,
		AllowRollup: true, AllowDirect: true, PersistMode: jetstream.AsyncPersistMode,
	}
	if config.Memory {
		stream.Storage, stream.PersistMode = jetstream.MemoryStorage, jetstream.DefaultPersistMode
	}
	return stream
}

// URL returns where receivers dial.
func (s *Store) URL() string {
	address := s.server.Addr().(*net.TCPAddr)
	return "nats://" + net.JoinHostPort(address.IP.String(), strconv.Itoa(address.Port))
}

// Port returns the port on which receivers dial.
func (s *Store) Port() int { return s.server.Addr().(*net.TCPAddr).Port }

// Close ends the server and removes what it stored.
func (s *Store) Close() {
	if s.conn != nil {
		s.conn.Close()
	}
	if s.server != nil {
		s.server.Shutdown()
		s.server.WaitForShutdown()
	}
	if err := os.RemoveAll(s.dir); err != nil {
		slog.Warn("a shard store's files are left", "error", err)
	}
}
