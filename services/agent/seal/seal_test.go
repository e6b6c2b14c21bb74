package seal

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

func content(bytes int) []byte {
	random, data := rand.New(rand.NewPCG(1, 1)), make([]byte, bytes)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	return data
}

func TestAnyRangeOfASealedPartOpensByItself(t *testing.T) {
	key, part := New(), content(100_000)
	sealed := bytes.Clone(part)
	key.Apply("sha256:a", 0, sealed)
	random := rand.New(rand.NewPCG(2, 2))
	for range 200 {
		first := random.IntN(len(part))
		end := first + random.IntN(len(part)-first+1)
		opened := bytes.Clone(sealed[first:end])
		key.Apply("sha256:a", int64(first), opened)
		if !bytes.Equal(opened, part[first:end]) {
			t.Fatalf("[%d, %d) opens to something else", first, end)
		}
	}
}

func TestNoTwoContentsAndNoTwoKeysShareAStream(t *testing.T) {
	one, other := New(), New()
	streams := map[string]string{}
	for name, stream := range map[string][]byte{
		"one key": sealOf(one, "sha256:a"), "another digest": sealOf(one, "sha256:b"), "another key": sealOf(other, "sha256:a"),
		"nothing": make([]byte, 64),
	} {
		if before, known := streams[string(stream)]; known {
			t.Errorf("%s and %s give one stream", name, before)
		}
		streams[string(stream)] = name
	}
}

// sealOf is the stream that a part is sealed with.
func sealOf(key Key, digest string) []byte {
	zeros := make([]byte, 64)
	key.Apply(digest, 0, zeros)
	return zeros
}

func TestWithoutAKeyNothingIsSealed(t *testing.T) {
	key, err := Read(Key(nil).Text())
	if err != nil {
		t.Fatal(err)
	}
	if stream := sealOf(key, "sha256:a"); !bytes.Equal(stream, make([]byte, 64)) {
		t.Errorf("expected the bytes as they are, got %x", stream)
	}
}

func TestAKeyIsReadAsItWasWrittenAndNothingElseIs(t *testing.T) {
	key := New()
	if read, err := Read(key.Text()); err != nil || !bytes.Equal(read, key) {
		t.Errorf("another key: %v", err)
	}
	for _, text := range []string{"c2hvcnQ=", "no base64", New().Text() + New().Text()} {
		if _, err := Read(text); err == nil || !strings.Contains(err.Error(), "expected 32 bytes in base64") {
			t.Errorf("%q: expected an error that says what is expected, got %v", text, err)
		}
	}
}
