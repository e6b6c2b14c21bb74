package provision

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"
)

// FuzzAuthority opens any authority: it signs certificates, or it is refused with the name of its file.
func FuzzAuthority(f *testing.F) {
	folder := f.TempDir()
	if _, err := newAuthority(filepath.Join(folder, "ca.pem"), filepath.Join(folder, "ca-key.pem")); err != nil {
		f.Fatal(err)
	}
	certificate, certificateErr := os.ReadFile(filepath.Join(folder, "ca.pem"))
	key, keyErr := os.ReadFile(filepath.Join(folder, "ca-key.pem"))
	agreement, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil || certificateErr != nil || keyErr != nil {
		f.Fatal(err, certificateErr, keyErr)
	}
	plain, err := x509.MarshalPKCS8PrivateKey(agreement)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(certificate, key)
	f.Add(certificate, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: plain})) // a key, and none that signs
	f.Fuzz(func(t *testing.T, certificate, key []byte) {
		folder := t.TempDir()
		for name, data := range map[string][]byte{"ca.pem": certificate, "ca-key.pem": key} {
			if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		opened, err := openAuthority(folder, "")
		if err != nil {
			if !strings.Contains(err.Error(), folder) {
				t.Errorf("%v names no file", err)
			}
			return
		}
		if _, _, err := opened.certify("n1", []string{"n1"}); err != nil {
			t.Errorf("an authority that was opened does not sign: %v", err)
		}
	})
}

// FuzzOperator reads any seed of a key and any list of who is revoked: each is used, or refused with the name of its file.
func FuzzOperator(f *testing.F) {
	key, err := nkeys.CreateAccount()
	if err != nil {
		f.Fatal(err)
	}
	seed, err := key.Seed()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed, []byte(`{"UA": 1800000000}`))
	f.Add([]byte("SA"), []byte(`null`))
	f.Fuzz(func(t *testing.T, seed, list []byte) {
		folder := t.TempDir()
		keyFile, listFile := filepath.Join(folder, "key.nk"), filepath.Join(folder, "revoked.json")
		for name, data := range map[string][]byte{keyFile: seed, listFile: list} {
			if err := os.WriteFile(name, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if key, err := keyAt(keyFile, nkeys.CreateAccount); err == nil {
			if name := public(key); !nkeys.IsValidPublicKey(name) {
				t.Errorf("%q is no public key", name)
			}
		} else if !strings.Contains(err.Error(), keyFile) {
			t.Errorf("%v does not name %s", err, keyFile)
		}
		i := &installation{Options: Options{Dir: folder}}
		if i.revoked, err = readRevoked(listFile); err != nil {
			if !strings.Contains(err.Error(), listFile) {
				t.Errorf("%v does not name %s", err, listFile)
			}
			return
		}
		if err := i.end("UB"); err != nil {
			t.Fatal(err)
		}
		if back, err := readRevoked(i.path(operatorFolder, "revoked.json")); err != nil || len(back) != len(i.revoked) {
			t.Errorf("%v came back as %v, %v", i.revoked, back, err)
		}
	})
}
