package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/shards"
	"github.com/reknit/reknit/shared/embedded"
	"github.com/reknit/reknit/tests/nodes"
)

// node is a process of the cluster: a source and its store, or the destination.
type node struct {
	ctx  context.Context // of the process
	name string          // of the node and of its bucket
	put  nodes.Put       // into its store
	open jetstream.ObjectStore

	mutex    sync.Mutex
	transfer *nodes.Transfer // that runs, or the last one
}

// serveNode is the main function of a node.
func serveNode(name string) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM) // meant for the test, which ends us
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	return nodes.Serve(&node{ctx: ctx, name: name}, cancel)
}

// Store says what a source serves.
type Store struct {
	Bucket, Dir string
	Open        bool // whoever reaches it may write: the hub's store, or a neighbour's that is not ours
}

// Serve serves an empty store.
func (n *node) Serve(config Store, _ *struct{}) error {
	if config.Open {
		return n.serveOpen(config)
	}
	store, err := shards.Serve(n.ctx, shards.StoreConfig{
		Bucket: config.Bucket, Host: "0.0.0.0", Port: storePort, Dir: config.Dir,
	})
	if err != nil {
		return err
	}
	n.put = func(_ context.Context, digest string, part []byte) error {
		store.Offer(digest, slices.Clone(part))
		return nil
	}
	return nil
}

func (n *node) serveOpen(config Store) error {
	server, err := embedded.Start(embedded.Config{StoreDir: config.Dir, Host: "0.0.0.0", Port: storePort})
	if err != nil {
		return err
	}
	conn, err := nats.Connect(server.URL())
	if err != nil {
		return err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	n.put = n.putOpen
	n.open, err = js.CreateObjectStore(n.ctx, jetstream.ObjectStoreConfig{Bucket: config.Bucket})
	return err
}

// putOpen stores a part as the library does, in chunks of the size that shared/bus asks it for.
func (n *node) putOpen(ctx context.Context, digest string, part []byte) error {
	meta := jetstream.ObjectMeta{Name: digest, Opts: &jetstream.ObjectMetaOptions{ChunkSize: chunkBytes}}
	_, err := n.open.Put(ctx, meta, bytes.NewReader(part))
	return err
}

// Hold makes the state and stores it, and answers with its parts.
func (n *node) Hold(state nodes.State, parts *[]shards.Part) (err error) {
	*parts, err = state.Hold(n.ctx, n.put)
	return err
}

// Flip stores parts of an open store anew under their names, with one bit flipped in each.
func (n *node) Flip(_ struct{}, flipped *int) error {
	listed, err := n.open.List(n.ctx)
	for _, object := range listed {
		data, err := n.open.GetBytes(n.ctx, object.Name)
		if err != nil {
			return err
		}
		data[len(data)/2] ^= 1
		if err := n.putOpen(n.ctx, object.Name, data); err != nil {
			return err
		}
		*flipped++
	}
	return err
}

// Occupy has readers of this node's store want parts that they never take: two fill the window of a store, where they are two nodes'.
func (n *node) Occupy(parts []shards.Part, _ *struct{}) error {
	for host := range 2 {
		from := nats.Dialer(&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+host))}})
		reader, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", storePort), append(shards.ReaderOptions(), from)...)
		if err != nil {
			return err
		}
		for _, part := range parts {
			if err := reader.Publish("shards.want."+n.name, []byte(part.Digest)); err != nil {
				return err
			}
		}
		if err := reader.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// Job is parts of the state, and where they are to be had.
type Job struct {
	Sources []shards.Source
	Parts   []shards.Part
	Bytes   int64 // of the state
}

// Fetched is how a job went.
type Fetched struct {
	Digest   string // of all bytes
	Gap      float64
	Progress shards.Progress
}

// Fetch connects to all sources of a job, and then fetches its parts.
func (n *node) Fetch(job Job, fetched *Fetched) error {
	loaded := make([]byte, job.Bytes)
	transfer, err := nodes.Connect(n.ctx, job.Sources)
	if err != nil {
		return err
	}
	n.mutex.Lock()
	n.transfer = transfer
	n.mutex.Unlock()
	gap := watch(transfer)
	if err := transfer.Fetch(shards.Layer{Into: loaded, Parts: job.Parts}); err != nil {
		return err
	}
	*fetched = Fetched{events.Digest(loaded), gap().Seconds(), transfer.Progress()}
	return nil
}

// Progress tells how far the transfer is.
func (n *node) Progress(_ struct{}, progress *shards.Progress) error {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.transfer != nil {
		*progress = n.transfer.Progress()
	}
	return nil
}

// lookEvery is how often it is looked how far a transfer is.
const lookEvery = 5 * time.Millisecond

// watch returns a function that ends the watching and tells the longest time, from the first byte on, in which none
// came.
func watch(transfer *nodes.Transfer) func() time.Duration {
	stop, longest := make(chan struct{}), make(chan time.Duration)
	go func() {
		gap, had, since := time.Duration(0), int64(0), time.Now()
		for {
			progress := transfer.Progress()
			if bytes := came(progress); bytes == 0 || bytes > had || progress.Done == progress.Total {
				had, since = bytes, time.Now()
			}
			gap = max(gap, time.Since(since))
			select {
			case <-time.After(lookEvery):
			case <-stop:
				longest <- gap
				return
			}
		}
	}()
	return func() time.Duration { close(stop); return <-longest }
}
