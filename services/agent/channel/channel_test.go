package channel

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/services/agent/mtls"
	"github.com/reknit/reknit/shared/bus"
)

// authority signs the certificates of a test.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

func newAuthority(t testing.TB) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{certificate: certificate, key: key}
}

// identity returns that of a node, which works with whoever is named.
func (a *authority) identity(t testing.TB, node string, with ...string) *mtls.Identity {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), Subject: pkix.Name{CommonName: node},
		DNSNames: []string{node}, URIs: []*url.URL{mtls.NodeRole}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	kit := t.TempDir()
	for name, block := range map[string]*pem.Block{
		bus.CertificateFile: {Type: "CERTIFICATE", Bytes: der}, bus.KeyFile: {Type: "PRIVATE KEY", Bytes: plain},
		bus.AuthorityFile: {Type: "CERTIFICATE", Bytes: a.certificate.Raw},
	} {
		if err := os.WriteFile(filepath.Join(kit, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	identity, err := mtls.Open(kit)
	if err != nil {
		t.Fatal(err)
	}
	identity.Admit(func(node string) bool { return strings.Contains(strings.Join(with, " "), node) })
	return identity
}

// hub carries words between nodes, and keeps all of them.
type hub struct {
	nodes   map[string]*Channels
	seen    [][]byte
	process string // of all nodes, as each of them knows
}

func (h *hub) add(t testing.TB, node string, identity *mtls.Identity) *Channels {
	process := func(string) string { return h.process }
	channels := New(t.Context(), identity, process, func(_ context.Context, to string, words []byte) ([]byte, error) {
		answer, err := h.nodes[to].Answer(node, words)
		h.seen = append(h.seen, words, answer)
		return answer, err
	})
	h.nodes[node] = channels
	return channels
}

func pair(t testing.TB) (*hub, *Channels, *Channels) {
	h, a := &hub{nodes: map[string]*Channels{}}, newAuthority(t)
	return h, h.add(t, "n1", a.identity(t, "n1", "n2")), h.add(t, "n2", a.identity(t, "n2", "n1"))
}

func TestTwoNodesSayWhatTheHubDoesNotRead(t *testing.T) {
	h, n1, n2 := pair(t)
	said := []byte("a gradient of the model")
	for range 100 {
		sealed, err := n1.Seal("n2", Frame, said)
		if err != nil {
			t.Fatal(err)
		}
		h.seen = append(h.seen, sealed)
		if len(sealed) != len(said)+Bytes {
			t.Fatalf("%d bytes became %d: expected %d more", len(said), len(sealed), Bytes)
		}
		if heard, err := n2.Open("n1", Frame, sealed); err != nil || !bytes.Equal(heard, said) {
			t.Fatalf("heard %q: %v", heard, err)
		}
	}
	back, err := n2.Seal("n1", Frame, said)
	if err != nil {
		t.Fatal(err)
	}
	if heard, err := n1.Open("n2", Frame, back); err != nil || !bytes.Equal(heard, said) {
		t.Errorf("back: heard %q: %v", heard, err)
	}
	for _, words := range h.seen {
		if bytes.Contains(words, said) {
			t.Fatal("the hub reads what was said")
		}
	}
}

func TestWhatTheHubChangesRepeatsOrTakesForAnotherIsRefused(t *testing.T) {
	_, n1, n2 := pair(t)
	seal := func() []byte {
		sealed, err := n1.Seal("n2", Frame, []byte("a gradient"))
		if err != nil {
			t.Fatal(err)
		}
		return sealed
	}
	sealed := seal()
	for at := range sealed {
		changed := bytes.Clone(sealed)
		changed[at] ^= 1
		if _, err := n2.Open("n1", Frame, changed); err == nil {
			t.Errorf("byte %d may be changed", at)
		}
	}
	if _, err := n2.Open("n1", Keep, sealed); err == nil {
		t.Error("a frame is taken for a request")
	}
	if _, err := n2.Open("n3", Frame, sealed); err == nil {
		t.Error("a frame is taken for another node's")
	}
	if _, err := n1.Open("n2", Frame, sealed); err == nil {
		t.Error("a frame is taken back by who said it")
	}
	if _, err := n2.Open("n1", Frame, sealed); err != nil {
		t.Errorf("the frame itself: %v", err)
	}
	if _, err := n2.Open("n1", Frame, sealed); err == nil {
		t.Error("a frame counts twice")
	}
	for _, words := range [][]byte{nil, {sealedWords}, []byte("a plain frame, as one of before"), sealed[:Bytes-1]} {
		if _, err := n2.Open("n1", Frame, words); err == nil {
			t.Errorf("%q is taken", words)
		}
	}
}

func TestAnAnswerIsThatToItsRequest(t *testing.T) {
	_, n1, n2 := pair(t)
	var before []byte
	ask := func(answered func([]byte) []byte) (string, error) {
		answer, err := n1.Request(t.Context(), "n2", PreCopy, []byte("which?"), func(_ context.Context, words []byte) ([]byte, error) {
			text, seals, err := n2.OpenRequest("n1", PreCopy, words)
			if err != nil || string(text) != "which?" {
				t.Fatalf("heard %q: %v", text, err)
			}
			return answered(seals([]byte("these"))), nil
		})
		return string(answer), err
	}
	if answer, err := ask(func(words []byte) []byte { before = words; return words }); err != nil || answer != "these" {
		t.Errorf("answered %q: %v", answer, err)
	}
	if _, err := ask(func([]byte) []byte { return before }); err == nil {
		t.Error("an answer to another request is taken")
	}
	if _, err := ask(func([]byte) []byte { return []byte("those") }); err == nil {
		t.Error("a plain answer is taken")
	}
}

func TestNobodyAgreesWithWhoIsNoneOfItsPeers(t *testing.T) {
	h, n1, _ := pair(t)
	a := newAuthority(t)
	h.add(t, "n2", a.identity(t, "n2", "n1")) // of another installation
	if _, err := n1.Seal("n2", Frame, nil); err == nil {
		t.Error("a node of another authority is believed")
	}
	n1 = h.add(t, "n1", a.identity(t, "n1", "n2"))
	h.nodes["n2"] = h.add(t, "n3", a.identity(t, "n3", "n1"))
	if _, err := n1.Seal("n2", Frame, nil); err == nil {
		t.Error("a node that takes what is for another is believed")
	}
	_, n1, _ = pair(t)
	n1.identity.Admit(func(string) bool { return false })
	if _, err := n1.Answer("n2", write([idBytes]byte{}, nil)); err == nil {
		t.Error("a node that is in no plan is answered")
	}
}

func TestWhoWasStartedAgainUnderstandsSoon(t *testing.T) {
	h, n1, n2 := pair(t)
	if _, err := n1.Seal("n2", Frame, nil); err != nil {
		t.Fatal(err)
	}
	n2 = h.add(t, "n2", n2.identity) // of another process
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		sealed, err := n1.Seal("n2", Frame, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = n2.Open("n1", Frame, sealed); err == nil {
			return
		}
		if !errors.Is(err, ErrUnknown) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestKeysOfAnEarlierProcessAreNotUsed(t *testing.T) {
	h, n1, n2 := pair(t)
	if _, err := n1.Seal("n2", Frame, nil); err != nil {
		t.Fatal(err)
	}
	n2 = h.add(t, "n2", n2.identity)
	h.process = "another"
	sealed, err := n1.Seal("n2", Frame, nil)
	if err == nil {
		_, err = n2.Open("n1", Frame, sealed)
	}
	if err != nil {
		t.Errorf("the first words to the next process: %v", err)
	}
}

func TestANumberCountsOnceInWhateverOrder(t *testing.T) {
	var w window
	for _, number := range []uint64{3, 1, 2, 70, 7, 200, 199} {
		if !w.take(number) {
			t.Errorf("%d does not count", number)
		}
	}
	for _, number := range []uint64{200, 199, 70, 0, 136} {
		if w.take(number) {
			t.Errorf("%d counts again, or is too old to be known", number)
		}
	}
}

func TestWithoutKeysNothingIsSealed(t *testing.T) {
	none := New(t.Context(), nil, nil, nil)
	said := []byte("plain")
	if sealed, err := none.Seal("n2", Frame, said); err != nil || &sealed[0] != &said[0] {
		t.Errorf("expected the bytes as they are: %v", err)
	}
	if heard, err := none.Open("n1", Frame, said); err != nil || &heard[0] != &said[0] {
		t.Errorf("expected the bytes as they are: %v", err)
	}
}

func BenchmarkFrame(b *testing.B) {
	frame := make([]byte, 429<<10)
	_, n1, n2 := pair(b)
	for name, ends := range map[string][2]*Channels{"sealed": {n1, n2}, "open": {}} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(frame)))
			for range b.N {
				sealed, err := ends[0].Seal("n2", Frame, frame)
				if err == nil {
					_, err = ends[1].Open("n1", Frame, sealed)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkHandshake(b *testing.B) {
	_, n1, _ := pair(b)
	for range b.N {
		n1.peers = map[string]*peer{}
		if _, err := n1.Seal("n2", Frame, nil); err != nil {
			b.Fatal(err)
		}
	}
}
