package seal

import (
	"bytes"
	"encoding/base64"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kitOf writes a kit with a key, and opens it.
func kitOf(t *testing.T, secret string) Key {
	t.Helper()
	folder := t.TempDir()
	text := base64.StdEncoding.EncodeToString([]byte(secret)) + "\n"
	if err := os.WriteFile(filepath.Join(folder, File), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func content(bytes int) []byte {
	random, data := rand.New(rand.NewPCG(1, 1)), make([]byte, bytes)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	return data
}

func TestAnyRangeOfASealedPartOpensByItself(t *testing.T) {
	key, part := kitOf(t, strings.Repeat("k", Bytes)), content(100_000)
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
	one, other := kitOf(t, strings.Repeat("k", Bytes)), kitOf(t, strings.Repeat("l", Bytes))
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

func TestWithoutAKitNothingIsSealed(t *testing.T) {
	key, err := Open("")
	if err != nil {
		t.Fatal(err)
	}
	if stream := sealOf(key, "sha256:a"); !bytes.Equal(stream, make([]byte, 64)) {
		t.Errorf("expected the bytes as they are, got %x", stream)
	}
}

func TestAKitWithoutAGoodKeyIsRefusedByItsField(t *testing.T) {
	folder := t.TempDir()
	if _, err := Open(folder); err == nil || !strings.Contains(err.Error(), "REKNIT_NATS_KIT") || !strings.Contains(err.Error(), File) {
		t.Errorf("without a key: expected an error that names the kit and the file, got %v", err)
	}
	if err := os.WriteFile(filepath.Join(folder, File), []byte("c2hvcnQ="), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(folder); err == nil || !strings.Contains(err.Error(), "expected 32 bytes in base64") {
		t.Errorf("with a short key: expected an error that says what is expected, got %v", err)
	}
}
