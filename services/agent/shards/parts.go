package shards

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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
	purgePause   = 250 * time.Millisecond // before a purge that failed is tried again
)

// put is a piece on its way into the bucket.
type put struct {
	piece piece
	sum   [sha256.Size]byte
	id    string // of its chunks
	size  int

	acks      []jetstream.PubAckFuture // of the chunks
	sequences []uint64                 // of those that are there
}

// send begins to write a piece into the bucket as the library's Put does, but that it does not hash a whole part: the digest is known, and
// hashing is most of what a put costs. The memory is not read any more when it returns.
func (s *Store) send(ctx context.Context, of piece, data []byte) (sent put, err error) {
	sum, err := sumOf(of.digest)
	if err != nil {
		return sent, fmt.Errorf("digest: %w", err)
	}
	sent = put{piece: of, sum: sum, id: chunkID(of), size: len(data)}
	hash := sha256.New()
	for chunk := range slices.Chunk(data, chunkBytes) {
		var future jetstream.PubAckFuture
		if future, err = s.publishChunk(ctx, &nats.Msg{Subject: chunkSubject(s.bucket, sent.id), Data: chunk}); err != nil {
			return sent, err
		}
		sent.acks = append(sent.acks, future)
		if !of.whole() {
			hash.Write(chunk) // once it is on its way
		}
		s.notice(&sent)
	}
	if !of.whole() {
		hash.Sum(sent.sum[:0])
	}
	return sent, ctx.Err()
}

// notice has chunks go to readers that are in the bucket by now.
func (s *Store) notice(sent *put) {
	for len(sent.sequences) < len(sent.acks) {
		select {
		case ack := <-sent.acks[len(sent.sequences)].Ok():
			s.arrived(sent, ack.Sequence)
		default:
			return
		}
	}
}

func (s *Store) arrived(sent *put, sequence uint64) {
	sent.sequences = append(sent.sequences, sequence)
	s.came(sent.piece.name(), len(sent.sequences)-1, sequence)
}

// settle waits until every chunk is stored or refused, for one stored behind the purge would stay: until the store is closed, or
// ackTimeout is over. Unless the put failed it stores the record, and returns that.
func (s *Store) settle(sent put, failed error) (stored stored, err error) {
	for _, chunk := range sent.acks[len(sent.sequences):] {
		select {
		case ack := <-chunk.Ok():
			if failed == nil {
				s.arrived(&sent, ack.Sequence)
			}
		case refused := <-chunk.Err():
			failed = cmp.Or(failed, refused)
		case <-s.gives.open.Done():
			return stored, s.gives.open.Err()
		}
	}
	if failed != nil {
		return stored, failed
	}
	name := sent.piece.name()
	record, err := json.Marshal(newInfo(s.bucket, name, sent.id, sent.size, sent.sum, sent.sequences))
	if err != nil {
		return stored, err
	}
	ctx, cancel := context.WithTimeout(s.gives.open, ackTimeout)
	defer cancel()
	_, err = s.js.Publish(ctx, metaSubject(s.bucket, name), record)
	stored.record, stored.sequences = record, sent.sequences
	return stored, err
}

// unstore removes a piece, its record first, and what is there of puts of it that failed. It tries until it holds, or the store is closed.
func (s *Store) unstore(name string) {
	of, _ := parsePiece(name)
	for warned := false; s.gives.open.Err() == nil; warned = true {
		err := s.purge(metaSubject(s.bucket, name))
		if err == nil {
			err = s.purge(chunkSubject(s.bucket, of.chunks()+".*"))
		}
		if err == nil {
			return
		}
		if !warned && s.gives.open.Err() == nil {
			slog.Warn("a part that was given cannot be removed yet", "bucket", s.bucket, "part", name, "error", err)
		}
		select {
		case <-time.After(purgePause):
		case <-s.gives.open.Done():
		}
	}
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

func (s *Store) purge(subject string) error {
	ctx, cancel := context.WithTimeout(s.gives.open, purgeTimeout)
	defer cancel()
	return s.stream.Purge(ctx, jetstream.WithPurgeSubject(subject))
}
