package security

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// strangers try to connect without a key, with a key of their own making, and with a part of somebody's kit, once for
// each kind of event that they would say then.
func (m *matrix) strangers() {
	const row = "connects with no key, or a wrong one"
	ways := m.ways()
	for _, kind := range events.Catalogue {
		for _, way := range ways {
			if m.made++; !*full && m.made%stride != 0 {
				continue
			}
			became := byServer
			conn, err := nats.Connect(m.url, append(way.options, nats.NoReconnect(), nats.Timeout(500*time.Millisecond))...)
			if err == nil {
				id, _ := m.attackers[0].own(kind)
				subject := events.Event{Kind: kind.Kind, Cluster: cluster, Subject: id}.SubjectName()
				_ = conn.Publish(subject, []byte("{}")) // that it is connected is enough
				conn.Close()
				became = succeeded
				m.Errorf("%s: %s, %s", row, way.name, subject)
			}
			m.count(row, became)
		}
	}
}

// way is how a stranger connects.
type way struct {
	name    string
	options []nats.Option
}

func (m *matrix) ways() []way {
	at := func(name, file string) string { return filepath.Join(m.kit(name), file) }
	trust := nats.RootCAs(at("n1", bus.AuthorityFile))
	certificate := nats.ClientCert(at("n1", bus.CertificateFile), at("n1", bus.KeyFile))
	first := nats.TLSHandshakeFirst()
	with := func(creds string) []nats.Option {
		return []nats.Option{trust, certificate, first, nats.UserCredentials(creds)}
	}
	own := must(nkeys.CreateUser())
	return []way{
		{"without TLS", nil},
		{"without a certificate", []nats.Option{trust, first, nats.UserCredentials(at("n1", bus.CredentialsFile))}},
		{"without credentials", []nats.Option{trust, certificate, first}},
		{"with a password", []nats.Option{trust, certificate, first, nats.UserInfo("monitor", "monitor")}},
		{"with the key of nobody", []nats.Option{trust, certificate, first, nats.Nkey(must(own.PublicKey()), own.Sign)}},
		{"with the token of another account", with(m.forge("other", must(nkeys.CreateAccount()), own, nil))},
		{"with a token that the user signed", with(m.forge("self", own, own, nil))},
		{"with the token of a node and another's key", with(m.mix("n1", "n3"))},
		{"with more rights than its institution may give", with(m.forge("more", m.signer("alpha"), own, func(claims *jwt.UserClaims) {
			claims.Permissions.Pub.Allow.Add(">")
			claims.Permissions.Sub.Allow.Add(">")
		}))},
		{"with a token that was good once", with(m.forge("old", m.signer("alpha"), own, func(claims *jwt.UserClaims) {
			claims.Expires = time.Now().Add(-time.Minute).Unix()
		}))},
		{"with a token alone, which would bear its holder", []nats.Option{trust, certificate, first, nats.UserJWT(
			func() (string, error) {
				return m.token(m.signer("alpha"), own, func(claims *jwt.UserClaims) { claims.BearerToken = true }), nil
			}, func([]byte) ([]byte, error) { return nil, nil })}},
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err) // keys that were just made
	}
	return value
}

// signer returns the signing key of an institution, which its nodes do not have.
func (p *place) signer(institution string) nkeys.KeyPair {
	seed := must(os.ReadFile(filepath.Join(p.dir, "operator", "institutions", institution+".nk")))
	return must(nkeys.FromSeed(seed))
}

func (m *matrix) token(signer, user nkeys.KeyPair, change func(*jwt.UserClaims)) string {
	claims := jwt.NewUserClaims(must(user.PublicKey()))
	claims.Name = "*"
	if nodes := must(nkeys.FromSeed(must(os.ReadFile(filepath.Join(m.dir, "operator", "nodes.nk"))))); change != nil {
		claims.IssuerAccount = must(nodes.PublicKey())
		claims.SetScoped(true)
		change(claims)
	}
	if nkeys.IsValidPublicUserKey(must(signer.PublicKey())) {
		signer = must(nkeys.CreateAccount()) // the library signs with no user's key: this is as little worth
	}
	return must(claims.Encode(signer))
}

// forge writes credentials with a token that somebody signed.
func (m *matrix) forge(name string, signer, user nkeys.KeyPair, change func(*jwt.UserClaims)) string {
	file := filepath.Join(m.TempDir(), name)
	text := must(jwt.FormatUserConfig(m.token(signer, user, change), must(user.Seed())))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		m.Fatal(err)
	}
	return file
}

// mix writes credentials with one node's token and another's key.
func (m *matrix) mix(token, key string) string {
	file := filepath.Join(m.TempDir(), "mixed")
	one := must(os.ReadFile(filepath.Join(m.kit(token), bus.CredentialsFile)))
	other := must(os.ReadFile(filepath.Join(m.kit(key), bus.CredentialsFile)))
	seed := must(must(nkeys.ParseDecoratedUserNKey(other)).Seed())
	text := slices.Concat(must(jwt.DecorateJWT(must(nkeys.ParseDecoratedJWT(one)))), must(jwt.DecorateSeed(seed)))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		m.Fatal(err)
	}
	return file
}

// mayStill shows that the matrix can fail: after all that, everybody may do what is his to do.
func (m *matrix) mayStill() {
	m.Helper()
	for _, by := range m.attackers {
		rows, messages := m.said(by)
		for i, message := range messages {
			if became := m.judge(try{by: by, message: message}); became != succeeded {
				m.Errorf("%s says %s as it may: %s", by.name, rows[i].Kind, became)
			}
		}
	}
	monitor := m.connect("monitor").Conn()
	heard, err := monitor.SubscribeSync(events.PulseSubject(cluster, "*"))
	if err != nil {
		m.Fatal(err)
	}
	defer heard.Unsubscribe()
	if err := monitor.Flush(); err != nil {
		m.Fatal(err)
	}
	if err := m.attackers[0].conn.Publish(events.PulseSubject(cluster, m.key("n1")), []byte("alive")); err != nil {
		m.Fatal(err)
	}
	if pulse, err := heard.NextMsg(5 * time.Second); err != nil || string(pulse.Data) != "alive" {
		m.Errorf("a pulse was not heard: %v", err)
	}
	fmt.Println("everybody may still say what is his to say")
}
