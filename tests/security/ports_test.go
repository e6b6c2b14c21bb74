package security

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/links"
	"github.com/reknit/reknit/services/agent/mtls"
	"github.com/reknit/reknit/services/agent/shards"
	"github.com/reknit/reknit/shared/bus"
)

// stranger is who opens a connection to a node, or takes one: with a certificate, or without TLS where there is no
// configuration.
type stranger struct {
	what   string
	as     string // the node that he says he is
	config *tls.Config
	told   []string // words of the reason for which he is refused
}

// certificate returns that of a kit.
func certificate(t *testing.T, kit string) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(kit, bus.CertificateFile), filepath.Join(kit, bus.KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// everybody lets in whoever is a node, as a plan would that names all.
func everybody(string) bool { return true }

// signed returns a certificate for a node that an installation's authority signed, and that is good until then.
func (p *place) signed(node string, until time.Time) tls.Certificate {
	p.Helper()
	authority, err := tls.LoadX509KeyPair(filepath.Join(p.dir, "operator", "ca.pem"), filepath.Join(p.dir, "operator", "ca-key.pem"))
	if err != nil {
		p.Fatal(err)
	}
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: node}, DNSNames: []string{node},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, URIs: []*url.URL{mtls.NodeRole},
	}
	signer := must(x509.ParseCertificate(authority.Certificate[0]))
	der := must(x509.CreateCertificate(rand.Reader, template, signer, key.Public(), authority.PrivateKey))
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyText := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(key))})
	return must(tls.X509KeyPair(text, keyText))
}

// with returns how to connect, or to serve, with a certificate whatever the other end shows.
func with(pair tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
}

func old(config *tls.Config) *tls.Config {
	config.MaxVersion = tls.VersionTLS12
	return config
}

// strangersTo are those who say that they are the node n2, to whom n1 is to say no.
func (p *place) strangersTo() []stranger {
	other := &place{T: p.T, dir: p.TempDir()}
	other.provision(optionsOf("alpha"))
	n2 := p.key("n2")
	return []stranger{
		{"plain text", n2, nil, []string{"first record does not look like a TLS handshake"}},
		{"no certificate", n2, &tls.Config{InsecureSkipVerify: true}, []string{"client didn't provide a certificate"}},
		{"a certificate of another authority", n2, with(other.signed(n2, time.Now().Add(time.Hour))), []string{"unknown authority"}},
		{"an expired certificate", n2, with(p.signed(n2, time.Now().Add(-time.Minute))), []string{"expired"}},
		{"TLS 1.2", n2, old(with(certificate(p.T, p.kit("n2")))), []string{"client offered only unsupported versions"}},
	}
}

// speak opens a connection as a stranger does, says hello and returns whether a probe was answered.
func (s stranger) speak(t *testing.T, address string) bool {
	t.Helper()
	connection, err := net.DialTimeout("tcp", address, waits)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(waits))
	if s.config != nil {
		connection = tls.Client(connection, s.config)
	}
	hello := links.Hello{Cluster: cluster, Node: s.as, Probe: true}
	if _, err := connection.Write(append(hello.Bytes(), 0, 0, 0, 0)); err != nil {
		return false
	}
	read, err := connection.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: not refused, and not answered", s.what)
	}
	return err == nil && read == 1
}

// asksAStore opens a connection as a stranger does, and returns whether the store's server lets it in.
func (s stranger) asksAStore(t *testing.T, address string) bool {
	t.Helper()
	connection, err := net.DialTimeout("tcp", address, waits)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(waits))
	if s.config != nil {
		connection = tls.Client(connection, s.config)
	}
	if _, err := fmt.Fprint(connection, "CONNECT {\"verbose\":false}\r\nPING\r\n"); err != nil {
		return false
	}
	for reader := bufio.NewReader(connection); ; {
		line, err := reader.ReadString('\n')
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: not refused, and not answered", s.what)
		}
		if err != nil || strings.HasPrefix(line, "-ERR") {
			return false
		}
		if strings.HasPrefix(line, "PONG") {
			return true
		}
	}
}

// refuses has all strangers come to a port, and then who may: so the test can fail.
func (p *place) refuses(name string, strangers []stranger, may stranger, comes func(stranger) bool) {
	p.Helper()
	log := listenToTheLog(p.T)
	for _, s := range strangers {
		log.forget()
		if comes(s) {
			p.Errorf("%s: answers who comes with %s", name, s.what)
		}
		if !log.isTold(s.told) {
			p.Errorf("%s: %s: no reason with %q in the log: %s", name, s.what, s.told, log.text.String())
		}
	}
	if !comes(may) {
		p.Errorf("%s: refuses who comes with %s", name, may.what)
	}
}

// plane is a trainer of a secured installation that waits for a plan.
func (p *place) plane(name string) (data, store string) {
	p.Helper()
	data, store = freePort(p.T), freePort(p.T)
	_, port, _ := net.SplitHostPort(store)
	text := filepath.Join(p.TempDir(), "text")
	if err := os.WriteFile(text, []byte(prose), 0o600); err != nil {
		p.Fatal(err)
	}
	p.train(p.Context(), name, text, map[string]string{"REKNIT_TRAINER_LISTEN": data, "REKNIT_TRAINER_SHARD_PORT": port}, make(chan error, 1))
	for _, address := range []string{data, store} {
		for deadline := time.Now().Add(waits); ; time.Sleep(10 * time.Millisecond) {
			connection, err := net.Dial("tcp", address)
			if err == nil {
				connection.Close()
				break
			}
			if time.Now().After(deadline) {
				p.Fatal(err)
			}
		}
	}
	return data, store
}

func freePort(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// noNodes come with certificates of the installation that are no node's, in their own names. So its hub might, or who has the services' keys.
func (p *place) noNodes() []stranger {
	monitor := p.key("monitor")
	return []stranger{
		{"a service's certificate", monitor, with(certificate(p.T, p.kit("monitor"))), []string{"of a node", monitor}},
		{"the hub's certificate", "localhost", with(tlsOfServer(p)), []string{"of a node", "NATS"}},
	}
}

// TestANodeAnswersNobodyWhoDoesNotProveWhoHeIs has strangers come to all ports of a node.
func TestANodeAnswersNobodyWhoDoesNotProveWhoHeIs(t *testing.T) {
	p := open(t)
	n2, own := p.key("n2"), with(certificate(t, p.kit("n2")))
	strangers := append(p.strangersTo(), p.noNodes()...)
	another := stranger{"another node's certificate", n2, with(certificate(t, p.kit("n3"))), []string{n2, p.key("n3")}}
	watch := p.watch("n1")
	p.refuses("links", append(strangers, another), stranger{"its own certificate", n2, own, nil},
		func(s stranger) bool { return s.speak(t, watch.Address()) })
	prepareStreams(p)
	data, store := p.plane("n1")
	itself := stranger{"its own certificate", p.key("n1"), with(certificate(t, p.kit("n1"))), nil}
	strangers = append(strangers, stranger{"the certificate of a node that is in no plan", n2, own, []string{"of the plan in force", n2}})
	p.refuses("data plane", append(strangers, another), itself, func(s stranger) bool { return s.speak(t, data) })
	p.refuses("shard store", strangers, itself, func(s stranger) bool { return s.asksAStore(t, store) })
}

func tlsOfServer(p *place) tls.Certificate {
	return must(tls.LoadX509KeyPair(filepath.Join(p.dir, "server", "certificate.pem"), filepath.Join(p.dir, "server", "key.pem")))
}

// prepareStreams makes what a node looks for before it asks for a place.
func prepareStreams(p *place) {
	if err := p.connect("negotiator").Provision(p.Context()); err != nil {
		p.Fatal(err)
	}
}

func (p *place) identity(name string) *mtls.Identity {
	p.Helper()
	identity, err := mtls.Open(p.kit(name))
	if err != nil {
		p.Fatal(err)
	}
	identity.Admit(everybody)
	return identity
}

func (p *place) watch(name string) *links.Watch {
	p.Helper()
	watch, err := links.Listen(p.Context(), links.Config{
		Cluster: cluster, Node: p.key(name), Listen: "127.0.0.1:0", Identity: p.identity(name), Suspect: func(string, bool, string) {},
	})
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(watch.Close)
	return watch
}

// serves takes connections as a stranger does, who says that he is n2.
func (s stranger) serves(t *testing.T) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go s.answers(connection)
		}
	}()
	return listener.Addr().String()
}

func (s stranger) answers(connection net.Conn) {
	defer connection.Close()
	if s.config == nil {
		fmt.Fprint(connection, "INFO {\"max_payload\":1048576}\r\n")
	} else {
		connection = tls.Server(connection, s.config)
	}
	reader := bufio.NewReader(connection)
	if _, err := links.ReadHello(reader, cluster); err == nil {
		links.AnswerProbes(connection, reader)
	}
}

// TestANodeSaysNothingToWhoDoesNotProveWhoHeIs has n1 dial who says that he is n2.
func TestANodeSaysNothingToWhoDoesNotProveWhoHeIs(t *testing.T) {
	p := open(t)
	n1, n2, ctx := p.identity("n1"), p.key("n2"), t.Context()
	strangers := []stranger{{"another node's certificate", n2, with(certificate(t, p.kit("n3"))), []string{n2, p.key("n3")}}}
	for _, s := range append(p.strangersTo(), p.noNodes()...) {
		switch s.what {
		case "no certificate":
			continue // a server always shows one
		case "TLS 1.2":
			s.told = []string{"protocol version"}
		}
		strangers = append(strangers, s)
	}
	for _, s := range strangers {
		address := s.serves(t)
		_, _, err := links.Measure(ctx, n1, links.Hello{Cluster: cluster, Node: p.key("n1")}, s.as, address, 0)
		if !errors.Is(err, mtls.ErrRefused) || !hasAll(err.Error(), s.told) {
			t.Errorf("%s: measured: %v", s.what, err)
		}
		_, err = nats.Connect("nats://"+address, append(n1.Options(s.as), nats.NoReconnect(), nats.Timeout(waits))...)
		if err == nil || !hasAll(err.Error(), s.told) {
			t.Errorf("%s: the client of a store: %v", s.what, err)
		}
	}
	may := p.watch("n2")
	if _, _, err := links.Measure(ctx, n1, links.Hello{Cluster: cluster, Node: p.key("n1")}, n2, may.Address(), 1<<20); err != nil {
		t.Errorf("n2 itself is refused: %v", err)
	}
	if _, _, err := links.Measure(ctx, nil, links.Hello{Cluster: cluster, Node: p.key("n1")}, n2, may.Address(), 0); err == nil {
		t.Error("a node without a kit measures the link to one with it")
	}
}

// TestARenewedKitIsTakenUpWithoutARestart lets a node's certificate expire, and provisions the node again.
func TestARenewedKitIsTakenUpWithoutARestart(t *testing.T) {
	p := open(t)
	n1, n2, watch := p.identity("n1"), p.key("n2"), p.watch("n2")
	measure := func() error {
		_, _, err := links.Measure(t.Context(), n1, links.Hello{Cluster: cluster, Node: p.key("n1")}, n2, watch.Address(), 0)
		return err
	}
	old := p.signed(n2, time.Now().Add(-time.Minute))
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(old.PrivateKey))})
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: old.Certificate[0]})
	for file, data := range map[string][]byte{bus.KeyFile: key, bus.CertificateFile: text} {
		if err := os.WriteFile(filepath.Join(p.kit("n2"), file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := measure(); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("an expired certificate: %v", err)
	}
	p.provision(optionsOf("alpha", "n2"))
	if err := measure(); err != nil {
		t.Errorf("a renewed certificate: %v", err)
	}
}

// TestAStoreIsReadOverTLS fetches a part from the store of a node, by who has a certificate and by who has none.
func TestAStoreIsReadOverTLS(t *testing.T) {
	t.Parallel()
	p := open(t)
	n1, n2 := p.identity("n1"), p.key("n2")
	store, err := shards.Serve(t.Context(), shards.StoreConfig{Bucket: "n2", Identity: p.identity("n2")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	data := []byte(strings.Repeat(prose, 1000))
	given := store.Offer(events.Digest(data), data)
	fetch := func(within time.Duration, options func() []nats.Option) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		transfer, err := shards.NewTransfer([]shards.Source{{Name: "n2", URL: store.URL(), Bucket: "n2", Options: options}})
		if err != nil {
			t.Fatal(err)
		}
		part := shards.Part{Digest: given.Digest, End: int64(len(data))}
		if err := transfer.Add(shards.Layer{Into: make([]byte, len(data)), Parts: []shards.Part{part}}); err != nil {
			t.Fatal(err)
		}
		transfer.Seal()
		return transfer.Run(ctx)
	}
	if err := fetch(waits, func() []nats.Option { return n1.Options(n2) }); err != nil {
		t.Errorf("n1 reads from n2: %v", err)
	}
	if err := fetch(time.Second, nil); err == nil {
		t.Error("a part was read without a certificate")
	}
	if err := fetch(time.Second, func() []nats.Option { return n1.Options(p.key("n3")) }); err == nil {
		t.Error("a part that n3 was to give was read from n2")
	}
}
