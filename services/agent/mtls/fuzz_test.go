package mtls

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/shared/bus"
)

// pair is a certificate that signs itself, and its key.
func pair(f *testing.F) (certificate, key []byte) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), URIs: []*url.URL{NodeRole}}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		f.Fatal(err)
	}
	plain, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		f.Fatal(err)
	}
	text := func(kind string, data []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}) }
	return text("CERTIFICATE", signed), text("PRIVATE KEY", plain)
}

func FuzzCertificates(f *testing.F) {
	certificate, key := pair(f)
	f.Add(certificate, key, certificate)
	f.Add([]byte(nil), []byte(nil), []byte(nil))
	f.Fuzz(func(t *testing.T, certificate, key, authority []byte) {
		kit := t.TempDir()
		for name, data := range map[string][]byte{
			bus.CertificateFile: certificate, bus.KeyFile: key, bus.AuthorityFile: authority,
		} {
			if err := os.WriteFile(filepath.Join(kit, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		identity, err := Open(kit)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "REKNIT_NATS_KIT: ") {
				t.Errorf("%v names no setting", err)
			}
			return
		}
		if identity.Server() == nil || len(identity.Options("n1")) == 0 {
			t.Error("a kit that was read is not used")
		}
	})
}
