package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/reknit/reknit/services/agent/shards"
)

// storePort is where every node's store is dialled.
const storePort = 4222

// storesDir holds the stores of all nodes. A run removes what an earlier one left; there is one at a time.
var storesDir = filepath.Join(os.TempDir(), "reknit-bench-links")

// serveStore serves an empty store to the other nodes.
func serveStore(ctx context.Context, bucket string) (*shards.Store, error) {
	dir := filepath.Join(storesDir, bucket)
	return shards.Serve(ctx, shards.StoreConfig{Bucket: bucket, Host: "0.0.0.0", Port: storePort, Dir: dir})
}

// dialled are sources as a transfer knows them.
func dialled(sources []source) []shards.Source {
	var dialled []shards.Source
	for _, from := range sources {
		dialled = append(dialled, shards.Source{
			Name: from.Bucket, URL: "nats://" + from.Address, Bucket: from.Bucket, BytesPerSecond: from.BytesPerSecond,
		})
	}
	return dialled
}
