package shards

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Bounds of a writer. All puts share one window: the library's own keeps up to 4000 chunks in flight, which the server
// refuses (nats.go#1908).
const (
	windowChunks = 32 // 16 MiB
	windowPause  = 250 * time.Millisecond
	ackTimeout   = time.Minute // a window over a link of 2.5 Mbit/s
	purgeTimeout = 10 * time.Second
	// manifestTimeout is the patience with a server that does not answer. A server that stores the manifest later has
	// the part without its chunks; receivers ask another source.
	manifestTimeout = 30 * time.Second
)

// ErrFull says that a store has no room for a part.
var ErrFull = errors.New("store full")

// PutAs stores data under its digest, sha256: and 64 digits. Content that is there already is left alone. The manifest
// follows when all chunks are stored; a put that fails leaves none of them. Two or more puts at a time hide the
// server's round trips. Nothing is hashed: receivers refuse bytes that are not those of the digest. It fails with
// ErrFull.
func (s *Store) PutAs(ctx context.Context, digest string, data []byte) error {
	sum, err := sumOf(digest)
	if err != nil {
		return fmt.Errorf("put into %s: digest: %w", s.bucket, err)
	}
	if err := s.put(ctx, digest, data, sum); err != nil {
		return fmt.Errorf("put %d bytes into %s: %w", len(data), s.bucket, s.explain(err))
	}
	return nil
}

func (s *Store) put(ctx context.Context, digest string, data []byte, sum [sha256.Size]byte) error {
	if there, err := s.holds(ctx, digest); err != nil || there {
		return err
	}
	id := chunkID(sum)
	subject := chunkSubject(s.bucket, id)
	sequences, err := s.sendChunks(ctx, subject, data)
	kept := false
	if err == nil {
		kept, err = s.publishManifest(ctx, newInfo(s.bucket, digest, id, len(data), sum, sequences))
	}
	if err != nil || !kept {
		return errors.Join(err, s.purge(ctx, subject))
	}
	return nil
}

// holds reports whether a manifest of the digest is there.
func (s *Store) holds(ctx context.Context, digest string) (bool, error) {
	answer, err := s.conn.RequestWithContext(ctx, directSubject(s.bucket)+"."+metaSubject(s.bucket, digest), nil)
	if err != nil {
		return false, err
	}
	found, err := parseManifest(answer)
	return found != nil, err
}

// publishManifest reports false where another writer of the same content was first. It goes on though ctx ends: a
// manifest must not stay behind without its chunks, and only the server's answer tells whether the manifest is stored.
func (s *Store) publishManifest(ctx context.Context, info jetstream.ObjectInfo) (kept bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), manifestTimeout)
	defer cancel()
	data, err := json.Marshal(info)
	if err != nil {
		return false, err
	}
	_, err = s.js.Publish(ctx, metaSubject(s.bucket, info.Name), data, jetstream.WithExpectLastSequencePerSubject(0))
	var refused *jetstream.APIError
	if errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return false, nil
	}
	return err == nil, err
}

// sendChunks returns when every chunk is stored or refused: one stored behind the purge would stay.
func (s *Store) sendChunks(ctx context.Context, subject string, data []byte) (sequences []uint64, err error) {
	var futures []jetstream.PubAckFuture
	for chunk := range slices.Chunk(data, chunkBytes) {
		var future jetstream.PubAckFuture
		if future, err = s.publishChunk(ctx, &nats.Msg{Subject: subject, Data: chunk}); err != nil {
			break
		}
		futures = append(futures, future)
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
func (s *Store) publishChunk(ctx context.Context, chunk *nats.Msg) (jetstream.PubAckFuture, error) {
	for {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		future, err := s.js.PublishMsgAsync(chunk, jetstream.WithStallWait(windowPause))
		if !errors.Is(err, jetstream.ErrTooManyStalledMsgs) {
			return future, err
		}
	}
}

// Get returns a copy of a part. It fails with jetstream.ErrObjectNotFound.
func (s *Store) Get(ctx context.Context, digest string) ([]byte, error) {
	if data := s.lent.copied(digest); data != nil {
		return data, nil
	}
	store, err := s.js.ObjectStore(ctx, s.bucket)
	if err != nil {
		return nil, fmt.Errorf("get from %s: %w", s.bucket, err)
	}
	data, err := store.GetBytes(ctx, digest)
	if err != nil {
		return nil, fmt.Errorf("get %.80s from %s: %w", digest, s.bucket, err)
	}
	return data, nil
}

// Retire removes parts that are not needed any more, manifest first. One that somebody lends stays until he retires it;
// one that is not there is no error.
func (s *Store) Retire(ctx context.Context, digests ...string) error {
	s.lent.storing.Lock()
	defer s.lent.storing.Unlock()
	for _, digest := range digests {
		if stored := s.lent.leave(digest); !stored {
			continue
		}
		if err := s.purge(ctx, metaSubject(s.bucket, digest)); err != nil {
			return fmt.Errorf("retire %.80s from %s: %w", digest, s.bucket, err)
		}
		if err := s.purge(ctx, chunkSubject(s.bucket, strings.TrimPrefix(digest, "sha256:")+".>")); err != nil {
			return fmt.Errorf("retire %.80s from %s: %w", digest, s.bucket, err)
		}
	}
	return nil
}

// purge also cleans up behind a put whose context has ended.
func (s *Store) purge(ctx context.Context, subject string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), purgeTimeout)
	defer cancel()
	return s.stream.Purge(ctx, jetstream.WithPurgeSubject(subject))
}

// explain names the limit that a full store has reached.
func (s *Store) explain(err error) error {
	const storeFailed, storageExceeded = 10077, 10047
	var refused *jetstream.APIError
	if !errors.As(err, &refused) {
		return err
	}
	full := refused.ErrorCode == storeFailed && strings.Contains(refused.Description, "maximum bytes exceeded")
	if full || refused.ErrorCode == storageExceeded {
		return fmt.Errorf("%w: expected at most %d bytes in all (MaxBytes)", ErrFull, s.maxBytes)
	}
	return err
}
