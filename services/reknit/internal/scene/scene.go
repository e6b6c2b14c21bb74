// Package scene is what tests of commands stand on: a server of their own, on which a cluster is provisioned.
package scene

import (
	"testing"

	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
)

// Begin starts a server that ends with the test, provisions a cluster, and returns a bus of it and the server's URL.
func Begin(t *testing.T, cluster string) (b *bus.Bus, url string) {
	t.Helper()
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	if b, err = bus.Connect(t.Context(), bus.Config{URL: server.URL(), Name: "test", Cluster: cluster}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if err := b.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b, server.URL()
}
