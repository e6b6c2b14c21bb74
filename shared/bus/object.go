package bus

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
)

// Put stores data under its digest, once: content that is there already, whole and fresh, is left alone. It fails with
// ErrTooLarge, or ErrFull where the bucket has no room.
func (b *Bus) Put(ctx context.Context, bucket string, data []byte) (digest string, err error) {
	if len(data) > events.MaxPayloadBytes {
		return "", fmt.Errorf("put into %s: %w: %d bytes, expected at most %d", bucket, ErrTooLarge, len(data),
			events.MaxPayloadBytes)
	}
	digest = events.Digest(data)
	return digest, b.PutAs(ctx, bucket, digest, func() []byte { return data })
}

// PutAs stores content under a name, unless it is there already, whole and fresh.
func (b *Bus) PutAs(ctx context.Context, bucket, name string, content func() []byte) error {
	return b.put(ctx, bucket, name, rand.Text(), content)
}

// put stores content under a name, in chunks on a token, unless it is there already. Chunks that nobody reads any more are dropped:
// those of a put that failed, and of what was replaced, but on a token of the name: what is there is read without its manifest.
func (b *Bus) put(ctx context.Context, bucket, name, token string, content func() []byte) error {
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	store, err := b.store(ctx, bucket)
	if err != nil {
		return fmt.Errorf("put into %s: %w", bucket, err)
	}
	there, err := store.whole(ctx, name)
	if err == nil && time.Since(there.ModTime) < events.FreshAge {
		return nil
	}
	left := token
	if err = b.write(ctx, store, token, name, content()); err != nil {
		err = fmt.Errorf("put into %s: %w", bucket, storeFull(err))
	} else if left = ""; there != nil {
		left = there.NUID // which is replaced
	}
	if left != "" && left != tokenOf(name) && !b.Secured() {
		b.purge(ctx, store, "C."+left)
	}
	return err
}

// write stores chunks on a token and then their manifest, as the library does but for the header by which the manifest would remove
// others. On a token of the name there is one chunk, whoever puts it: it fails where one is there.
func (b *Bus) write(ctx context.Context, store *store, token, name string, data []byte) error {
	var options []jetstream.PublishOpt
	if token == tokenOf(name) {
		options = append(options, jetstream.WithExpectLastSequencePerSubject(0))
	}
	var stored []jetstream.PubAckFuture
	for chunk := range slices.Chunk(data, chunkBytes) {
		future, err := b.js.PublishAsync("$O."+store.bucket+".C."+token, chunk, options...)
		if err != nil {
			return err
		}
		stored = append(stored, future)
	}
	for _, future := range stored {
		select {
		case <-future.Ok():
		case err := <-future.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return b.describe(ctx, store.bucket, token, name, data)
}

// describe writes the manifest of what is in chunks on a token.
func (b *Bus) describe(ctx context.Context, bucket, token, name string, data []byte) error {
	sum := sha256.New()
	sum.Write(data)
	text, err := json.Marshal(jetstream.ObjectInfo{
		ObjectMeta: jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: chunkBytes}},
		Bucket:     bucket, NUID: token, Size: uint64(len(data)), Digest: jetstream.GetObjectDigestValue(sum),
		Chunks: uint32((len(data) + chunkBytes - 1) / chunkBytes),
	})
	if err != nil {
		return err
	}
	_, err = b.js.Publish(ctx, "$O."+bucket+"."+manifestOf(name), text)
	return err
}

func manifestOf(name string) string { return "M." + tokenOf(name) }

// tokenOf is a name as it may stand in a subject.
func tokenOf(name string) string { return base64.URLEncoding.EncodeToString([]byte(name)) }

// purge drops what a bucket has under a subject.
func (b *Bus) purge(ctx context.Context, store *store, subject string) {
	if err := store.stream.Purge(ctx, jetstream.WithPurgeSubject("$O."+store.bucket+"."+subject)); err != nil {
		slog.DebugContext(ctx, "left in the object store until it is old", "subject", subject, "error", err)
	}
}

// Remove drops content that nobody needs any more, if it is there. On a secured installation it stays until it is old: who
// may purge could remove all.
func (b *Bus) Remove(ctx context.Context, bucket, digest string) error {
	if b.Secured() {
		return nil
	}
	return b.remove(ctx, bucket, digest)
}

func (b *Bus) remove(ctx context.Context, bucket, digest string) error {
	store, err := b.store(ctx, bucket)
	if err != nil {
		return fmt.Errorf("remove from %s: %w", bucket, err)
	}
	b.purge(ctx, store, "C."+tokenOf(digest)) // where no manifest tells of it, too
	info, err := store.GetInfo(ctx, digest)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove from %s: %w", bucket, err)
	}
	b.purge(ctx, store, manifestOf(digest))
	b.purge(ctx, store, "C."+info.NUID)
	return nil
}

// store is a bucket and the stream under it.
type store struct {
	jetstream.ObjectStore
	bucket string
	stream jetstream.Stream
}

// objectStream is the name of the stream under a bucket.
func objectStream(bucket string) string { return "OBJ_" + bucket }

// store returns the cluster's bucket of a sort. It is looked up once: trainers stand still while parts move, and a look-up is a round trip.
func (b *Bus) store(ctx context.Context, bucket string) (*store, error) {
	if known, ok := b.stores.Load(bucket); ok {
		return known.(*store), nil
	}
	lane := b.Lane(bucket)
	objects, err := b.js.ObjectStore(ctx, lane)
	if err != nil {
		return nil, err
	}
	stream, err := b.js.Stream(ctx, objectStream(lane))
	if err != nil {
		return nil, err
	}
	found := &store{objects, lane, stream}
	b.stores.Store(bucket, found)
	return found, nil
}

// whole returns what a bucket has under a digest, and fails with ErrIncomplete where its leader lacks chunks of it:
// nats.go writes an object's manifest although a chunk was refused.
func (s *store) whole(ctx context.Context, digest string) (*jetstream.ObjectInfo, error) {
	info, err := s.GetInfo(ctx, digest)
	if err != nil {
		return nil, err
	}
	chunks := "$O." + info.Bucket + ".C." + info.NUID
	held, err := s.stream.Info(ctx, jetstream.WithSubjectFilter(chunks))
	if err != nil {
		return nil, err
	}
	if there := held.State.Subjects[chunks]; there != uint64(info.Chunks) {
		return nil, fmt.Errorf("%w: %d of %d chunks", ErrIncomplete, there, info.Chunks)
	}
	return info, nil
}

// ErrTooLarge says that content is too large to travel.
var ErrTooLarge = errors.New("too large")

// ErrCorrupt says that stored bytes are not those of their name.
var ErrCorrupt = errors.New("content is not that of its digest")

// ErrIncomplete says that a put failed half-way, or is under way.
var ErrIncomplete = errors.New("content is not all there")

// Get returns the content of a digest, verified. It fails with jetstream.ErrObjectNotFound, ErrIncomplete or
// ErrCorrupt; each may be over soon: a replica that lags does not find what is there, and a writer of the same content
// replaces the chunks under a reader.
func (b *Bus) Get(ctx context.Context, bucket, digest string) ([]byte, error) {
	data, err := b.get(ctx, bucket, digest, events.MaxPayloadBytes)
	if err == nil && events.Digest(data) != digest {
		return nil, fmt.Errorf("get %.80s from %s: %w", digest, bucket, ErrCorrupt)
	}
	return data, err
}

// get returns what a bucket has under a name, as it is, or ErrTooLarge where that is more than so many bytes.
func (b *Bus) get(ctx context.Context, bucket, name string, most int) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	store, err := b.store(ctx, bucket)
	if err != nil {
		return nil, fmt.Errorf("get from %s: %w", bucket, err)
	}
	data, err := store.read(ctx, name, most)
	if err != nil {
		return nil, fmt.Errorf("get %.80s from %s: %w", name, bucket, err)
	}
	return data, nil
}

// leastChunk is how many bytes a chunk has at least on average, but for one: each is a request.
const leastChunk = 32 << 10

func (s *store) read(ctx context.Context, name string, most int) ([]byte, error) {
	info, err := s.GetInfo(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case info.Size > uint64(most):
		return nil, fmt.Errorf("%w: expected at most %d bytes, got %d", ErrTooLarge, most, info.Size)
	case uint64(info.Chunks) > info.Size/leastChunk+1:
		return nil, fmt.Errorf("%w: expected chunks of %d bytes or more, got %d of %d in all",
			ErrCorrupt, leastChunk, info.Chunks, info.Size)
	}
	data, sequence := make([]byte, 0, info.Size), uint64(0)
	for i := range info.Chunks { // without a consumer: one would have to tell where in another account its reader is
		chunk, err := s.stream.GetMsg(ctx, sequence+1, jetstream.WithGetMsgSubject("$O."+s.bucket+".C."+info.NUID))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil, fmt.Errorf("%w: %d of %d chunks", ErrIncomplete, i, info.Chunks)
		}
		if err != nil {
			return nil, err
		}
		data, sequence = append(data, chunk.Data...), chunk.Sequence
		if uint64(len(data)) > info.Size {
			return nil, ErrCorrupt
		}
	}
	return data, nil
}
