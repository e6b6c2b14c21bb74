package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// A chunk of 512 KiB costs the least processor time a byte (notes: chunks of 128 KiB halve the rate). nats.go ends a
// transfer without a deadline after 5 s in all, so there always is one: objectTimeout carries MaxPayloadBytes over a
// link of 5 Mbit/s.
const (
	chunkBytes    = 512 << 10
	objectTimeout = 2 * time.Minute
	readAttempts  = 3 // a writer of the same content may replace the chunks under a reader
)

// Put stores data under its digest, once: content that is there already and fresh is left alone.
func (b *Bus) Put(ctx context.Context, bucket string, data []byte) (digest string, err error) {
	if len(data) > events.MaxPayloadBytes {
		return "", fmt.Errorf("put into %s: %w: %d bytes, expected at most %d", bucket, ErrTooLarge, len(data), events.MaxPayloadBytes)
	}
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	digest = events.Digest(data)
	store, err := b.store(ctx, bucket)
	if err != nil {
		return "", fmt.Errorf("put into %s: %w", bucket, err)
	}
	info, err := store.GetInfo(ctx, digest)
	if err == nil && time.Since(info.ModTime) < shardLifetime/2 {
		return digest, nil
	}
	meta := jetstream.ObjectMeta{Name: digest, Opts: &jetstream.ObjectMetaOptions{ChunkSize: chunkBytes}}
	if _, err := store.Put(ctx, meta, bytes.NewReader(data)); err != nil {
		return "", fmt.Errorf("put into %s: %w", bucket, err)
	}
	return digest, nil
}

// store returns a bucket. It is looked up once: trainers stand still while parts move, and a look-up is a round trip.
func (b *Bus) store(ctx context.Context, bucket string) (jetstream.ObjectStore, error) {
	if known, ok := b.stores.Load(bucket); ok {
		return known.(jetstream.ObjectStore), nil
	}
	store, err := b.js.ObjectStore(ctx, bucket)
	if err == nil {
		b.stores.Store(bucket, store)
	}
	return store, err
}

// ErrTooLarge says that content is too large to travel.
var ErrTooLarge = errors.New("too large")

// ErrCorrupt says that stored bytes are not those of their name.
var ErrCorrupt = errors.New("content is not that of its digest")

// Get returns the content of a digest, verified. It fails with jetstream.ErrObjectNotFound or ErrCorrupt.
func (b *Bus) Get(ctx context.Context, bucket, digest string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	store, err := b.store(ctx, bucket)
	if err != nil {
		return nil, fmt.Errorf("get from %s: %w", bucket, err)
	}
	var data []byte
	for range readAttempts {
		data, err = read(ctx, store, digest)
		if err == nil || errors.Is(err, jetstream.ErrObjectNotFound) || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("get %.80s from %s: %w", digest, bucket, err)
	}
	return data, nil
}

func read(ctx context.Context, store jetstream.ObjectStore, digest string) ([]byte, error) {
	object, err := store.Get(ctx, digest)
	if err != nil {
		return nil, err
	}
	defer object.Close()
	info, err := object.Info()
	if err != nil {
		return nil, err
	}
	if info.Size > events.MaxPayloadBytes {
		return nil, fmt.Errorf("%w: expected at most %d bytes, got %d", ErrCorrupt, events.MaxPayloadBytes, info.Size)
	}
	data := make([]byte, info.Size)
	if _, err := io.ReadFull(object, data); err != nil {
		return nil, err
	}
	if events.Digest(data) != digest {
		return nil, ErrCorrupt
	}
	return data, nil
}
