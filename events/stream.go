package events

import (
	"fmt"
	"time"
)

// Lane returns what a cluster's own stream or bucket of a sort is called. Each cluster of an installation has one of each,
// with bounds of its own: the busiest takes no room of another and evicts nothing there. The server, and so its time, is shared.
func Lane(cluster, sort string) string { return sort + "_" + cluster }

// Stream is what a sort of JetStream stream must be, as data: shared/bus creates it, deploy and tests read it.
type Stream struct {
	Name      string        // of the sort; Lane has a cluster's
	root      string        // of the subjects, before the cluster
	WriteOnce bool          // one message a subject: no second publish, and no delete
	Newest    int           // messages a subject that are kept: an older one goes when one more comes; zero: all
	MaxBytes  int64         // the stream refuses what is beyond: it never drops what it acknowledged for want of room
	MaxAge    time.Duration // older messages are dropped; zero: never
	Dedupe    time.Duration // how long the server remembers message ids
	Payloads  string        // sort of object store of its payloads that are too large for an event
}

// ObjectStore is what a sort of object store must be, as data.
type ObjectStore struct {
	Bucket   string        // of the sort
	MaxBytes int64         // it refuses what is beyond, or drops what is oldest
	MaxAge   time.Duration // what was put longer ago is dropped; zero: never
	// DropsOldest has what was put first make room for what comes.
	DropsOldest bool
}

// MaxEventBytes is the largest event that travels whole. A larger payload goes into the object store and the
// event carries its name and digest (CloudEvents promises safe passage up to 64 KiB).
const MaxEventBytes = 64 << 10

// MaxPayloadBytes bounds a payload that travels through the object store.
const MaxPayloadBytes = 64 << 20

// EventAge is how long an event can be read. It is longer than a service may be away, a weekend included: a service
// that comes back reads on behind what its memory holds, and one that runs writes its memory four times within that
// age.
const EventAge = 3 * 24 * time.Hour

// FreshAge is how long content counts as just put: put again within it, it is left alone.
const FreshAge = 30 * time.Minute

// RequestAge is how far the time that a request was signed with may be from when the hub logged it, on a secured installation: beyond
// that a service refuses it. A request of which the bytes are heard again within twice that time is refused, too.
const RequestAge = 10 * time.Minute

// MostReaders is how many may read a stream at a time with one kit of a secured installation: an agent, and who asks from its
// machine, or people at several.
const MostReaders = 4

// Readers returns what the consumers are called with which somebody whose key it is reads a stream there: one takes the first that
// nobody reads with.
func Readers(key string) []string {
	names := []string{key}
	for number := 2; number <= MostReaders; number++ {
		names = append(names, fmt.Sprintf("%s-%d", key, number))
	}
	return names
}

// Subjects returns what the stream of a cluster hears.
func (s Stream) Subjects(cluster string) []string { return []string{s.root + "." + cluster + ".>"} }

// The streams of a cluster. A thousand nodes that fail once a day each say 3.4 GiB of consents, promises and
// receipts in it (measured, tests/bench/negotiator), of which nobody needs a node's last but 256.
var (
	EventStream = Stream{
		Name:     "REKNIT_EVENTS",
		root:     "reknit.event",
		MaxBytes: 4 << 30,
		MaxAge:   EventAge,
		Newest:   256,
		Dedupe:   10 * time.Minute, // a service may be down that long before a repeat could pass
		Payloads: PayloadBucket,
	}
	PlanStream = Stream{
		Name:      "REKNIT_PLANS",
		root:      "reknit.plan",
		WriteOnce: true,
		MaxBytes:  1 << 30,
		Dedupe:    10 * time.Minute,
		Payloads:  PlanPayloadBucket,
	}
)

// PlansKept is how many plans of a cluster are kept, the newest. Each names the digest of the one before it. For a thousand nodes 500 plans
// take 20 MiB. A service or an agent misses fewer while it is away.
const PlansKept = 500

// The sorts of buckets.
const (
	SnapshotBucket    = "REKNIT_SNAPSHOTS"     // KV: what each service remembers, with the stream position it belongs to
	PayloadBucket     = "REKNIT_PAYLOADS"      // object store: payloads too large for an event
	PlanPayloadBucket = "REKNIT_PLAN_PAYLOADS" // object store: plans too large for an event
	ShardBucket       = "REKNIT_SHARDS"        // object store: shard parts on their way, named by their digest
	RendezvousBucket  = "REKNIT_RENDEZVOUS"    // KV, in memory: what trainers of a generation tell each other to find together
)

// KeyValue is what a sort of KV bucket must be, as data.
type KeyValue struct {
	Bucket   string        // of the sort
	MaxBytes int64         // it refuses what is beyond
	MaxAge   time.Duration // what was set longer ago is dropped; zero: never
	InMemory bool          // it is gone with its server
}

// KeyValues are the KV buckets of a cluster. Each memory of a service replaces the one before it.
var KeyValues = []KeyValue{
	{Bucket: SnapshotBucket, MaxBytes: 256 << 20},
	{Bucket: RendezvousBucket, MaxBytes: 64 << 20, MaxAge: time.Hour, InMemory: true},
}

// ObjectStores are those of a cluster. A payload outlives every event that names it: it was put, or put
// again, at most FreshAge before the event. But where three days of payloads are more than their bucket may hold, the oldest
// make room: no change waits because others that ended days ago were many. 2,048 nodes that fail once a day put 1.8 GiB a day
// (tests/bench/negotiator). Shard parts are needed only while they move.
var ObjectStores = []ObjectStore{
	{Bucket: PayloadBucket, MaxBytes: 4 << 30, MaxAge: EventAge + 2*FreshAge, DropsOldest: true},
	{Bucket: PlanPayloadBucket, MaxBytes: 512 << 20},
	{Bucket: ShardBucket, MaxBytes: 8 << 30, MaxAge: 2 * FreshAge},
}
