package shards

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Bounds of a writer. All puts share one window: the library's own keeps up to 4000 chunks in flight, which the server
// refuses (nats.go#1908).
const (
	windowChunks = 32 // 16 MiB
	windowPause  = 250 * time.Millisecond
	ackTimeout   = time.Minute // of a chunk, while the processor has much else to do
	purgeTimeout = 10 * time.Second
)

// store writes a part into the bucket as the library's Put does, but that it hashes nothing: the digest is known, and hashing is
// most of what a put costs. It returns the record. A write that fails leaves nothing.
func (s *Store) store(ctx context.Context, digest string, data []byte) (record []byte, err error) {
	sum, err := sumOf(digest)
	if err != nil {
		return nil, fmt.Errorf("digest: %w", err)
	}
	id := chunkID(sum)
	subject := chunkSubject(s.bucket, id)
	sequences, err := s.sendChunks(ctx, subject, data)
	if err == nil {
		record, err = json.Marshal(newInfo(s.bucket, digest, id, len(data), sum, sequences))
	}
	if err == nil {
		_, err = s.js.Publish(context.WithoutCancel(ctx), metaSubject(s.bucket, digest), record)
	}
	if err != nil {
		return nil, errors.Join(err, s.purge(metaSubject(s.bucket, digest)), s.purge(subject))
	}
	return record, nil
}

// unstore removes a part, its record first.
func (s *Store) unstore(digest string, record []byte) error {
	var info jetstream.ObjectInfo
	if err := json.Unmarshal(record, &info); err != nil {
		return err
	}
	if err := s.purge(metaSubject(s.bucket, digest)); err != nil {
		return err
	}
	return s.purge(chunkSubject(s.bucket, info.NUID))
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

// publishChunk waits for room in the window. It is not tried again: the memory may be its owner's by then.
func (s *Store) publishChunk(ctx context.Context, chunk *nats.Msg) (jetstream.PubAckFuture, error) {
	for {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		future, err := s.js.PublishMsgAsync(chunk, jetstream.WithStallWait(windowPause), jetstream.WithRetryAttempts(0))
		if !errors.Is(err, jetstream.ErrTooManyStalledMsgs) {
			return future, err
		}
	}
}

// purge goes on though whoever wrote has given up.
func (s *Store) purge(subject string) error {
	ctx, cancel := context.WithTimeout(context.Background(), purgeTimeout)
	defer cancel()
	return s.stream.Purge(ctx, jetstream.WithPurgeSubject(subject))
}
