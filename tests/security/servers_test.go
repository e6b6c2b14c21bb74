package security

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/doctor"
	"github.com/reknit/reknit/shared/bus"
)

// hosts are three servers and the server of a site, each an address of its own on this machine.
var hosts, site = []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}, "127.0.0.4"

// spread is a secured installation of three servers, and of a site whose nodes reach them through a server of its own.
type spread struct {
	*place
	ports   map[string]int // what is configured to what is free
	servers []*server.Server
}

func openSpread(t *testing.T) *spread {
	t.Helper()
	return openSpreadOf(t, "n3")
}

// openSpreadOf starts one whose site has these nodes.
func openSpreadOf(t *testing.T, nodes ...string) *spread {
	t.Helper()
	s := &spread{place: &place{T: t, dir: t.TempDir()}, ports: map[string]int{}}
	for _, port := range []int{4222, 6222, 7422} {
		s.ports[fmt.Sprint(port)] = freeEverywhere(t)
	}
	alpha, beta := optionsOf("alpha", "n1", "n2"), optionsOf("beta", nodes...)
	alpha.Servers, alpha.Port, beta.Leaf = hosts, s.ports["4222"], site
	s.provision(alpha)
	s.provision(beta)
	for _, host := range append(hosts, site) {
		s.servers = append(s.servers, s.start(host, "nats.conf"))
	}
	s.site = fmt.Sprint("nats://", site, ":", alpha.Port)
	s.url = "nats://" + strings.Join(hosts, fmt.Sprintf(":%d,nats://", alpha.Port)) + fmt.Sprint(":", alpha.Port)
	return s
}

// tried is the last port that was looked at, of those below what the kernel hands out: no connection takes it before its server does.
var tried atomic.Int32

// freeEverywhere returns a port that all hosts have free, each time another one.
func freeEverywhere(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 10_000 + (31*os.Getpid()+int(tried.Add(1)))%20_000
		free := true
		for _, host := range append(hosts, site) {
			listener, err := net.Listen("tcp", fmt.Sprint(host, ":", port))
			if errors.Is(err, syscall.EADDRNOTAVAIL) {
				t.Skipf("this system has one loopback address, and not all of 127.0.0.0/8: %v", err)
			}
			if free = free && err == nil; err == nil {
				listener.Close()
			}
		}
		if free {
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// start runs a server as it was provisioned, on ports that are free here.
func (s *spread) start(host, configuration string) *server.Server {
	s.Helper()
	options, err := server.ProcessConfigFile(filepath.Join(s.dir, "server", host, configuration))
	if err != nil {
		s.Fatal(err)
	}
	options.Host, options.HTTPPort, options.NoSigs = host, 0, true
	if options.Cluster.Port > 0 {
		options.Cluster.Host, options.Cluster.Port, options.Cluster.Advertise = host, s.ports["6222"], ""
		s.readdress(options.Routes)
	}
	if options.LeafNode.Port > 0 {
		options.LeafNode.Host, options.LeafNode.Port, options.LeafNode.Advertise = host, s.ports["7422"], ""
	}
	for _, remote := range options.LeafNode.Remotes {
		s.readdress(remote.URLs)
	}
	started, err := server.NewServer(options)
	if err != nil {
		s.Fatal(err)
	}
	if os.Getenv("NATS_LOG") != "" {
		options.Debug = true
		started.ConfigureLogger()
	}
	started.Start()
	s.Cleanup(func() { started.Shutdown(); started.WaitForShutdown() })
	return started
}

func (s *spread) readdress(urls []*url.URL) {
	for _, one := range urls {
		one.Host = net.JoinHostPort(one.Hostname(), fmt.Sprint(s.ports[one.Port()]))
	}
}

// TestASiteTrainsThroughItsOwnServerAndThreeOthersKeepTheLog has two nodes that know the three servers train with one of another institution that
// knows nothing but the server of its site, while the log is on all three.
func TestASiteTrainsThroughItsOwnServerAndThreeOthersKeepTheLog(t *testing.T) {
	s := openSpread(t)
	trainTogether(s.place)
	stream, err := s.connect("negotiator").JetStream().Stream(t.Context(), events.Lane(cluster, events.EventStream.Name))
	if err != nil || stream.CachedInfo().Config.Replicas != len(hosts) {
		t.Errorf("expected the log on %d servers: %v", len(hosts), err)
	}
}

// TestAKitMakesNoServer has somebody with the kit of a node, which TLS believes wherever clients connect, try to become one
// of the servers, who may say and hear everything, and the server of a site, who may speak for its nodes.
func TestAKitMakesNoServer(t *testing.T) {
	t.Parallel()
	s := openSpread(t)
	s.awaitLeaves(1) // before the site's server finds a kit in place of its own files
	kit, server := s.kit("n1"), filepath.Join(s.dir, "server", hosts[1])
	if err := s.route(filepath.Join(server, "route-certificate.pem"), filepath.Join(server, "route-key.pem")); err != nil {
		t.Errorf("a server's certificate does not pass for a server's: %v", err)
	}
	err := s.route(filepath.Join(kit, bus.CertificateFile), filepath.Join(kit, bus.KeyFile))
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a node's certificate passes for a server's: %v", err)
	}
	for _, file := range []string{bus.CredentialsFile, bus.CertificateFile, bus.KeyFile} {
		text, err := os.ReadFile(filepath.Join(kit, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(s.dir, "server", site, file), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s.servers[len(hosts)].Shutdown()
	s.awaitLeaves(0)
	s.start(site, "nats.conf")
	for range 30 {
		time.Sleep(100 * time.Millisecond) // it tries each second
		if s.leaves() > 0 {
			t.Fatal("a node's token passes for that of a site's server")
		}
	}
}

// route shows a certificate where servers connect to the first, and waits until it is greeted or refused.
func (s *spread) route(certificateFile, keyFile string) error {
	s.Helper()
	certificate, err := tls.LoadX509KeyPair(certificateFile, keyFile)
	if err != nil {
		s.Fatal(err)
	}
	conn, err := net.Dial("tcp", fmt.Sprint(hosts[0], ":", s.ports["6222"]))
	if err != nil {
		s.Fatal(err)
	}
	defer conn.Close()
	client := tls.Client(conn, &tls.Config{Certificates: []tls.Certificate{certificate}, InsecureSkipVerify: true})
	_, err = client.Read(make([]byte, 1)) // in TLS 1.3 a server refuses a certificate after the handshake
	return err
}

// awaitLeaves waits until so many servers of sites are connected.
func (s *spread) awaitLeaves(count int) {
	s.Helper()
	for end := time.Now().Add(time.Minute); s.leaves() != count; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("expected %d servers of sites, got %d", count, s.leaves())
		}
	}
}

// leaves is how many servers of sites are connected to the three.
func (s *spread) leaves() (count int) {
	for _, server := range s.servers[:len(hosts)] {
		count += server.NumLeafNodes()
	}
	return count
}

// Each command of an admin took up to eight seconds: the last request of those before passed for readers.
func TestOneReadsAfterTheOtherWithOneKitAndNobodyWaits(t *testing.T) {
	s := openSpread(t)
	prepareStreams(s.place)
	s.suspect(5)
	log := listenToTheLog(t)
	for range 2 * events.MostReaders {
		b, heard := s.connect("user"), 0
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		err := b.Read(ctx, events.EventStream, events.EventStream.Subjects(cluster), 0, 5, func(events.Event) { heard++ })
		cancel()
		b.Close()
		if err != nil || heard != 5 {
			t.Errorf("read %d of 5 facts: %v", heard, err)
		}
	}
	// One may not hear in time who reads; the second half of them waited, each, where those before passed for readers.
	if waited := log.count("they take turns"); waited >= events.MostReaders/2 {
		t.Errorf("%d of %d waited for those before, who are done", waited, 2*events.MostReaders)
	}
}

// It took a server that answers for missing permissions.
func TestTheDoctorSaysThatTooFewServersAreThere(t *testing.T) {
	s := openSpread(t)
	prepareStreams(s.place)
	t.Setenv("REKNIT_NATS_URL", fmt.Sprint("nats://", hosts[0], ":", s.ports["4222"]))
	t.Setenv("REKNIT_CLUSTER", cluster)
	t.Setenv("REKNIT_NATS_KIT", s.kit("user"))
	for _, other := range s.servers[1:len(hosts)] {
		other.Shutdown()
	}
	var said strings.Builder
	isRight := func() bool {
		return strings.Contains(said.String(), "start the servers that are away: two of three are needed") &&
			!strings.Contains(said.String(), "give this user") && !strings.Contains(said.String(), "may ask")
	}
	for end := time.Now().Add(time.Minute); !isRight() && time.Now().Before(end); {
		said.Reset() // till the server has noticed
		time.Sleep(200 * time.Millisecond)
		command := doctor.Command()
		command.SetArgs([]string{})
		command.SetOut(&said)
		_ = command.ExecuteContext(t.Context())
	}
	if !isRight() {
		t.Errorf("expected that servers are to be started, and nothing of permissions, in\n%s", &said)
	}
}
