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

// putPayload stores the data of an event, compressed, under the digest that it has plain: a plan of 1,000 nodes takes a seventh of its JSON
// (measured), and one writer's compression need not be another's. The first writer of data that is one chunk puts it on the digest's own
// token: a plan of 2,048 nodes is one read for each of them.
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
		there, err := b.chunk(ctx, bucket, digest)
		if err == nil && time.Since(there.Time) < events.FreshAge {
			if plain, _ := unpacked(there.Data, len(data)); bytes.Equal(plain, data) { // of a put that ended before its manifest
				return digest, storeFull(b.describe(ctx, b.Lane(bucket), tokenOf(digest), digest, there.Data))
			}
		}
	}
	return digest, b.put(ctx, bucket, digest, rand.Text(), content)
}

// getPayload returns the data of an event, verified. It fails as Get does, and with ErrTooLarge as soon as there is more than most
// bytes of it. A payload in several chunks, or with another's token, takes two requests more, for its manifest and its first chunk,
// and one for each further chunk. Before any of it is unpacked it has arrived.
func (b *Bus) getPayload(ctx context.Context, bucket, digest string, most int, arrives func()) ([]byte, error) {
	chunk, err := b.chunk(ctx, bucket, digest)
	if err == nil {
		arrives()
		if data, err := unpacked(chunk.Data, most); err == nil && events.Digest(data) == digest {
			return data, nil
		}
	} else if !errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, err
	}
	data, err := b.get(ctx, bucket, digest, mostPacked(most))
	if err == nil {
		arrives()
		data, err = unpacked(data, most)
	}
	if err == nil && events.Digest(data) != digest {
		err = ErrCorrupt
	}
	if err != nil {
		return nil, fmt.Errorf("get %.80s from %s: %w", digest, bucket, err)
	}
	return data, nil
}

// unpacked returns what compress was given, and anything else as it is: at most so many bytes, or ErrTooLarge.
func unpacked(data []byte, most int) ([]byte, error) {
	plain, err := Decompress(data, most)
	switch {
	case err == nil || errors.Is(err, ErrTooLarge):
		return plain, err
	case len(data) > most:
		return nil, ErrTooLarge
	}
	return data, nil
}

// mostPacked is how many bytes compress makes of so many at most: what it cannot make smaller has a few more.
func mostPacked(most int) int { return most + most>>8 + 1<<10 }

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

// Decompress reads what compress wrote. It fails with ErrTooLarge once there are more than most bytes: few can stand for many.
func Decompress(data []byte, most int) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(reader, int64(most)+1))
	if err == nil && len(plain) > most {
		return nil, ErrTooLarge
	}
	return plain, err
}
