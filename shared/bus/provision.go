package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

const (
	provisionTimeout = 10 * time.Second
	fullShare        = 0.95 // of a bound: there is still room, and time to make more
)

// Provision creates the streams and buckets that are missing. It never alters one: an installation with other
// replicas or limits creates them beforehand, and they stay as they are. While there is no leader or no room for them it
// tries again, until ctx ends. It fails where the server says no for good.
func (b *Bus) Provision(ctx context.Context) error {
	return b.Repeat(ctx, "making of the streams", func(ctx context.Context) error {
		err := b.provision(ctx)
		if errors.Is(storeFull(err), ErrFull) {
			return errors.New(err.Error()) // somebody may make room
		}
		return err
	})
}

func (b *Bus) provision(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, provisionTimeout)
	defer cancel()
	for _, stream := range []events.Stream{events.EventStream, events.PlanStream} {
		if err := b.provisionStream(ctx, stream); err != nil {
			return fmt.Errorf("stream %s: %w", stream.Name, err)
		}
	}
	if err := b.provisionSnapshots(ctx); err != nil {
		return fmt.Errorf("bucket %s: %w", events.SnapshotBucket, err)
	}
	for _, store := range events.ObjectStores {
		if err := b.provisionObjects(ctx, store); err != nil {
			return fmt.Errorf("bucket %s: %w", store.Bucket, err)
		}
	}
	b.tellReplicas(ctx)
	return nil
}

// tellReplicas warns of each stream that has fewer replicas than this bus would have given it: who came first decided.
func (b *Bus) tellReplicas(ctx context.Context) {
	for _, name := range streamNames() {
		stream, err := b.js.Stream(ctx, name)
		if err != nil {
			continue // a warning is not worth to wait for
		}
		if replicas := stream.CachedInfo().Config.Replicas; replicas < b.replicas {
			slog.WarnContext(ctx, "a stream has fewer replicas than the named servers can keep; give it more with: nats stream edit",
				"stream", name, "replicas", replicas, "expected", b.replicas)
		}
	}
}

// streamNames lists the streams, those of the buckets among them.
func streamNames() []string {
	names := []string{events.EventStream.Name, events.PlanStream.Name, "KV_" + events.SnapshotBucket}
	for _, store := range events.ObjectStores {
		names = append(names, objectStream(store.Bucket))
	}
	return names
}

func (b *Bus) provisionStream(ctx context.Context, stream events.Stream) error {
	if _, err := b.js.Stream(ctx, stream.Name); !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	config := jetstream.StreamConfig{
		Name: stream.Name, Subjects: stream.Subjects, Storage: jetstream.FileStorage, Replicas: b.replicas,
		MaxBytes: stream.MaxBytes, MaxAge: stream.MaxAge, Discard: jetstream.DiscardNew, Duplicates: stream.Dedupe,
		MaxMsgsPerSubject: int64(stream.Newest), DenyDelete: true, DenyPurge: !stream.WriteOnce, // old plans are purged
	}
	if stream.WriteOnce {
		config.MaxMsgsPerSubject, config.DiscardNewPerSubject = 1, true
	}
	_, err := b.js.CreateStream(ctx, config)
	return madeByAnother(err)
}

func (b *Bus) provisionSnapshots(ctx context.Context) error {
	if _, err := b.js.KeyValue(ctx, events.SnapshotBucket); !errors.Is(err, jetstream.ErrBucketNotFound) {
		return err
	}
	config := jetstream.KeyValueConfig{Bucket: events.SnapshotBucket, MaxBytes: events.SnapshotBytes, Replicas: b.replicas}
	_, err := b.js.CreateKeyValue(ctx, config)
	return madeByAnother(err)
}

func (b *Bus) provisionObjects(ctx context.Context, store events.ObjectStore) error {
	if _, err := b.js.ObjectStore(ctx, store.Bucket); !errors.Is(err, jetstream.ErrBucketNotFound) {
		return err
	}
	config := jetstream.ObjectStoreConfig{
		Bucket: store.Bucket, MaxBytes: store.MaxBytes, TTL: store.MaxAge, Replicas: b.replicas,
	}
	_, err := b.js.CreateObjectStore(ctx, config)
	return madeByAnother(err)
}

// madeByAnother forgives that several services start at once and one of them was first.
func madeByAnother(err error) error {
	for _, exists := range []error{jetstream.ErrStreamNameAlreadyInUse, jetstream.ErrBucketExists} {
		if errors.Is(err, exists) {
			return nil
		}
	}
	return err
}

// Provisioned reports the first stream or bucket that is missing or all but full.
func (b *Bus) Provisioned(ctx context.Context) error {
	for _, name := range streamNames() {
		stream, err := b.js.Stream(ctx, name)
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		held, bound := stream.CachedInfo().State.Bytes, stream.CachedInfo().Config.MaxBytes
		if bound > 0 && float64(held) > fullShare*float64(bound) {
			return fmt.Errorf("stream %s: %w: %d of %d bytes", name, ErrFull, held, bound)
		}
	}
	return nil
}
