package bus

import (
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/reknit/reknit/events"
)

// eachExample adds every example of an event to the corpus.
func eachExample(f *testing.F) {
	files, err := filepath.Glob("../../events/examples/*.v1*.json")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
}

var reasons = []string{Oversized, Malformed, UnknownVersion, WrongCluster, WrongSource, Unsigned, Invalid}

// mustRefuse fails where a message is neither an event nor refused by one of the reasons that the contract names.
func mustRefuse(t *testing.T, message []byte, err error) {
	t.Helper()
	refusal := stored{subject: "s", data: message}.quarantine(err)
	if refusal == nil {
		t.Fatalf("%v: expected a refusal", err)
	}
	for _, reason := range reasons {
		if refusal.Reason == reason {
			if err := refusal.Validate(); err != nil || refusal.Detail == "" {
				t.Fatalf("the refusal cannot travel: %v, detail %q", err, refusal.Detail)
			}
			return
		}
	}
	t.Fatalf("%v is no reason of the contract", err)
}

func FuzzEnvelope(f *testing.F) {
	eachExample(f)
	f.Fuzz(func(t *testing.T, message []byte) {
		event, wire, err := decode(message)
		if err != nil {
			mustRefuse(t, message, err)
			return
		}
		if err := check(&event, "opticks", event.SubjectName()); err != nil {
			mustRefuse(t, message, err)
			return
		}
		text, err := encode(event, wire)
		if err != nil {
			t.Fatal(err)
		}
		back, wireBack, err := decode(text)
		if err != nil {
			t.Fatalf("%s was an event, and is none when it is said again: %v", text, err)
		}
		if wireBack != wire || !bytes.Equal(signed(event, "d"), signed(back, "d")) || wire.dataref == "" && !sameJSON(event, back) {
			t.Errorf("%+v %+v came back as %+v %+v", event, wire, back, wireBack)
		}
	})
}

// sameJSON reports whether two events have the same data, as it is signed.
func sameJSON(a, b events.Event) bool {
	signer := kit{signer: ed25519.NewKeyFromSeed(make([]byte, 32))}
	first, firstErr := signer.sign(a, "")
	second, secondErr := signer.sign(b, "")
	return firstErr == nil && secondErr == nil && first == second
}

// Nothing that was changed under way is believed, whatever the change.
func FuzzSignature(f *testing.F) {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32))
	name, err := nkeys.Encode(nkeys.PrefixByteUser, key.Public().(ed25519.PublicKey))
	if err != nil {
		f.Fatal(err)
	}
	id := string(name)
	k := kit{Identity: Identity{Key: id, Speakers: map[string]string{"monitor": id}}, signer: key}
	event, wire := travel(f, k, exit(id))
	original := signed(event, events.Digest(event.Data))
	text, err := encode(event, wire)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(bytes.Replace(text, []byte("/node/"+id), []byte("/monitor"), 1))
	f.Fuzz(func(t *testing.T, message []byte) {
		heard, e, err := decode(message)
		if err != nil {
			mustRefuse(t, message, err)
			return
		}
		digest := e.dataref
		if digest == "" {
			digest = events.Digest(heard.Data)
		}
		err = k.verify(heard, e, time.Time{})
		if same := bytes.Equal(signed(heard, digest), original); err == nil && !same {
			t.Errorf("%s is believed, and was never signed", message)
		}
		if err != nil {
			mustRefuse(t, message, err)
		}
	})
}

// No two events are signed as the same text.
func FuzzSignedText(f *testing.F) {
	f.Add("id", "source", "subject", "cluster", "", "1:x", "i", "dsource", "subject", "cluster", "", "1:x")
	f.Fuzz(func(t *testing.T, a, b, c, d, e, g, a2, b2, c2, d2, e2, g2 string) {
		of := func(id, source, subject, cluster, cause, trace string) []byte {
			return signed(events.Event{ID: id, Kind: events.NodeLost, Source: source, Subject: subject, Cluster: cluster, Cause: cause,
				Traceparent: trace, Time: time.Unix(1, 0)}, "d")
		}
		same := [6]string{a, b, c, d, e, g} == [6]string{a2, b2, c2, d2, e2, g2}
		if bytes.Equal(of(a, b, c, d, e, g), of(a2, b2, c2, d2, e2, g2)) != same {
			t.Errorf("%q and %q: expected another text for each", []string{a, b, c, d, e, g}, []string{a2, b2, c2, d2, e2, g2})
		}
	})
}

// bomb is 64 KiB that stand for more than a payload may have.
func bomb(t *testing.T) []byte {
	var text bytes.Buffer
	writer := gzip.NewWriter(&text)
	for range 2 + events.MaxPayloadBytes>>20 {
		if _, err := writer.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

func TestFewBytesStandForNoMoreThanAPayload(t *testing.T) {
	if plain, err := Decompress(bomb(t), 1<<20); !errors.Is(err, ErrTooLarge) || plain != nil {
		t.Errorf("%d bytes, %v: expected it to be too large", len(plain), err)
	}
}

func FuzzPayload(f *testing.F) {
	f.Add([]byte(`{"a": 1}`))
	f.Add(compress([]byte(`{"a": 1}`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		plain, err := Decompress(data, events.MaxPayloadBytes)
		if len(plain) > events.MaxPayloadBytes {
			t.Errorf("%d bytes stand for %d, expected at most %d", len(data), len(plain), events.MaxPayloadBytes)
		}
		if err == nil {
			data = plain
		}
		if back, err := Decompress(compress(data), len(data)); err != nil || !bytes.Equal(back, data) {
			t.Errorf("%d bytes came back as %d, %v", len(data), len(back), err)
		}
	})
}

func FuzzKit(f *testing.F) {
	key, err := nkeys.FromRawSeed(nkeys.PrefixByteUser, bytes.Repeat([]byte{7}, 32))
	if err != nil {
		f.Fatal(err)
	}
	seed, _ := key.Seed()
	credentials := "-----BEGIN NATS USER JWT-----\ne30\n------END NATS USER JWT------\n\n" +
		"-----BEGIN USER NKEY SEED-----\n" + string(seed) + "\n------END USER NKEY SEED------\n"
	public, _ := key.PublicKey()
	f.Add([]byte(`{"key": "`+public+`", "api": "reknit.js", "speakers": {"monitor": "U"}}`), []byte(credentials))
	f.Add([]byte(`{"key": "U"}`), []byte(credentials))
	f.Add([]byte(`{}`), seed)
	f.Fuzz(func(t *testing.T, identity, credentials []byte) {
		folder := t.TempDir()
		for name, data := range map[string][]byte{IdentityFile: identity, CredentialsFile: credentials} {
			if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		k, err := openKit(Config{Kit: folder}, func() {})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "REKNIT_NATS_KIT: ") {
				t.Errorf("%v: expected the setting", err)
			}
			return
		}
		if _, err := k.sign(exit("n1"), ""); err != nil {
			t.Errorf("a kit that was opened does not sign: %v", err)
		}
		if err := k.verify(exit("n1"), envelope{}, time.Time{}); err == nil || errors.Is(err, ErrCorrupt) {
			t.Error("an event without a signature is believed")
		}
	})
}
