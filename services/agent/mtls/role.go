package mtls

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
)

// NodeRole is the name (URI SAN, RFC 5280 4.2.1.6) that the certificate of a node's kit bears beside the node's own. Those of the
// hub and of the services, which the same authority signs, lack it: whoever has these is no node to another node.
var NodeRole = &url.URL{Scheme: "reknit", Opaque: "node"}

// isNode reports why a certificate is not that of a node.
func isNode(certificate *x509.Certificate) error {
	for _, name := range certificate.URIs {
		if name.String() == NodeRole.String() {
			return nil
		}
	}
	return fmt.Errorf("expected the certificate of a node, which bears %s, got that of %s", NodeRole, certificate.Subject.CommonName)
}

// verifyNode refuses a connection whose other end shows no certificate of a node. Chain and name are verified already.
func verifyNode(state tls.ConnectionState) error { return isNode(state.PeerCertificates[0]) }
