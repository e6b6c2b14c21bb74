package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/services/agent/mtls"
	"github.com/reknit/reknit/services/agent/shards"
	"github.com/reknit/reknit/services/reknit/provision"
	"github.com/reknit/reknit/shared/bus"
)

// Every node's stores are dialled at these ports: one takes whoever comes, the other who has a certificate.
const storePort, securedPort = 4222, 4223

// storesDir holds the stores of all nodes and their kits. A run removes what an earlier one left; there is one at a time.
var storesDir = filepath.Join(os.TempDir(), "reknit-bench-links")

const institution = "bench"

func kitOf(bucket string) string {
	return filepath.Join(storesDir, "kits", "institutions", institution, bucket)
}

// provisionKits writes a kit for every process of a cluster.
func provisionKits() error {
	options := provision.Options{Dir: filepath.Join(storesDir, "kits"), Institution: institution}
	for number := range mostNeighbours + 2 {
		options.Nodes = append(options.Nodes, bucket(number))
	}
	return provision.Security(options)
}

// serveStore serves an empty store to the other nodes.
func serveStore(ctx context.Context, bucket string, port int, identity *mtls.Identity) (*shards.Store, error) {
	dir := filepath.Join(storesDir, bucket, strconv.Itoa(port))
	return shards.Serve(ctx, shards.StoreConfig{Bucket: bucket, Host: "0.0.0.0", Port: port, Dir: dir, Identity: identity})
}

// dialled are sources as a transfer of the node knows them.
func (n *node) dialled(sources []source) ([]shards.Source, error) {
	var dialled []shards.Source
	for _, from := range sources {
		source := shards.Source{Name: from.Bucket, Bucket: from.Bucket, BytesPerSecond: from.BytesPerSecond}
		port := storePort
		if from.Secured {
			port = securedPort
			there, err := bus.ReadIdentity(kitOf(from.Bucket))
			if err != nil {
				return nil, err
			}
			source.Options = func() []nats.Option { return n.identity.Options(there.Key) }
		}
		source.URL = "nats://" + net.JoinHostPort(from.Address, strconv.Itoa(port))
		dialled = append(dialled, source)
	}
	return dialled, nil
}
