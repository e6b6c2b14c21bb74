package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/shards"
	"github.com/reknit/reknit/shared/embedded"
	"github.com/reknit/reknit/tests/bench/figures"
)

const (
	storeBucket = "shards-bench"
	hubBucket   = "shards"
	partBytes   = 8 << 20
)

// served is what the other process says at its start.
type served struct {
	Store, Hub, TCP string   // where it listens
	Secured         string   // a store like the first, over TLS; empty where there are no kits
	Whole           string   // digest of the object as one
	Parts           []string // digests of its parts
}

// answer serves an object by a shard store and by plain TCP, and a hub to put into, until its input ends. Each line of
// input is answered with the CPU seconds spent so far.
func answer(ctx context.Context, size int, memory bool, kits string) (err error) {
	data := content(size)
	says := served{Whole: events.Digest(data)}
	for part := range slices.Chunk(data, partBytes) {
		says.Parts = append(says.Parts, events.Digest(part))
	}
	store, err := says.store(ctx, data, shards.StoreConfig{Memory: memory})
	if err != nil {
		return err
	}
	defer store.Close()
	says.Store = store.URL()
	if kits != "" {
		secured, err := says.secured(ctx, data, memory, kits)
		if err != nil {
			return err
		}
		defer secured.Close()
		says.Secured = secured.URL()
	}
	dir, err := os.MkdirTemp("", "reknit-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	hub, err := serveHub(ctx, dir, memory)
	if err != nil {
		return err
	}
	defer hub.Shutdown()
	says.Hub = hub.URL()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	says.TCP = listener.Addr().String()
	go serveTCP(listener, data)
	if err := json.NewEncoder(os.Stdout).Encode(says); err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(figures.Spent().Seconds())
	}
	return nil
}

// store serves the object, as one and in parts.
func (s *served) store(ctx context.Context, data []byte, config shards.StoreConfig) (*shards.Store, error) {
	config.Bucket, config.MaxBytes = storeBucket, 4<<30
	store, err := shards.Serve(ctx, config)
	if err != nil {
		return nil, err
	}
	err = store.PutAs(ctx, s.Whole, data)
	for i, digest := range s.Parts {
		if err == nil {
			err = store.PutAs(ctx, digest, data[i*partBytes:min((i+1)*partBytes, len(data))])
		}
	}
	return store, err
}

func content(size int) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data) // never fails
	return data
}

func serveHub(ctx context.Context, dir string, memory bool) (*embedded.Server, error) {
	hub, err := embedded.Start(embedded.Config{StoreDir: dir})
	if err != nil {
		return nil, err
	}
	conn, err := nats.Connect(hub.URL())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	config := jetstream.ObjectStoreConfig{Bucket: hubBucket, MaxBytes: 4 << 30}
	if memory {
		config.Storage, config.MaxBytes = jetstream.MemoryStorage, 200<<20
	}
	_, err = js.CreateObjectStore(ctx, config)
	return hub, err
}

// serveTCP sends the object to whoever writes a g, and takes as many bytes from whoever writes a p.
func serveTCP(listener net.Listener, data []byte) {
	into := make([]byte, len(data))
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		wish := make([]byte, 1)
		if _, err := io.ReadFull(conn, wish); err == nil && wish[0] == 'g' {
			_, _ = conn.Write(data) // the other side reports what is missing
		} else if _, err := io.ReadFull(conn, into); err == nil {
			_, _ = conn.Write(wish)
		}
		conn.Close()
	}
}

// other is the process that serves.
type other struct {
	served
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

func start(size int, memory bool, kits string) (*other, error) {
	kind := "file"
	if memory {
		kind = "memory"
	}
	command := exec.Command(os.Args[0], "-serve", kind, "-bytes", strconv.Itoa(size), "-kits", kits)
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	o := &other{command: command, in: in, out: bufio.NewReader(out)}
	line, err := o.out.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("the other process: %w", err)
	}
	return o, json.Unmarshal(line, &o.served)
}

func (o *other) stop() error {
	o.in.Close()
	return o.command.Wait()
}

// spent is the CPU time of the other process so far, in seconds.
func (o *other) spent() (float64, error) {
	if _, err := fmt.Fprintln(o.in); err != nil {
		return 0, err
	}
	line, err := o.out.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(line[:len(line)-1], 64)
}
