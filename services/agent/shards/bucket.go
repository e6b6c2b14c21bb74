package shards

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Bounds of a writer. All puts into a bucket share one window: the library's own keeps up to 4000 chunks in flight,
// which the server refuses (nats.go#1908).
const (
	windowChunks = 32 // 16 MiB
	windowPause  = 250 * time.Millisecond
	ackTimeout   = time.Minute // a window over a link of 2.5 Mbit/s
	purgeTimeout = 10 * time.Second
	// manifestTimeout is the patience with a server that does not answer. Should it store the manifest behind that, the part
	// is there without its chunks; receivers ask another source.
	manifestTimeout = 30 * time.Second
)

// ErrFull says that a bucket has no room for a part.
var ErrFull = errors.New("store full")

// Bucket puts parts into an object store's bucket. Its methods may be called by several goroutines; two or more puts
// at a time hash one part while another travels.
type Bucket struct {
	conn     *nats.Conn
	js       jetstream.JetStream
	stream   jetstream.Stream
	name     string
	maxBytes int64
	lifetime time.Duration // of what is in it; zero for ever
}

// OpenBucket binds to a bucket that exists, such as the hub's. It fails with jetstream.ErrStreamNotFound.
func OpenBucket(ctx context.Context, conn *nats.Conn, name string) (*Bucket, error) {
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(windowChunks), jetstream.WithPublishAsyncTimeout(ackTimeout))
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", name, err)
	}
	stream, err := js.Stream(ctx, streamName(name))
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", name, err)
	}
	config := stream.CachedInfo().Config
	return &Bucket{conn: conn, js: js, stream: stream, name: name, maxBytes: config.MaxBytes, lifetime: config.MaxAge}, nil
}

// Put stores data under its digest and returns that. Content that is there already, and fresh, is left alone. The
// manifest follows when all chunks are stored; a put that fails leaves none of them. It fails with ErrFull.
func (b *Bucket) Put(ctx context.Context, data []byte) (digest string, err error) {
	digest = digestOf(sha256.Sum256(data))
	return digest, b.PutAs(ctx, digest, data)
}

// PutAs stores data whose digest is known, as Put does: it hashes nothing. Receivers refuse what is not that of its digest.
func (b *Bucket) PutAs(ctx context.Context, digest string, data []byte) error {
	sum, err := hex.DecodeString(strings.TrimPrefix(digest, "sha256:"))
	if err != nil || len(sum) != sha256.Size || !strings.HasPrefix(digest, "sha256:") {
		return fmt.Errorf("put into %s: digest: expected sha256: and 64 digits, got %.80q", b.name, digest)
	}
	if err := b.put(ctx, digest, data, [sha256.Size]byte(sum)); err != nil {
		return fmt.Errorf("put %d bytes into %s: %w", len(data), b.name, b.explain(err))
	}
	return nil
}

func (b *Bucket) put(ctx context.Context, name string, data []byte, sum [sha256.Size]byte) error {
	old, err := b.find(ctx, name)
	if err != nil {
		return err
	}
	if old.present() && (b.lifetime == 0 || time.Since(old.stored) < b.lifetime/2) {
		return nil
	}
	id := chunkID(sum)
	manifest, err := b.publishChunks(ctx, name, id, data, sum)
	kept := false
	if err == nil {
		kept, err = b.publishManifest(ctx, manifest, old)
	}
	if err != nil || !kept {
		return errors.Join(err, b.purge(ctx, chunkSubject(b.name, id)))
	}
	if old.present() {
		return b.purge(ctx, chunkSubject(b.name, old.info.NUID))
	}
	return nil
}

func (o *object) present() bool { return o != nil && !o.info.Deleted }

// find returns the manifest of a digest, or nil.
func (b *Bucket) find(ctx context.Context, digest string) (*object, error) {
	answer, err := b.conn.RequestWithContext(ctx, directSubject(b.name)+"."+metaSubject(b.name, digest), nil)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseObject(answer)
}

// publishManifest reports false where another writer of the same content was first. It takes its time though ctx ends: a
// manifest must not stay behind without its chunks, so that it must be known whether it is stored.
func (b *Bucket) publishManifest(ctx context.Context, manifest *nats.Msg, old *object) (kept bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), manifestTimeout)
	defer cancel()
	replaces := uint64(0)
	if old != nil {
		replaces = old.sequence
	}
	_, err = b.js.PublishMsg(ctx, manifest, jetstream.WithExpectLastSequencePerSubject(replaces))
	var refused *jetstream.APIError
	if errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return false, nil
	}
	return err == nil, err
}

// publishChunks stores the chunks and returns the manifest that is to follow.
func (b *Bucket) publishChunks(ctx context.Context, digest, id string, data []byte, sum [sha256.Size]byte) (manifest *nats.Msg, err error) {
	sequences, err := b.sendChunks(ctx, chunkSubject(b.name, id), data)
	if err != nil {
		return nil, err
	}
	manifest = nats.NewMsg(metaSubject(b.name, digest))
	manifest.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	manifest.Data, err = newInfo(b.name, digest, id, len(data), sum, sequences)
	return manifest, err
}

// sendChunks returns when every chunk is stored or refused: one stored behind the purge would stay.
func (b *Bucket) sendChunks(ctx context.Context, subject string, data []byte) (sequences []uint64, err error) {
	var futures []jetstream.PubAckFuture
	for ; len(data) > 0 && err == nil; data = data[min(chunkBytes, len(data)):] {
		var future jetstream.PubAckFuture
		if future, err = b.publishChunk(ctx, &nats.Msg{Subject: subject, Data: data[:min(chunkBytes, len(data))]}); err == nil {
			futures = append(futures, future)
		}
	}
	patience, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(purgeTimeout, cancel) })()
	for _, future := range futures {
		select {
		case ack := <-future.Ok():
			sequences = append(sequences, ack.Sequence)
		case refused := <-future.Err():
			err = cmp.Or(err, refused)
		case <-patience.Done():
			return nil, ctx.Err()
		}
	}
	return sequences, cmp.Or(err, ctx.Err())
}

// publishChunk waits for room in the window.
func (b *Bucket) publishChunk(ctx context.Context, chunk *nats.Msg) (jetstream.PubAckFuture, error) {
	for {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		future, err := b.js.PublishMsgAsync(chunk, jetstream.WithStallWait(windowPause))
		if !errors.Is(err, jetstream.ErrTooManyStalledMsgs) {
			return future, err
		}
	}
}

// Get returns a part. It fails with jetstream.ErrObjectNotFound.
func (b *Bucket) Get(ctx context.Context, digest string) ([]byte, error) {
	store, err := b.js.ObjectStore(ctx, b.name)
	if err != nil {
		return nil, fmt.Errorf("get from %s: %w", b.name, err)
	}
	data, err := store.GetBytes(ctx, digest)
	if err != nil {
		return nil, fmt.Errorf("get %.80s from %s: %w", digest, b.name, err)
	}
	return data, nil
}

// Retire removes parts that no negotiation needs any more, manifest first. A part that is not there is no error.
func (b *Bucket) Retire(ctx context.Context, digests ...string) error {
	for _, digest := range digests {
		if err := b.purge(ctx, metaSubject(b.name, digest)); err != nil {
			return fmt.Errorf("retire %.80s from %s: %w", digest, b.name, err)
		}
		if err := b.purge(ctx, chunkSubject(b.name, strings.TrimPrefix(digest, "sha256:")+".>")); err != nil {
			return fmt.Errorf("retire %.80s from %s: %w", digest, b.name, err)
		}
	}
	return nil
}

// purge also cleans up behind a put whose context has ended.
func (b *Bucket) purge(ctx context.Context, subject string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), purgeTimeout)
	defer cancel()
	return b.stream.Purge(ctx, jetstream.WithPurgeSubject(subject))
}

// explain names the limit that a full bucket has reached.
func (b *Bucket) explain(err error) error {
	const storeFailed, storageExceeded = 10077, 10047
	var refused *jetstream.APIError
	if !errors.As(err, &refused) {
		return err
	}
	full := refused.ErrorCode == storeFailed && strings.Contains(refused.Description, "maximum bytes exceeded")
	if full || refused.ErrorCode == storageExceeded {
		return fmt.Errorf("%w: expected at most %d bytes in all (MaxBytes)", ErrFull, b.maxBytes)
	}
	return err
}
