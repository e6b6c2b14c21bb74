package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// Bounds of the buckets. Shard parts are needed only while they move; a part is put anew when it is half as old.
const (
	shardLifetime    = time.Hour
	shardBytes       = 8 << 30
	payloadBytes     = 4 << 30
	snapshotBytes    = 256 << 20
	provisionTimeout = 10 * time.Second
)

// Provision creates the streams and buckets that are missing. It never alters one: an installation with other
// replicas or limits creates them beforehand, and they stay as they are.
func (b *Bus) Provision(ctx context.Context) error {
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
	for _, config := range []jetstream.ObjectStoreConfig{
		{Bucket: events.PayloadBucket, MaxBytes: payloadBytes},
		{Bucket: events.ShardBucket, MaxBytes: shardBytes, TTL: shardLifetime},
	} {
		if err := b.provisionObjects(ctx, config); err != nil {
			return fmt.Errorf("bucket %s: %w", config.Bucket, err)
		}
	}
	return nil
}

func (b *Bus) provisionStream(ctx context.Context, stream events.Stream) error {
	if _, err := b.js.Stream(ctx, stream.Name); !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	config := jetstream.StreamConfig{
		Name: stream.Name, Subjects: stream.Subjects, Storage: jetstream.FileStorage,
		MaxBytes: stream.MaxBytes, Discard: jetstream.DiscardNew, Duplicates: stream.Dedupe,
		DenyDelete: true, DenyPurge: true,
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
	_, err := b.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: events.SnapshotBucket, MaxBytes: snapshotBytes})
	return madeByAnother(err)
}

func (b *Bus) provisionObjects(ctx context.Context, config jetstream.ObjectStoreConfig) error {
	if _, err := b.js.ObjectStore(ctx, config.Bucket); !errors.Is(err, jetstream.ErrBucketNotFound) {
		return err
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

// Provisioned reports the first stream or bucket that is missing.
func (b *Bus) Provisioned(ctx context.Context) error {
	names := []string{
		events.EventStream.Name, events.PlanStream.Name,
		"KV_" + events.SnapshotBucket, "OBJ_" + events.PayloadBucket, "OBJ_" + events.ShardBucket,
	}
	for _, name := range names {
		if _, err := b.js.Stream(ctx, name); err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
	}
	return nil
}
