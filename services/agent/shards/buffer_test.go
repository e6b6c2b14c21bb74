//go:build unix

package shards

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

func open(t *testing.T, dir, digest string, size int) (buffer *Buffer, left bool) {
	t.Helper()
	buffer, left, err := OpenBuffer(dir, digest, int64(size))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { buffer.Close() })
	return buffer, left
}

// The first buffer is never closed, as that of a process that was killed.
func TestABufferHoldsWhatItsLastOwnerLeft(t *testing.T) {
	dir, want := t.TempDir()+"/new", content(40, testPart)
	killed, left := open(t, dir, events.Digest(want), len(want))
	if left || !bytes.Equal(killed.Bytes, make([]byte, len(want))) {
		t.Fatalf("left by somebody: %t, expected zeros", left)
	}
	copy(killed.Bytes, want[:chunkBytes])
	next, left := open(t, dir, events.Digest(want), len(want))
	if !left || !bytes.Equal(next.Bytes[:chunkBytes], want[:chunkBytes]) || !bytes.Equal(next.Bytes[chunkBytes:], make([]byte, len(want)-chunkBytes)) {
		t.Errorf("left by somebody: %t, expected one chunk and zeros", left)
	}
	if _, left := open(t, dir, events.Digest([]byte("another layer")), len(want)); left {
		t.Error("another layer has the same buffer")
	}
}

func TestARestartedReceiverGoesOnInItsBuffer(t *testing.T) {
	want, dir := cut(content(41, 4*testPart)), t.TempDir()
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want.putInto(t, store.Bucket)
	killed, _ := open(t, dir, events.Digest(want.data), len(want.data))
	copy(killed.Bytes, want.data[:3*testPart+chunkBytes])
	next, left := open(t, dir, events.Digest(want.data), len(want.data))
	for i := range want.parts {
		want.parts[i].Have = left
	}
	transfer := transferFrom(t, store.source())
	if err := transfer.Add(Layer{Into: next.Bytes, Parts: want.parts}); err != nil {
		t.Fatal(err)
	}
	transfer.Seal()
	if err := transfer.Run(within(t)); err != nil || !bytes.Equal(next.Bytes, want.data) {
		t.Fatalf("%v, right bytes: %t", err, bytes.Equal(next.Bytes, want.data))
	}
	if came := transfer.Progress().Sources[0].Bytes; came != testPart {
		t.Errorf("%d bytes came, expected the last part", came)
	}
}

func TestABufferThatIsRemovedLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	buffer, _ := open(t, dir, events.Digest(nil), 10)
	if err := buffer.Remove(); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("%v, %v", files, err)
	}
}

// A process that was killed when it made the file, or a file of another.
func TestABufferOfAnotherLengthIsMadeToFit(t *testing.T) {
	for _, size := range []int{0, 9, 11} {
		dir, digest := t.TempDir(), events.Digest(nil)
		if err := os.WriteFile(dir+"/"+strings.TrimPrefix(digest, "sha256:"), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		if buffer, left := open(t, dir, digest, 10); left || len(buffer.Bytes) != 10 {
			t.Errorf("%d bytes were there: left by somebody: %t, %d bytes", size, left, len(buffer.Bytes))
		}
	}
}

func TestABufferWithoutADigestOrBytesIsRefused(t *testing.T) {
	for says, open := range map[string]func() error{
		"digest: expected sha256:":        func() error { _, _, err := OpenBuffer(t.TempDir(), "../../etc/passwd", 1); return err },
		"bytes: expected at least 1":      func() error { _, _, err := OpenBuffer(t.TempDir(), events.Digest(nil), 0); return err },
		"buffer of " + events.Digest(nil): func() error { _, _, err := OpenBuffer("/dev/null", events.Digest(nil), 1); return err },
	} {
		if err := open(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, expected %q", err, says)
		}
	}
}
