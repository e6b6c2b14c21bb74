package bus

import (
	"cmp"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/reknit/reknit/events"
)

// A server's limits on what somebody may publish are the outer wall. The server's own answers, and a subject that does not name who speaks,
// go around it. So on a secured installation each event is signed, and none is heard of which the signature is not that of its source.

// signed returns what is signed of an event whose data has this digest. Each part has its length before it, so that no
// two events are the same text.
func signed(event events.Event, digest string) []byte {
	when := ""
	if !event.Time.IsZero() {
		when = event.Time.UTC().Format(time.RFC3339Nano)
	}
	text := []byte("reknit event\n")
	for _, part := range []string{
		event.ID, event.Kind.Type(), event.Source, event.Subject, event.Cluster, event.Cause, event.Traceparent, when, digest,
	} {
		text = fmt.Appendf(text, "%d:%s", len(part), part)
	}
	return text
}

// sign returns the signature of an event as it will be on the wire; empty where nobody signs.
func (k kit) sign(event events.Event, dataref string) (string, error) {
	if k.signer == nil {
		return "", nil
	}
	if dataref == "" {
		data, err := json.Marshal(event.Data) // which leaves out blanks, as the envelope does
		if err != nil {
			return "", err
		}
		dataref = events.Digest(data)
	}
	return base64.RawURLEncoding.EncodeToString(ed25519.Sign(k.signer, signed(event, dataref))), nil
}

// verify reports why an event that was logged then is not believed to be its source's. A kit whose folder tells of other keys since is
// read anew.
func (k kit) verify(event events.Event, e envelope, logged time.Time) error {
	if k.signer == nil {
		return nil
	}
	err := k.known().verify(event, e, logged)
	if err != nil && k.renewed.look() {
		return k.known().verify(event, e, logged)
	}
	return err
}

// verify is that of a kit, by the keys that it knows.
func (i Identity) verify(event events.Event, e envelope, logged time.Time) error {
	signature, err := base64.RawURLEncoding.DecodeString(e.signature)
	if err != nil {
		return refuse(Unsigned, "signature: expected URL-safe base64 without padding: %v", err)
	}
	keys := i.KeysOf(event.Source, logged)
	text := signed(event, cmp.Or(e.dataref, events.Digest(event.Data)))
	for _, key := range keys {
		speaker, err := nkeys.Decode(nkeys.PrefixByteUser, []byte(key))
		if err != nil || len(speaker) != ed25519.PublicKeySize {
			return refuse(Unsigned, "source: expected a node's public key, or one of this installation's services, got %.100q", event.Source)
		}
		if ed25519.Verify(speaker, text, signature) {
			return nil
		}
	}
	return refuse(Unsigned, "signature: expected that of %s by %s", event.Source, strings.Join(keys, " or "))
}

// KeysOf returns the public keys of which one signed what a source said, if it was logged then. A node's key is its id. A service that
// nobody knows has an empty one.
func (i Identity) KeysOf(source string, logged time.Time) []string {
	if node, isNode := strings.CutPrefix(source, events.NodeSource("")); isNode {
		return []string{node}
	}
	name := strings.TrimPrefix(source, "/")
	keys := []string{i.Speakers[name]}
	for _, former := range i.Former[name] {
		if !logged.After(former.Revoked) {
			keys = append(keys, former.Key)
		}
	}
	return keys
}

// messageID is by what a stream knows a repeat. An event's id follows from its cause, and who knows that could say
// something else under it, so that the event would pass for a repeat. Only who has the key knows this one.
func (k kit) messageID(id string) string {
	if k.signer == nil {
		return id
	}
	mac := hmac.New(sha256.New, append([]byte("reknit message id\n"), k.signer.Seed()...))
	mac.Write([]byte(id))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])
}
