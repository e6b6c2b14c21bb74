package events

import "time"

// Stream is what a JetStream stream of Reknit must be, as data: shared/bus creates it, deploy and tests read it.
type Stream struct {
	Name      string
	Subjects  []string
	WriteOnce bool          // one message a subject, for ever: no second publish, delete or purge
	MaxBytes  int64         // the stream refuses what is beyond: it never drops what it acknowledged
	Dedupe    time.Duration // how long the server remembers message ids
}

// MaxEventBytes is the largest event that travels whole. A larger payload goes into the object store and the
// event carries its name and digest (CloudEvents promises safe passage up to 64 KiB).
const MaxEventBytes = 64 << 10

// MaxPayloadBytes bounds a payload that travels through the object store.
const MaxPayloadBytes = 64 << 20

// The streams and buckets of a Reknit installation.
var (
	EventStream = Stream{
		Name:     "REKNIT_EVENTS",
		Subjects: []string{"reknit.event.>"},
		MaxBytes: 4 << 30,
		Dedupe:   10 * time.Minute, // a service may be down that long before a repeat could pass
	}
	PlanStream = Stream{
		Name:      "REKNIT_PLANS",
		Subjects:  []string{"reknit.plan.>"},
		WriteOnce: true,
		MaxBytes:  1 << 30,
		Dedupe:    10 * time.Minute,
	}
)

const (
	SnapshotBucket = "REKNIT_SNAPSHOTS" // KV: what each service remembers, with the stream position it belongs to
	PayloadBucket  = "REKNIT_PAYLOADS"  // object store: payloads too large for an event
	ShardBucket    = "REKNIT_SHARDS"    // object store: shard parts on their way, named by their digest
)
