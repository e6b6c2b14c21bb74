package bus

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// putPayload stores the data of an event, compressed, under the digest that it has plain: a plan of 1,000 nodes takes a
// seventh of its JSON (measured), and one writer's compression need not be another's. Who is first to put what is one chunk does
// so on the digest's own token: a plan of 2,048 nodes is one read for each of them.
func (b *Bus) putPayload(ctx context.Context, bucket string, data []byte) (digest string, err error) {
	if len(data) > events.MaxPayloadBytes {
		return "", fmt.Errorf("%w: %d bytes, expected at most %d", ErrTooLarge, len(data), events.MaxPayloadBytes)
	}
	digest = events.Digest(data)
	compressed := compress(data)
	content := func() []byte { return compressed }
	if len(compressed) <= chunkBytes {
		err = b.put(ctx, bucket, digest, tokenOf(digest), content)
		var api *jetstream.APIError
		if !errors.As(err, &api) || !wrongLastSequence(api) {
			return digest, err
		}
		if there, err := b.chunk(ctx, bucket, digest); err == nil && time.Since(there.Time) < events.FreshAge &&
			events.Digest(unpacked(there.Data)) == digest { // of a put that ended before its manifest
			return digest, storeFull(b.describe(ctx, b.Lane(bucket), tokenOf(digest), digest, there.Data))
		}
	}
	return digest, b.put(ctx, bucket, digest, rand.Text(), content)
}

// getPayload returns the data of an event, verified. It fails as Get does. What is several chunks, or has another's token, takes
// two requests more, for its manifest and its first chunk, and one for each further chunk.
func (b *Bus) getPayload(ctx context.Context, bucket, digest string) ([]byte, error) {
	chunk, err := b.chunk(ctx, bucket, digest)
	if err == nil {
		if data := unpacked(chunk.Data); events.Digest(data) == digest {
			return data, nil
		}
	} else if !errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, err
	}
	data, err := b.get(ctx, bucket, digest)
	if err != nil {
		return nil, err
	}
	if data = unpacked(data); events.Digest(data) != digest {
		return nil, fmt.Errorf("get %.80s from %s: %w", digest, bucket, ErrCorrupt)
	}
	return data, nil
}

// unpacked returns what compress was given, and anything else as it is.
func unpacked(data []byte) []byte {
	if plain, err := Decompress(data); err == nil {
		return plain
	}
	return data
}

// chunk returns what is on the token of a digest.
func (b *Bus) chunk(ctx context.Context, bucket, digest string) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	store, err := b.store(ctx, bucket)
	if err != nil {
		return nil, fmt.Errorf("get from %s: %w", bucket, err)
	}
	chunk, err := store.stream.GetMsg(ctx, 1, jetstream.WithGetMsgSubject("$O."+store.bucket+".C."+tokenOf(digest)))
	if err != nil {
		return nil, fmt.Errorf("get %.80s from %s: %w", digest, bucket, err)
	}
	return chunk, nil
}

func compress(data []byte) []byte {
	var buffer bytes.Buffer
	writer, _ := gzip.NewWriterLevel(&buffer, gzip.BestSpeed) // a level that there is
	_, _ = writer.Write(data)                                 // a buffer takes all
	_ = writer.Close()
	return buffer.Bytes()
}

// Decompress reads what compress wrote, no more than a payload may have: few bytes can stand for many.
func Decompress(data []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(reader, events.MaxPayloadBytes+1))
}
