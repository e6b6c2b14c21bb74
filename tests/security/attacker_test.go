package security

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// attacker is somebody with a kit who publishes what he likes, with none of our code between him and the server.
type attacker struct {
	*place
	name, key, api string
	conn           *nats.Conn
	seed           nkeys.KeyPair
	mutex          sync.Mutex
	refusals       map[string]int // by the server, of a subject
	seen           map[string]int
}

func (p *place) attacker(name string) *attacker {
	p.Helper()
	b := p.connect(name)
	a := &attacker{place: p, name: name, key: p.key(name), api: "$JS.API", conn: b.Conn(), refusals: map[string]int{}, seen: map[string]int{}}
	if b.Identity().API != "" {
		a.api = b.Identity().API
	}
	text, err := os.ReadFile(filepath.Join(p.kit(name), bus.CredentialsFile))
	if err == nil {
		a.seed, err = nkeys.ParseDecoratedUserNKey(text)
	}
	if err != nil {
		p.Fatal(err)
	}
	a.conn.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { a.note(err) })
	return a
}

// note counts a refusal by the server. It names the subject between quotes, in lower case where the client says so.
func (a *attacker) note(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	if _, rest, quoted := strings.Cut(err.Error(), `"`); quoted {
		subject, _, _ := strings.Cut(rest, `"`)
		a.mutex.Lock()
		a.refusals[subject]++
		a.mutex.Unlock()
	}
}

// isRefused reports whether the server refused a subject once more than it was asked before.
func (a *attacker) isRefused(subject string) bool {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.refusals[subject] > a.seen[subject] {
		a.seen[subject] = a.refusals[subject]
		return true
	}
	return false
}

// patience is how long the server may take to answer an attempt. What it refuses it refuses at once, and a stream answers.
const patience = 3 * time.Second

// publish returns the answer to a message, nil where none came, and whether the server refused it.
func (a *attacker) publish(message *nats.Msg) (answer *nats.Msg, refused bool, err error) {
	inbox := a.conn.NewInbox()
	if message.Reply == "" {
		message.Reply = inbox
	}
	answers, err := a.conn.SubscribeSync(inbox)
	if err != nil {
		return nil, false, err
	}
	defer answers.Unsubscribe()
	if err := a.conn.PublishMsg(message); err != nil {
		return nil, true, nil // the client refuses it as the server would
	}
	if err := a.conn.FlushTimeout(10 * time.Second); err != nil {
		return nil, true, nil // the server ended the connection
	}
	for began := time.Now(); time.Since(began) < patience; {
		if a.isRefused(message.Subject) {
			return nil, true, nil
		}
		if answer, err := answers.NextMsg(time.Millisecond); err == nil {
			return answer, false, nil
		}
	}
	return nil, false, nil
}

// isRefusedAtOnce reports whether the server refuses what nobody answers: it says so before it refuses what is said behind it.
func (a *attacker) isRefusedAtOnce(subject string, data []byte) bool {
	a.Helper()
	if a.conn.Publish(subject, data) != nil {
		return true // the client refuses it as the server would
	}
	if _, refused, err := a.publish(&nats.Msg{Subject: "x"}); err != nil || !refused {
		a.Fatalf("expected that nobody may say x: refused %t, %v", refused, err)
	}
	return a.isRefused(subject)
}

// hears reports whether the server lets the attacker subscribe.
func (a *attacker) hears(subject string) bool {
	subscription, err := a.conn.SubscribeSync(subject)
	if err != nil {
		return false
	}
	defer subscription.Unsubscribe()
	if a.conn.Flush() != nil {
		return false
	}
	for began := time.Now(); time.Since(began) < patience; time.Sleep(time.Millisecond) {
		if a.isRefused(subject) {
			return false
		}
	}
	return true
}

// words are an event as a stranger writes it, by events/README.md.
type words struct {
	ID, Type, Source, Subject, Cluster, Time string
	Data                                     json.RawMessage
}

// sign returns the event, signed with the attacker's key.
func (a *attacker) sign(w words) []byte {
	text := "reknit event\n"
	for _, part := range []string{w.ID, w.Type, w.Source, w.Subject, w.Cluster, "", "", w.Time, events.Digest(w.Data)} {
		text += fmt.Sprintf("%d:%s", len(part), part)
	}
	signature, err := a.seed.Sign([]byte(text))
	if err != nil {
		a.Fatal(err)
	}
	return w.write(base64.RawURLEncoding.EncodeToString(signature))
}

func (w words) write(signature string) []byte {
	event := map[string]any{
		"specversion": "1.0", "id": w.ID, "type": w.Type, "source": w.Source, "subject": w.Subject, "cluster": w.Cluster,
		"datacontenttype": "application/json", "data": w.Data,
	}
	for name, value := range map[string]string{"time": w.Time, "signature": signature} {
		if value != "" {
			event[name] = value
		}
	}
	text, err := json.Marshal(event)
	if err != nil {
		panic(err) // data that is no JSON is written by hand
	}
	return text
}
