package bus

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// Files of a kit: the folder with which somebody connects to a secured installation.
const (
	CredentialsFile = "user.creds"
	AuthorityFile   = "ca.pem"
	CertificateFile = "certificate.pem"
	KeyFile         = "key.pem"
	IdentityFile    = "identity.json"
)

// Identity is what a kit tells of the installation and of who connects.
type Identity struct {
	Key          string            `json:"key"`                    // public; a node's is its id
	Name         string            `json:"name,omitempty"`         // that the node was provisioned under, among those of its institution
	API          string            `json:"api,omitempty"`          // prefix of the JetStream API, where it is not the usual one
	Speakers     map[string]string `json:"speakers"`               // public keys of the services, and of users, by their names
	Institutions map[string]string `json:"institutions,omitempty"` // public keys of those that enrol nodes; services know them

	Former map[string][]FormerKey `json:"former,omitempty"` // which services and users had before, by their names
}

// FormerKey is a public key that was revoked. Words that it signed are believed where the hub logged them until then.
type FormerKey struct {
	Key     string    `json:"key"`
	Revoked time.Time `json:"revoked"` // by the clock of who provisions
}

// ReadIdentity reads what a kit tells.
func ReadIdentity(kit string) (identity Identity, err error) {
	text, err := os.ReadFile(filepath.Join(kit, IdentityFile))
	if err == nil {
		err = json.Unmarshal(text, &identity)
	}
	return identity, err
}

// kit is how to connect. The zero value is how to connect to an installation that asks nobody for a key.
type kit struct {
	Identity
	renewed *renewed           // nil where nobody asks for a key
	signer  ed25519.PrivateKey // which a nkeys.KeyPair derives anew at each signature, and takes twice as long
	options []nats.Option
}

// Enter returns how a connection that is no bus is made with a kit: its options, and the prefix of JetStream's subjects, which
// is empty for the usual one.
func Enter(folder string) (options []nats.Option, api string, err error) {
	k, err := openKit(Config{Kit: folder}, func() {})
	return k.options, k.API, err
}

var onlyHere = regexp.MustCompile(`^nats://(127\.[0-9.]+|localhost|\[::1\])(:[0-9]+)?$`) // URL of a server that no other machine reaches

// openKit reads a kit. It calls revoked when a connection finds that the folder holds another key by now.
func openKit(config Config, revoked func()) (k kit, err error) {
	if config.Kit == "" {
		if !config.Command && !onlyHere.MatchString(config.URL) {
			slog.Warn("no keys and no TLS: whoever reaches this NATS server can speak for everybody (REKNIT_NATS_KIT)", "url", config.URL)
		}
		return kit{}, nil
	}
	at := func(file string) string { return filepath.Join(config.Kit, file) }
	if k.Identity, err = ReadIdentity(config.Kit); err == nil {
		k.signer, err = signerIn(at(CredentialsFile))
	}
	if err == nil {
		err = k.fits()
	}
	if err != nil {
		return k, fmt.Errorf("REKNIT_NATS_KIT: expected a folder of reknit provision security: %w", err)
	}
	k.renewed = &renewed{folder: config.Kit, Identity: k.Identity}
	k.options = []nats.Option{
		k.credentials(at(CredentialsFile), revoked),
		nats.RootCAs(at(AuthorityFile)), nats.ClientCert(at(CertificateFile), at(KeyFile)), nats.TLSHandshakeFirst(),
		nats.CustomInboxPrefix("_INBOX." + k.Key),
		nats.IgnoreAuthErrorAbort(), // a server that starts may not know the accounts yet
	}
	return k, nil
}

// fits refuses a kit that is being copied: with the token of one key and the identity of another a connection hears no answers.
func (k kit) fits() error {
	key, err := nkeys.Encode(nkeys.PrefixByteUser, k.signer.Public().(ed25519.PublicKey))
	if err == nil && string(key) != k.Key {
		err = fmt.Errorf("%s: key: expected %s, of which %s is, got %q: a part of another kit", IdentityFile, key, CredentialsFile, k.Key)
	}
	return err
}

// credentials reads the token at each connection, so that a new one needs no restart. A token of another key is not shown: who signs with
// the key of before would be connected, answer that it works, and be heard by nobody.
func (k kit) credentials(file string, revoked func()) nats.Option {
	return nats.UserJWT(func() (string, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		if signer, err := signerOf(text); err != nil {
			return "", err
		} else if !signer.Equal(k.signer) {
			revoked()
			return "", ErrRevoked
		}
		return nkeys.ParseDecoratedJWT(text)
	}, func(nonce []byte) ([]byte, error) { return ed25519.Sign(k.signer, nonce), nil })
}

// signerIn returns the key that a file of credentials holds.
func signerIn(file string) (ed25519.PrivateKey, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return signerOf(text)
}

func signerOf(text []byte) (ed25519.PrivateKey, error) {
	pair, err := nkeys.ParseDecoratedUserNKey(text)
	if err != nil {
		return nil, err
	}
	seed, _ := pair.Seed() // from which it was made
	_, raw, _ := nkeys.DecodeSeed(seed)
	return ed25519.NewKeyFromSeed(raw), nil
}

// Options are those of another connection of the same kit.
func (b *Bus) Options() []nats.Option { return b.kit.options }

// Identity is that of who connects; zero where none is asked for.
func (b *Bus) Identity() Identity { return b.kit.Identity }

// Secured reports whether who connects needs a key. A request that the client is not allowed to make is never answered.
func (b *Bus) Secured() bool { return b.kit.Key != "" }

// isGuest reports whether the streams are in another account, where this bus makes and purges nothing.
func (b *Bus) isGuest() bool { return b.kit.API != "" }
