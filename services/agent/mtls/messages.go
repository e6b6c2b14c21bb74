package mtls

import (
	"crypto/tls"
	"fmt"
)

// protocol tells a handshake whose words travel as messages from one of a connection (RFC 7301).
const protocol = "reknit-channel"

// Begin returns the end of a handshake with a node, and with nobody else, whose words travel as messages. It is that of package tls for
// transports of others.
func (i *Identity) Begin(node string) *tls.QUICConn {
	config := i.client(node)
	config.NextProtos = []string{protocol}
	conn := tls.QUICClient(&tls.QUICConfig{TLSConfig: config})
	conn.SetTransportParameters(nil)
	return conn
}

// Take returns the other end, which takes that node and nobody else.
func (i *Identity) Take(node string) *tls.QUICConn {
	now := i.proof()
	conn := tls.QUICServer(&tls.QUICConfig{TLSConfig: &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{now.certificate}, ClientCAs: now.authority,
		ClientAuth: tls.RequireAndVerifyClientCert, SessionTicketsDisabled: true, NextProtos: []string{protocol},
		VerifyConnection: func(state tls.ConnectionState) error {
			if err := state.PeerCertificates[0].VerifyHostname(node); err != nil {
				return fmt.Errorf("%w: expected the certificate of %s, got that of %s", ErrRefused, node, nameOf(state.PeerCertificates))
			}
			return verifyNode(state)
		},
	}})
	conn.SetTransportParameters(nil)
	return conn
}
