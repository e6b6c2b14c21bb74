package shards

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/services/agent/window"
)

// unwilling is a stream that does not purge so many times.
type unwilling struct {
	jetstream.Stream
	left atomic.Int32
}

func (u *unwilling) Purge(ctx context.Context, options ...jetstream.StreamPurgeOpt) error {
	if u.left.Add(-1) >= 0 {
		return errors.New("not now")
	}
	return u.Stream.Purge(ctx, options...)
}

// givesNothing reports whether nobody wants or holds anything of a store, and nothing is on its way.
func givesNothing(store *Store) bool {
	store.gives.mutex.Lock()
	defer store.gives.mutex.Unlock()
	return store.gives.window.Idle()
}

func TestAPartThatCannotBeRemovedTakesItsRoomUntilItIs(t *testing.T) {
	want := cut(content(60, testPart))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	stream := &unwilling{Stream: store.stream}
	stream.left.Store(2)
	store.stream = stream
	want.offerTo(store)
	fetch(t, transferFrom(t, store.source()), want)
	until(t, "a purge failed", func() bool { return stream.left.Load() < 2 })
	until(t, "the window is empty", func() bool { return givesNothing(store) })
	if left := messagesIn(t, store); left > 0 || stream.left.Load() >= 0 {
		t.Errorf("%d messages are in the bucket of which the window knows nothing", left)
	}
}

func TestWhatCameOfAPutThatWasEndedIsRemovedThoughThatFailsAtFirst(t *testing.T) {
	want := cut(content(61, window.ReaderBytes))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	stream := &unwilling{Stream: store.stream}
	store.stream = stream
	for range 5 {
		stream.left.Store(1)
		offerings := want.offerTo(store)
		wantAll(t, reads(t, store), store, want)
		until(t, "something is put", func() bool { return bytesIn(t, store) > 0 })
		store.Withdraw(offerings...)
		until(t, "the window is empty", func() bool { return givesNothing(store) })
		if left := messagesIn(t, store); left > 0 {
			t.Fatalf("%d messages are in the bucket of which the window knows nothing", left)
		}
	}
}
