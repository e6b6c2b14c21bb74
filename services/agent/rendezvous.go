package agent

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// MostRendezvousBytes bounds a value that trainers exchange.
const MostRendezvousBytes = 1<<20 - 4<<10 // the hub's largest message, and room for its headers

// ErrNoValue says that nobody has set a key.
var ErrNoValue = errors.New("nobody has set the key")

// Rendezvous is where the trainers of a generation tell each other what they need to find together, such as the
// addresses of a process group. Its values are the hub's, so that they outlive whoever set them, and live as long as
// the generation is in force. Its methods may be called from any goroutine.
type Rendezvous struct {
	bucket jetstream.KeyValue
	stream jetstream.Stream // under the bucket
	prefix string
	kept   bool // no key is dropped before it is old
}

// Rendezvous returns that of a generation of the session's cluster.
func (s *Session) Rendezvous(ctx context.Context, generation uint64) (*Rendezvous, error) {
	js, lane := s.bus.JetStream(), s.bus.Lane(events.RendezvousBucket)
	bucket, err := js.KeyValue(ctx, lane)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", lane, err)
	}
	stream, err := js.Stream(ctx, "KV_"+lane)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", lane, err)
	}
	return &Rendezvous{bucket, stream, fmt.Sprintf("%s.%d.", s.config.Cluster, generation), s.bus.Secured()}, nil
}

// name returns a key as the bucket allows it.
func (r *Rendezvous) name(key string) string {
	return r.prefix + base64.RawURLEncoding.EncodeToString([]byte(key))
}

// Set sets a key, whatever it was, to MostRendezvousBytes at most: who says more at once loses the connection to the hub.
func (r *Rendezvous) Set(ctx context.Context, key string, value []byte) error {
	if len(value) > MostRendezvousBytes {
		return fmt.Errorf("value of %q: expected at most %d bytes, got %d", key, MostRendezvousBytes, len(value))
	}
	_, err := r.bucket.Put(ctx, r.name(key), value)
	return err
}

// Get returns the value of a key, or ErrNoValue.
func (r *Rendezvous) Get(ctx context.Context, key string) ([]byte, error) {
	entry, err := r.bucket.Get(ctx, r.name(key))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, ErrNoValue
	}
	if err != nil {
		return nil, err
	}
	return entry.Value(), nil
}

// Await looks again and again for a key, for no node may have the hub deliver to it: at most a quarter of the wait passes until it sees
// that the key is set, and no more than lastLook.
const (
	firstLook = 5 * time.Millisecond
	lastLook  = 500 * time.Millisecond
)

// Await returns the value of a key once it is set, or the error of ctx with why the last look failed. It waits through reconnections
// and restarts of the hub.
func (r *Rendezvous) Await(ctx context.Context, key string) ([]byte, error) {
	last := ErrNoValue
	for began := time.Now(); ; {
		look, cancel := context.WithTimeout(ctx, lookTime)
		value, err := r.Get(look, key)
		cancel()
		if err == nil {
			return value, nil
		}
		if ctx.Err() == nil {
			last = err // else the look ended with ctx
		}
		select {
		case <-time.After(min(max(firstLook, time.Since(began)/4), lastLook)):
		case <-ctx.Done():
			return nil, fmt.Errorf("%q: %w: %s", key, ctx.Err(), last.Error()) // not wrapped: a look has a deadline of its own
		}
	}
}

// Add adds to a key that is a number, 0 at first, and returns the sum. It tries again while others add at the same
// time.
func (r *Rendezvous) Add(ctx context.Context, key string, number int64) (int64, error) {
	for ctx.Err() == nil {
		sum, revision := number, uint64(0)
		entry, err := r.bucket.Get(ctx, r.name(key))
		if err == nil {
			before, notNumber := strconv.ParseInt(string(entry.Value()), 10, 64)
			if notNumber != nil {
				return 0, fmt.Errorf("value of %q: expected a number, got %.40q", key, entry.Value())
			}
			sum, revision = before+number, entry.Revision()
		} else if !errors.Is(err, jetstream.ErrKeyNotFound) {
			return 0, err
		}
		_, err = r.bucket.Update(ctx, r.name(key), strconv.AppendInt(nil, sum, 10), revision)
		if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return sum, err
		}
	}
	return 0, ctx.Err()
}

// Sweep drops all keys. On a secured installation they are left until they are old: a node that may purge its own could
// purge all others'.
func (r *Rendezvous) Sweep(ctx context.Context) error {
	if r.kept {
		return nil
	}
	return r.stream.Purge(ctx, jetstream.WithPurgeSubject("$KV."+r.bucket.Bucket()+"."+r.prefix+">"))
}
