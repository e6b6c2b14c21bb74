package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/reknit/reknit/services/agent/shards"
)

// storePort is where every node's store is dialled.
const storePort = 4222

// storesDir holds the stores of all nodes. A run removes what an earlier one left; there is one at a time.
var storesDir = filepath.Join(os.TempDir(), "reknit-bench-links")

// serveStore serves an empty store to the other nodes.
func serveStore(ctx context.Context, bucket string) (*shards.Store, error) {
	return shards.Serve(ctx, shards.StoreConfig{Bucket: bucket, Host: "0.0.0.0", Port: storePort, Dir: filepath.Join(storesDir, bucket)})
}

// fetching is a transfer that runs, and has nothing to fetch yet.
type fetching struct {
	*shards.Transfer
	ended chan error
}

// connectPause is how often it is looked whether all sources are there.
const connectPause = 5 * time.Millisecond

// connect returns when all sources are connected: a node that joins connects while the others train.
func connect(ctx context.Context, sources []source) (*fetching, error) {
	var dialled []shards.Source
	for _, from := range sources {
		dialled = append(dialled, shards.Source{
			Name: from.Bucket, URL: "nats://" + from.Address, Bucket: from.Bucket, BytesPerSecond: from.BytesPerSecond,
		})
	}
	transfer, err := shards.NewTransfer(dialled, 0)
	if err != nil {
		return nil, err
	}
	f := &fetching{transfer, make(chan error, 1)}
	go func() { f.ended <- transfer.Run(ctx) }()
	for !f.connected() {
		select {
		case err := <-f.ended:
			return nil, errors.Join(errors.New("ended before all sources were connected"), err)
		case <-time.After(connectPause):
		}
	}
	return f, nil
}

func (f *fetching) connected() bool {
	for _, source := range f.Progress().Sources {
		if source.State == shards.Away {
			return false
		}
	}
	return true
}

// fetch brings parts of the state, and ends the transfer.
func (f *fetching) fetch(parts []shards.Part, state []byte) error {
	if err := f.Add(shards.Layer{Into: state, Parts: parts}); err != nil {
		return err
	}
	f.Seal()
	return <-f.ended
}
