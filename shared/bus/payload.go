package bus

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"

	"github.com/reknit/reknit/events"
)

// putPayload stores the data of an event, compressed, under the digest that it has plain: a plan of 1,000 nodes takes a
// seventh of its JSON (measured), and one writer's compression need not be another's.
func (b *Bus) putPayload(ctx context.Context, bucket string, data []byte) (digest string, err error) {
	return b.put(ctx, bucket, data, func() []byte { return Compress(data) })
}

// getPayload returns the data of an event, verified. It fails as Get does.
func (b *Bus) getPayload(ctx context.Context, bucket, digest string) ([]byte, error) {
	data, err := b.get(ctx, bucket, digest)
	if err != nil {
		return nil, err
	}
	if plain, err := decompress(data); err == nil {
		data = plain
	}
	if events.Digest(data) != digest {
		return nil, fmt.Errorf("get %.80s from %s: %w", digest, bucket, ErrCorrupt)
	}
	return data, nil
}

// Compress returns what gzip makes of data, soon rather than small.
func Compress(data []byte) []byte {
	var buffer bytes.Buffer
	writer, _ := gzip.NewWriterLevel(&buffer, gzip.BestSpeed) // a level that there is
	_, _ = writer.Write(data)                                 // a buffer takes all
	_ = writer.Close()
	return buffer.Bytes()
}

// decompress reads no more than a payload may have: few bytes can stand for many.
func decompress(data []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(reader, events.MaxPayloadBytes+1))
}
