//go:build unix

package shards

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
)

func open(t *testing.T, dir string, want layer) *Buffer {
	t.Helper()
	buffer, err := OpenBuffer(dir, events.Digest(want.data), int64(len(want.data)), want.parts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { buffer.Close() })
	return buffer
}

// fill runs a transfer into a buffer and returns how many bytes came.
func fill(t *testing.T, buffer *Buffer, want layer, source Source) int64 {
	t.Helper()
	transfer := transferFrom(t, source)
	if err := transfer.Add(buffer.Layer()); err != nil {
		t.Fatal(err)
	}
	transfer.Seal()
	if err := transfer.Run(within(t)); err != nil || !bytes.Equal(buffer.Bytes, want.data) {
		t.Fatalf("%v, right bytes: %t", err, bytes.Equal(buffer.Bytes, want.data))
	}
	return transfer.Progress().Sources[0].Bytes
}

// killed fetches some of four parts into a buffer, which is never closed then, and returns how many
// bytes came.
func killed(t *testing.T, dir string, want layer, store *Store) int64 {
	t.Helper()
	ctx, kill := context.WithCancel(within(t))
	transfer := transferFrom(t, (&link{rate: 40 << 20, hangAt: 3*testPart + testPart/2 + chunkBytes/2}).open(t, store))
	if err := transfer.Add(open(t, dir, want).Layer()); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- transfer.Run(ctx) }()
	came := func() int64 { return transfer.Progress().Sources[0].Bytes }
	for had := int64(-1); came() < testPart || came() > had; time.Sleep(100 * time.Millisecond) {
		had = came()
	}
	kill()
	<-ended
	return came()
}

func TestARestartedReceiverFetchesOnlyTheChunksThatAreMissing(t *testing.T) {
	want, dir := cut(content(41, 4*testPart+777)), t.TempDir()
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want.putInto(t, store.Bucket)
	had := killed(t, dir, want, store)
	if came := fill(t, open(t, dir, want), want, store.source()); had+came != int64(len(want.data)) || came == 0 {
		t.Errorf("%d bytes came, then %d, expected %d together", had, came, len(want.data))
	}
	if came := fill(t, open(t, dir, want), want, store.source()); came != 0 {
		t.Errorf("%d bytes came to a buffer that was full", came)
	}
}

// The journal says that the chunk is there.
func TestADamagedBufferIsMendedByTheChunk(t *testing.T) {
	want, dir := cut(content(42, 3*testPart)), t.TempDir()
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want.putInto(t, store.Bucket)
	fill(t, open(t, dir, want), want, store.source())
	damaged := open(t, dir, want)
	damaged.Bytes[testPart+chunkBytes] ^= 1
	if came := fill(t, damaged, want, store.source()); came != chunkBytes {
		t.Errorf("%d bytes came, expected a chunk", came)
	}
}

func TestOfALayerThatIsCutAnewOnlyWholePartsAreFound(t *testing.T) {
	want, dir := cut(content(43, 4*testPart)), t.TempDir()
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want.putInto(t, store.Bucket)
	killed(t, dir, want, store)
	anew := open(t, dir, layer{data: want.data, parts: want.parts[1:]})
	anew.Close()
	next, whole := open(t, dir, want), int64(0)
	for _, part := range want.parts {
		if bytes.Equal(next.Bytes[part.First:part.End], want.data[part.First:part.End]) {
			whole += testPart
		}
	}
	if came := fill(t, next, want, store.source()); came != int64(len(want.data))-whole || whole == 0 {
		t.Errorf("%d bytes came, %d were in whole parts", came, whole)
	}
}

func TestABufferThatIsRemovedLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := open(t, dir, cut(content(44, 10))).Remove(); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("%v, %v", files, err)
	}
}

// A process that was killed when it made the file, or a file of another.
func TestABufferOfAnotherLengthIsMadeToFit(t *testing.T) {
	want := cut(content(45, 10))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	want.putInto(t, store.Bucket)
	for _, size := range []int{0, 9, 10, 11, 99} {
		dir, stranger := t.TempDir(), bytes.Repeat([]byte{1}, size)
		if err := os.WriteFile(dir+"/"+strings.TrimPrefix(events.Digest(want.data), "sha256:"), stranger, 0o600); err != nil {
			t.Fatal(err)
		}
		buffer := open(t, dir, want)
		if len(buffer.Bytes) != 10 {
			t.Errorf("%d bytes were there: %d bytes", size, len(buffer.Bytes))
		}
		fill(t, buffer, want, store.source())
	}
}

func TestABufferWithoutADigestOrBytesIsRefused(t *testing.T) {
	digest := events.Digest(nil)
	for says, open := range map[string]func() error{
		"digest: expected sha256:":   func() error { _, err := OpenBuffer(t.TempDir(), "../../etc/passwd", 1, nil); return err },
		"bytes: expected at least 1": func() error { _, err := OpenBuffer(t.TempDir(), digest, 0, nil); return err },
		"part 0: First and End": func() error {
			_, err := OpenBuffer(t.TempDir(), digest, 1, []Part{{Digest: digest, End: 2}})
			return err
		},
		"buffer of " + digest + ": mk": func() error { _, err := OpenBuffer("/dev/null", digest, 1, nil); return err },
	} {
		if err := open(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, expected %q", err, says)
		}
	}
}
