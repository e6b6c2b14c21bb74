package stream

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// Bucket is a key-value bucket with compare-and-set and one revision a key.
type Bucket struct{ stream *Stream }

func newBucket(server *Server, maxBytes int64) *Bucket {
	stream := newStream(server, events.Stream{MaxBytes: maxBytes})
	stream.lastOnly = true
	return &Bucket{stream}
}

// Bound lets the bucket take nothing beyond so many bytes. Zero means unlimited.
func (b *Bucket) Bound(bytes int64) { b.stream.Bound(bytes) }

// Get reads a key, from whatever replica answers. Errors: jetstream.ErrKeyNotFound, ErrNoConnection, ErrNoAnswer.
func (b *Bucket) Get(key string, fate Fate) (Message, error) {
	if err := b.stream.server.read(fate); err != nil {
		return Message{}, err
	}
	stored := b.stream.last[key]
	if fate == Lagging {
		stored = b.stream.replaced[key]
	}
	if stored == nil {
		return Message{}, jetstream.ErrKeyNotFound
	}
	return *stored, nil
}

// Update writes a key whose last revision is the one given, zero for none, and returns the new one. Errors:
// jetstream.ErrKeyRevisionMismatch, and those of Publish.
func (b *Bucket) Update(now time.Time, key string, bytes int64, data any, revision uint64, fate Fate) (uint64, error) {
	message := Message{Subject: key, Bytes: bytes, Data: data}
	ack, err := b.stream.Publish(now, message, &Expect{Subject: key, Sequence: revision}, fate)
	var api *jetstream.APIError
	if errors.As(err, &api) && api.Code == 400 {
		err = fmt.Errorf("%w: %w", err, jetstream.ErrKeyRevisionMismatch)
	}
	return ack.Sequence, err
}

// Size returns what the bucket holds and its bound, in bytes.
func (b *Bucket) Size() (held, bound int64) { return b.stream.Size() }
