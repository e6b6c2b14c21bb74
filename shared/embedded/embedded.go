// Package embedded runs a NATS server with JetStream inside the process.
package embedded

import (
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Config says where the server keeps its data and where it listens.
type Config struct {
	StoreDir   string       // of JetStream; nothing outlives the process without the same directory
	Host       string       // default 127.0.0.1
	Port       int          // 0 takes any free one
	SyncAlways bool         // an acknowledged event is on the disk, not only in the page cache: costs 0.2 to 5 ms an event
	Warns      func(string) // hears what the server warns of, as of a store that is torn; nil: nobody does
	StoreBytes int64        // default 1 TiB, for 56 clusters: the streams and buckets of each reserve under 18 GiB, whatever they hold
	File       string       // of NATS' own configuration: who may connect, by which certificates; empty: anybody may
}

// Limits of the server. A connection that reads two objects at a time needs more than the default 64 MiB of pending
// bytes, else it is cut as a slow consumer.
const (
	defaultStoreBytes = 1 << 40
	mostConsumers     = 1 << 16 // of a stream: each node has one, and 1,000 is what a server takes by default
	memoryBytes       = 4 << 30 // each cluster reserves 64 MiB
	maxPayload        = 8 << 20
	maxPending        = 512 << 20
	streamBuffer      = 256 << 20
	writeDeadline     = 60 * time.Second
	startTimeout      = 10 * time.Second
)

// Server is a running server.
type Server struct{ server *server.Server }

// Start returns when the server accepts connections.
func Start(config Config) (*Server, error) {
	port := config.Port
	if port == 0 {
		port = server.RANDOM_PORT
	}
	if config.StoreBytes == 0 {
		config.StoreBytes = defaultStoreBytes
	}
	if config.Host == "" {
		config.Host = "127.0.0.1"
	}
	options := &server.Options{MaxPayload: maxPayload, MaxPending: maxPending, WriteDeadline: writeDeadline}
	var err error
	if config.File != "" {
		if options, err = server.ProcessConfigFile(config.File); err != nil {
			return nil, fmt.Errorf("embedded NATS server: %w", err)
		}
		options.HTTPPort = 0 // its monitoring asks nobody who they are
	}
	options.ServerName, options.Host, options.Port = "reknit", config.Host, port
	options.JetStream, options.StoreDir, options.SyncAlways = true, config.StoreDir, options.SyncAlways || config.SyncAlways
	options.JetStreamMaxMemory, options.JetStreamMaxStore, options.StreamMaxBufferedSize = memoryBytes, config.StoreBytes, streamBuffer
	options.JetStreamLimits.DefaultMaxConsumers = mostConsumers
	options.NoSigs, options.NoLog, options.DisableJetStreamBanner = true, true, true
	s, err := server.NewServer(options)
	if err != nil {
		return nil, fmt.Errorf("embedded NATS server: %w", err)
	}
	if config.Warns != nil {
		s.SetLogger(warner{config.Warns}, false, false)
	}
	s.Start()
	if !s.ReadyForConnections(startTimeout) {
		s.Shutdown()
		return nil, fmt.Errorf("embedded NATS server on %s:%d: expected it to accept connections within %v (is the port taken?)",
			config.Host, config.Port, startTimeout)
	}
	return &Server{s}, nil
}

// URL returns where clients connect.
func (s *Server) URL() string { return s.server.ClientURL() }

// Shutdown ends the server and returns when its files are closed.
func (s *Server) Shutdown() {
	s.server.Shutdown()
	s.server.WaitForShutdown()
}
