package security

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/reknit/reknit/services/reknit/provision"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/tests/services"
)

const cluster = "opticks"

// place is a secured installation: two institutions, with two nodes and one, on a real server that runs the configuration
// as it was provisioned.
type place struct {
	*testing.T
	dir, url string
	site     string // URL of the server that n3 connects to; empty where that is the one of all
	server   *server.Server
}

func open(t *testing.T) *place {
	t.Helper()
	p := &place{T: t, dir: t.TempDir()}
	p.provision(optionsOf("alpha", "n1", "n2"))
	p.provision(optionsOf("beta", "n3"))
	options, err := server.ProcessConfigFile(filepath.Join(p.dir, "server", "nats.conf"))
	if err != nil {
		t.Fatal(err)
	}
	options.Host, options.Port, options.HTTPPort, options.NoSigs = "127.0.0.1", server.RANDOM_PORT, 0, true
	if p.server, err = server.NewServer(options); err != nil {
		t.Fatal(err)
	}
	if testing.Verbose() && os.Getenv("NATS_LOG") != "" {
		p.server.ConfigureLogger()
	}
	p.server.Start()
	if !p.server.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server takes no connection")
	}
	t.Cleanup(func() { p.server.Shutdown(); p.server.WaitForShutdown() })
	p.url = p.server.ClientURL()
	return p
}

func optionsOf(institution string, nodes ...string) provision.Options {
	return provision.Options{Institution: institution, Nodes: nodes}
}

func (p *place) provision(options provision.Options) {
	p.Helper()
	options.Dir, options.Cluster, options.Absolute = p.dir, cluster, true // who changes to the server's folder runs beside nobody
	if err := provision.Security(options); err != nil {
		p.Fatal(err)
	}
}

// admit lists all nodes that have a kit in the policy of who may join.
func (p *place) admit() {
	p.Helper()
	if err := provision.Admission(provision.AdmissionOptions{Dir: p.dir}); err != nil {
		p.Fatal(err)
	}
}

// services runs the services by their kits. All who have a kit may join, and the first plan waits for two.
func (p *place) services() {
	p.Helper()
	p.admit()
	services.RunWith(p.T, p.url, cluster, 2, func(service string) map[string]string {
		return map[string]string{"REKNIT_NATS_KIT": p.kit(service)}
	})
}

// kit returns the folder of who connects.
func (p *place) kit(name string) string {
	for _, institution := range []string{"alpha", "beta"} {
		if folder := filepath.Join(p.dir, "institutions", institution, name); exists(folder) {
			return folder
		}
	}
	return filepath.Join(p.dir, "services", name)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// key returns the public key of who connects, which is a node's id.
func (p *place) key(name string) string {
	p.Helper()
	return identity(p.T, p.kit(name)).Key
}

func identity(t *testing.T, folder string) bus.Identity {
	t.Helper()
	identity, err := bus.ReadIdentity(folder)
	if err != nil {
		t.Fatal(err)
	}
	return identity
}

func (p *place) connect(name string) *bus.Bus {
	p.Helper()
	return p.connectAt(p.url, name)
}

func (p *place) connectAt(url, name string) *bus.Bus {
	p.Helper()
	return p.connectWith(url, p.kit(name))
}

// connectWith connects with a kit, whoever has it.
func (p *place) connectWith(url, kit string) *bus.Bus {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), waits)
	defer cancel()
	b, err := bus.Connect(ctx, bus.Config{URL: url, Name: identity(p.T, kit).Key, Cluster: cluster, Kit: kit})
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(b.Close)
	return b
}
