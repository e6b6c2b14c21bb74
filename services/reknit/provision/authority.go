package provision

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/reknit/reknit/services/reknit/internal/files"
)

// Certificates outlive a training job by far, and are renewed whenever a kit is written.
const (
	authorityAge   = 10 * 365 * 24 * time.Hour
	certificateAge = 2 * 365 * 24 * time.Hour
	clockSkew      = time.Hour // a host whose clock is behind must believe a new one
)

// authority signs the certificates of an installation, and no others are believed there.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	text        []byte // of the certificate
}

// openAuthority returns the authority whose files have this prefix, a new one where there are none.
func openAuthority(folder, prefix string) (*authority, error) {
	file, keyFile := filepath.Join(folder, prefix+"ca.pem"), filepath.Join(folder, prefix+"ca-key.pem")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return newAuthority(file, keyFile)
	}
	if err != nil {
		return nil, err
	}
	keyText, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	keyBlock, _ := pem.Decode(keyText)
	if block == nil || keyBlock == nil {
		return nil, fmt.Errorf("%s and %s: expected a certificate and its key", file, keyFile)
	}
	a := &authority{text: text}
	if a.certificate, err = x509.ParseCertificate(block.Bytes); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	key, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keyFile, err)
	}
	var signs bool
	if a.key, signs = key.(crypto.Signer); !signs {
		return nil, fmt.Errorf("%s: expected a key that signs, got %T", keyFile, key)
	}
	return a, nil
}

func newAuthority(file, keyFile string) (*authority, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "Reknit installation"}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(authorityAge),
	}
	text, keyText, key, err := sign(template, nil)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	if err := files.Replace(keyFile, keyText, 0o600); err != nil {
		return nil, err
	}
	return &authority{certificate, key, text}, files.Replace(file, text, 0o644)
}

// certify makes a key and its certificate, for a server or a client of that name at those names and addresses, in those roles.
func (a *authority) certify(name string, hosts []string, roles ...*url.URL) (certificate, key []byte, err error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(certificateAge), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, URIs: roles,
	}
	for _, host := range hosts {
		if address := net.ParseIP(host); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	certificate, key, _, err = sign(template, a)
	return certificate, key, err
}

// sign completes a certificate for a new key, signed by an authority or, where there is none, by itself.
func sign(template *x509.Certificate, by *authority) (certificate, keyText []byte, key crypto.Signer, err error) {
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, nil, err
	}
	template.NotBefore = time.Now().Add(-clockSkew)
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, nil, nil, err
	}
	parent, signer := template, crypto.Signer(pair)
	if by != nil {
		parent, signer = by.certificate, by.key
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, parent, pair.Public(), signer)
	if err != nil {
		return nil, nil, nil, err
	}
	plain, err := x509.MarshalPKCS8PrivateKey(pair)
	if err != nil {
		return nil, nil, nil, err
	}
	text := func(kind string, data []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}) }
	return text("CERTIFICATE", signed), text("PRIVATE KEY", plain), pair, nil
}
