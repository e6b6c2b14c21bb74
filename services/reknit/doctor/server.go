package doctor

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/reknit/reknit/shared/bus"
)

// greetingTime is how long a server without TLS takes to greet at most; one that expects TLS first says nothing.
const greetingTime = time.Second

// refusedBy says of a server that lets nobody in, or of none, what is wrong and what to do. Whether one listens, and of which
// installation, is asked without keys: a client of NATS says "no servers" and "i/o timeout" of all of them.
func (d *doctor) refusedBy(ctx context.Context, list string, why error) []Finding {
	first, _, _ := strings.Cut(list, ",")
	address := addressOf(first)
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return found(wrong, "start one (reknit up), or say where it is: --nats, REKNIT_NATS_URL, or a context of the nats command",
			"%s: %v", list, why)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(greetingTime))
	greeting := make([]byte, 4096)
	read, _ := conn.Read(greeting)
	wantsTLS := bytes.Contains(greeting[:read], []byte(`"tls_required":true`))
	switch secured := d.kit.Key != ""; {
	case read > 0 && !wantsTLS && secured:
		return found(wrong, "say where the kit's own server is (--nats, REKNIT_NATS_URL), or unset REKNIT_NATS_KIT",
			"a server without TLS is at %s: it is not of the installation that this kit is of", address)
	case read > 0 && !wantsTLS:
		return found(wrong, "see the log of the server", "%s is there, and lets nobody in: %v", address, why)
	case wantsTLS && secured:
		return found(wrong, "see the log of the server, and run reknit provision security again", "%s does not let this kit in: %v", address, why)
	}
	return d.securedBy(ctx, address, why)
}

// securedBy says what is wrong at a server that expects TLS.
func (d *doctor) securedBy(ctx context.Context, address string, why error) []Finding {
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout}, Config: &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // nothing is said to it: it is only asked whose it is
	}}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return found(wrong, "see what listens there, and say where NATS is: --nats, REKNIT_NATS_URL",
			"something is at %s, and it is no NATS server: %v", address, err)
	}
	defer conn.Close()
	if d.kit.Key == "" {
		return found(wrong, "set REKNIT_NATS_KIT to the folder of a kit of its installation (reknit provision security)",
			"the server at %s is secured, and there is no kit", address)
	}
	roots := x509.NewCertPool()
	text, err := os.ReadFile(filepath.Join(d.node.Kit, bus.AuthorityFile))
	if err != nil || !roots.AppendCertsFromPEM(text) {
		return found(wrong, mendKit, "%s: expected the certificate of an authority", bus.AuthorityFile)
	}
	shown := conn.(*tls.Conn).ConnectionState().PeerCertificates
	options := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, between := range shown[1:] {
		options.Intermediates.AddCert(between)
	}
	if _, err := shown[0].Verify(options); err != nil {
		return found(wrong, "use a kit of that installation (REKNIT_NATS_KIT), or say where this kit's server is (--nats, REKNIT_NATS_URL)",
			"the server at %s is of another installation than this kit: %v", address, err)
	}
	host, _, _ := net.SplitHostPort(address)
	if err := shown[0].VerifyHostname(host); err != nil {
		return found(wrong, "name it as its certificate does, or provision it with --host "+host, "%s: %v", address, err)
	}
	return found(wrong, "see its log; where the kit was revoked or is old, run reknit provision security again",
		"the server at %s is of this kit's installation, and does not let it in: %v", address, why)
}

const mendKit = "run reknit provision security again, and put the new kit in the place of this one"

// addressOf returns the host and port of a server's URL.
func addressOf(given string) string {
	if !strings.Contains(given, "://") {
		given = "nats://" + given
	}
	at, err := url.Parse(strings.TrimSpace(given))
	if err != nil {
		return given
	}
	return net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), fmt.Sprint(4222)))
}
