package loop

import (
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/tests/simulation/stream"
)

// page is what a service remembers over a restart.
type page struct {
	instance string
	position
	machine []byte // the machine's snapshot
	said    uint64 // up to which message all that it brought about was said, where that is further
	heard   uint64 // up to which message instances before have come, whatever became of it
	apart   []apart
}

// apart is a payload that was read since, before anything came of its message.
type apart struct {
	sequence uint64
	bytes    int64
}

// size is how many bytes the page takes.
func (p page) size() int64 {
	size := int64(len(p.machine))
	for _, read := range p.apart {
		size += read.bytes
	}
	return size
}

func (p page) has(sequence uint64) bool {
	return slices.ContainsFunc(p.apart, func(read apart) bool { return read.sequence == sequence })
}

// position is that of the last message handled.
type position struct {
	sequence uint64
	id       string // of the event; empty for a refused message
}

// memory is a service's key in the bucket of snapshots, written by compare-and-set.
type memory struct {
	bucket   *stream.Bucket
	key      string
	revision uint64
	page     page
	next     page   // being written
	before   string // the instance before; empty where there was none
	repeats  repeats
}

// read fetches the page and its revision. Errors: those of Bucket.Get, without ErrKeyNotFound.
func (m *memory) read(fate stream.Fate) (page, uint64, error) {
	entry, err := m.bucket.Get(m.key, fate)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return page{}, 0, nil
	}
	if err != nil {
		return page{}, 0, err
	}
	return entry.Data.(page), entry.Sequence, nil
}

// durable is the name of an instance's consumer.
func (m *memory) durable(instance string) string { return m.key + "-" + instance }

// Remembered returns up to which message a service of a cluster has written down what it became.
func Remembered(server *stream.Server, cluster, service string) uint64 {
	entry, err := server.Snapshots.Get(cluster+"."+service, stream.Answered)
	if err != nil {
		return 0
	}
	return entry.Data.(page).sequence
}

// begin makes next the page to write.
func (m *memory) begin(b *Bus, next page) { m.next, m.repeats = next, newRepeats(b) }

// write tries once to store the next page. Errors: those of Bucket.Update; judge looks into ErrKeyRevisionMismatch.
func (m *memory) write(now time.Time, fate stream.Fate) error {
	revision, err := m.bucket.Update(now, m.key, m.next.size(), m.next, m.revision, fate)
	if err == nil {
		m.revision, m.page = revision, m.next
	}
	return err
}

// judge looks, after a write was refused, whether another wrote, or we did and did not hear so. Errors: bus.ErrFenced,
// and those of read.
func (m *memory) judge(fate stream.Fate) error {
	there, revision, err := m.read(fate)
	if err != nil {
		return err
	}
	if there.instance != m.next.instance {
		return bus.ErrFenced
	}
	m.revision = revision
	return nil
}
