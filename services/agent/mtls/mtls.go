// Package mtls has nodes prove to each other who they are: TLS 1.3, with the certificate of a kit at both ends.
package mtls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/shared/bus"
)

// ErrRefused says that the other end of a connection does not prove to be who it is meant to be, or does not believe
// this one. Its text says why.
var ErrRefused = errors.New("refused")

// ErrSilent says that the other end of a connection does not answer in time.
var ErrSilent = errors.New("connected, and nobody proves who is there")

// Identity is with what a node proves who it is. A nil one is that of an installation without keys, whose connections
// are as they come. Its methods may be called by several goroutines.
type Identity struct {
	folder string
	mutex  sync.Mutex
	last   *proof // that could be read
	peers  peers
}

// proof is what a kit holds for TLS.
type proof struct {
	certificate tls.Certificate
	authority   *x509.CertPool
}

// Open reads a kit; nil where there is none.
func Open(kit string) (*Identity, error) {
	if kit == "" {
		return nil, nil
	}
	first, err := read(kit)
	if err != nil {
		return nil, fmt.Errorf("REKNIT_NATS_KIT: %w", err)
	}
	return &Identity{folder: kit, last: first}, nil
}

func read(folder string) (*proof, error) {
	at := func(file string) string { return filepath.Join(folder, file) }
	certificate, err := tls.LoadX509KeyPair(at(bus.CertificateFile), at(bus.KeyFile))
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", at(bus.CertificateFile), at(bus.KeyFile), err)
	}
	if err := isNode(certificate.Leaf); err != nil {
		return nil, fmt.Errorf("%s: %w: a kit of an earlier build is provisioned again", at(bus.CertificateFile), err)
	}
	text, err := os.ReadFile(at(bus.AuthorityFile))
	if err != nil {
		return nil, err
	}
	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: expected certificates in PEM", at(bus.AuthorityFile))
	}
	return &proof{certificate, authority}, nil
}

// proof reads the kit anew for each connection, which takes a tenth of what a handshake does: a certificate that was
// renewed is taken up without a restart. The kit read before stays good while a new one is being written.
func (i *Identity) proof() *proof {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	fresh, err := read(i.folder)
	if err != nil {
		slog.Warn("the kit is not read anew", "error", err)
		return i.last
	}
	i.last = fresh
	return fresh
}

// Server returns how to take connections from who has a certificate of the installation; nil where nobody needs one.
func (i *Identity) Server() *tls.Config {
	if i == nil {
		return nil
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := i.proof()
			return &tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{now.certificate}, ClientCAs: now.authority,
				ClientAuth: tls.RequireAndVerifyClientCert, VerifyConnection: verifyNode,
				SessionTicketsDisabled: true, // each connection shows a certificate that is good now
			}, nil
		},
	}
}

// client returns how to connect to a node, and to nobody else.
func (i *Identity) client(node string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: i.proof().authority, ServerName: node, VerifyConnection: verifyNode,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &i.proof().certificate, nil
		},
	}
}

// Options are those of a connection to the NATS server of a node; none where nobody needs a certificate.
func (i *Identity) Options(node string) []nats.Option {
	if i == nil {
		return nil
	}
	return []nats.Option{nats.Secure(i.client(node)), nats.TLSHandshakeFirst()}
}

// Connect proves to a node who this one is, on a connection that was dialled, and that it is that node. A node that
// refuses this one's certificate says so later, on the first read.
func (i *Identity) Connect(ctx context.Context, connection net.Conn, node string) (net.Conn, error) {
	if i == nil {
		return connection, nil
	}
	secured := tls.Client(connection, i.client(node))
	return secured, explain(secured.HandshakeContext(ctx), "expected the certificate of "+node)
}

// Accept does so on a connection that was accepted. Check is to tell who is there.
func (i *Identity) Accept(ctx context.Context, connection net.Conn) (net.Conn, error) {
	if i == nil {
		return connection, nil
	}
	secured := tls.Server(connection, i.Server())
	return secured, explain(secured.HandshakeContext(ctx), "expected TLS 1.3 and a certificate of this installation")
}

// explain tells a handshake that was refused from one that did not end.
func explain(err error, expected string) error {
	var unreachable net.Error
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &unreachable) && unreachable.Timeout():
		return fmt.Errorf("%w: %w", ErrSilent, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrRefused, expected, err)
}

// Check reports why a connection that was accepted is not a node's.
func Check(connection net.Conn, node string) error {
	secured, ok := connection.(*tls.Conn)
	if !ok {
		return nil
	}
	shown := secured.ConnectionState().PeerCertificates
	if len(shown) == 0 || shown[0].VerifyHostname(node) != nil {
		return fmt.Errorf("%w: expected the certificate of %s, got that of %s", ErrRefused, node, nameOf(shown))
	}
	return nil
}

func nameOf(shown []*x509.Certificate) string {
	if len(shown) == 0 {
		return "nobody"
	}
	return shown[0].Subject.CommonName
}

// Refused reports whether an error says that one end of a connection does not believe the other.
func Refused(err error) bool {
	var told *net.OpError
	return errors.Is(err, ErrRefused) || errors.As(err, &told) && told.Op == "remote error" // as package tls calls an alert
}
