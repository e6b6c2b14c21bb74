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
	firstProvisionWait = 2 * time.Second // answers get lost where services make streams at once; it is doubled while none comes
	lastProvisionWait  = 10 * time.Second
	fullShare          = 0.95 // of a bound: there is still room, and time to make more
)

// Provision creates the streams and buckets that are missing. It never alters one: an installation with other
// replicas or limits creates them beforehand, and they stay as they are. While there is no leader or no room for them it
// tries again, until ctx ends. It fails where the server says no for good.
func (b *Bus) Provision(ctx context.Context) error {
	wait := firstProvisionWait
	return b.Repeat(ctx, "making of the streams", func(ctx context.Context) error {
		err := b.provision(ctx, wait)
		if errors.Is(err, context.DeadlineExceeded) {
			wait = min(2*wait, lastProvisionWait)
		}
		if errors.Is(storeFull(err), ErrFull) {
			return errors.New(err.Error()) // somebody may make room
		}
		return err
	})
}

// provision warns of each stream that has fewer replicas than this bus would have given it: who came first decided.
func (b *Bus) provision(ctx context.Context, wait time.Duration) error {
	fewer, count := map[string]int{}, b.conn.Stats().Reconnects
	for _, config := range b.streams() {
		stream, err := b.provisionStream(ctx, config, wait)
		if err != nil {
			return fmt.Errorf("stream %s, on the servers of REKNIT_NATS_URL: %w", config.Name, err)
		}
		if config.Name == b.Lane(events.EventStream.Name) {
			b.noteLog(stream.CachedInfo().Created, count)
		}
		if replicas := stream.CachedInfo().Config.Replicas; replicas < b.replicas {
			fewer[config.Name] = replicas
		}
	}
	b.makes.Store(!b.isGuest())
	for stream, replicas := range fewer {
		slog.WarnContext(ctx, "a stream has fewer replicas than the named servers can keep; give it more with: nats stream edit",
			"stream", stream, "replicas", replicas, "expected", b.replicas)
	}
	return nil
}

// remake makes again what was in the memory of a server that has restarted, where this bus has made it before.
func (b *Bus) remake() {
	if !b.makes.Load() {
		return
	}
	ctx := b.connection.Load().lasts
	for _, config := range b.streams() {
		if config.Storage == jetstream.MemoryStorage {
			go func() {
				_ = b.Repeat(ctx, "making of "+config.Name, func(ctx context.Context) error {
					_, err := b.provisionStream(ctx, config, lastProvisionWait)
					return err
				})
			}()
		}
	}
}

func (b *Bus) provisionStream(ctx context.Context, config jetstream.StreamConfig, wait time.Duration) (stream jetstream.Stream, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if stream, err = b.js.Stream(ctx, config.Name); errors.Is(err, jetstream.ErrStreamNotFound) {
		if b.isGuest() {
			return nil, errors.New("no service has made it yet")
		}
		stream, err = b.js.CreateStream(ctx, config)
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // several services start at once, and one of them was first
		if stream, err = b.js.Stream(ctx, config.Name); errors.Is(err, jetstream.ErrStreamNotFound) {
			err = errors.New(err.Error()) // not yet
		}
	}
	return stream, err
}

// mostMessageBytes is less than a server takes, which is as much as a service's memory may have. On a secured installation the log takes
// events and their headers: of a subject it keeps 256, and so 17 MiB at most.
const (
	mostMessageBytes = 1 << 20
	mostEventBytes   = events.MaxEventBytes + 4<<10
)

// streams lists what a cluster has. Buckets are as the library makes them. No bucket of a secured installation lets one
// message remove others (Nats-Rollup): a client that may set one key could remove all.
func (b *Bus) streams() []jetstream.StreamConfig {
	var all []jetstream.StreamConfig
	for _, stream := range []events.Stream{events.EventStream, events.PlanStream} {
		config := jetstream.StreamConfig{
			Name: b.Lane(stream.Name), Subjects: stream.Subjects(b.cluster), MaxBytes: stream.MaxBytes, MaxAge: stream.MaxAge,
			MaxMsgsPerSubject: int64(stream.Newest), Duplicates: stream.Dedupe, MaxMsgSize: mostMessageBytes,
			DenyDelete: true, DenyPurge: !stream.WriteOnce, // old plans are purged
			Discard: jetstream.DiscardNew,
		}
		if b.Secured() {
			config.MaxMsgSize, config.DenyPurge = mostEventBytes, false // whoever may purge makes room in a log that somebody fills
		}
		if stream.WriteOnce {
			config.MaxMsgsPerSubject, config.DiscardNewPerSubject = 1, true
		}
		all = append(all, config)
	}
	for _, bucket := range events.KeyValues {
		lane := b.Lane(bucket.Bucket)
		config := jetstream.StreamConfig{
			Name: "KV_" + lane, Subjects: []string{"$KV." + lane + ".>"}, MaxBytes: bucket.MaxBytes,
			MaxAge: bucket.MaxAge, MaxMsgsPerSubject: 1, AllowDirect: true, DenyDelete: true, AllowRollup: !b.Secured(),
			Discard: jetstream.DiscardNew,
		}
		if bucket.InMemory { // nodes set its values, and services those of the other, their memories
			config.Storage, config.MaxMsgSize = jetstream.MemoryStorage, mostMessageBytes
		}
		all = append(all, config)
	}
	for _, store := range events.ObjectStores {
		lane := b.Lane(store.Bucket)
		config := jetstream.StreamConfig{
			Name: objectStream(lane), Subjects: []string{"$O." + lane + ".C.>", "$O." + lane + ".M.>"},
			MaxBytes: store.MaxBytes, MaxAge: store.MaxAge, MaxMsgSize: mostMessageBytes, AllowDirect: true,
			AllowRollup: !b.Secured(), Discard: jetstream.DiscardNew,
		}
		if store.DropsOldest {
			config.Discard = jetstream.DiscardOld
		}
		all = append(all, config)
	}
	for i := range all {
		all[i].Replicas = b.replicas
	}
	return all
}

// Filled is how much of its bound a stream, or the stream of a bucket, holds.
type Filled struct {
	Store string
	Share float64
}

// Filled returns that of which the greatest share is filled, of what refuses more when it is full; nil where it cannot be asked. A request
// for each.
func (b *Bus) Filled(ctx context.Context) *Filled {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	var fullest *Filled
	for _, config := range b.streams() {
		stream, err := b.js.Stream(ctx, config.Name)
		if err != nil {
			return nil
		}
		info := stream.CachedInfo()
		if info.Config.Discard != jetstream.DiscardNew || info.Config.MaxBytes <= 0 {
			continue
		}
		share := float64(info.State.Bytes) / float64(info.Config.MaxBytes)
		if fullest == nil || share > fullest.Share {
			fullest = &Filled{config.Name, share}
		}
	}
	return fullest
}

// Provisioned reports the first stream or bucket that is missing, or all but full and about to refuse.
func (b *Bus) Provisioned(ctx context.Context) error {
	for _, config := range b.streams() {
		stream, err := b.js.Stream(ctx, config.Name)
		if err != nil {
			return fmt.Errorf("stream %s: %w", config.Name, err)
		}
		held, bound := stream.CachedInfo().State.Bytes, stream.CachedInfo().Config.MaxBytes
		refuses := stream.CachedInfo().Config.Discard == jetstream.DiscardNew
		if refuses && bound > 0 && float64(held) > fullShare*float64(bound) {
			return fmt.Errorf("stream %s: %w: %d of %d bytes", config.Name, ErrFull, held, bound)
		}
	}
	return nil
}
