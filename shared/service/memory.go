package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// memory is what a service remembers over a restart. It is written by compare-and-set: an instance that was paused
// and deposed cannot overwrite its successor's.
type memory struct {
	bus      *bus.Bus
	bucket   jetstream.KeyValue
	key      string
	revision uint64
	written  time.Time // by the instance before; zero where there was none
	before   string    // the instance before; empty where there was none
	head     []byte    // of what is stored: the page without what was read apart, as it is compressed
	reached  uint64    // up to which message the instance before had come
	singly   uint64    // up to which it had them one at a time
	page
}

// page is the stored form of a memory: JSON, compressed.
type page struct {
	Instance string `json:"instance"` // who wrote it
	position
	Machine json.RawMessage `json:"machine,omitempty"` // the machine's snapshot
	Said    uint64          `json:"said,omitempty"`    // up to which message all that it brought about was said, where that is further
	Heard   uint64          `json:"heard,omitempty"`   // up to which message instances before have come, whatever became of it
	fears
	Apart []apart `json:"apart,omitempty"` // what was read since, before anything came of it
}

// apart is data that is not in the log, whose message names it: what dropped it then has the next instance hear another log than this one
// has heard.
type apart struct {
	Sequence uint64 `json:"sequence"` // of the message
	Data     string `json:"data"`
}

// fears are how many instances in a row ended at the message behind all that was said.
type fears struct {
	Unopened int `json:"unopened,omitempty"` // while it was opened
	Deaths   int `json:"deaths,omitempty"`   // while the machine had it
}

// position is that of the last message handled.
type position struct {
	Sequence uint64 `json:"sequence"`
	ID       string `json:"id"` // of the event; empty for a refused message
}

// requestTimeout is how long one request to NATS may take before it is made again.
const requestTimeout = 5 * time.Second

// recall reads a service's memory and signs it as this instance's, which ends the instance before. How far that one had
// come beyond it is signed too: its consumer is dropped after this.
func recall(ctx context.Context, b *bus.Bus, name, instance string) (*memory, error) {
	bucket, err := b.JetStream().KeyValue(ctx, b.Lane(events.SnapshotBucket))
	if err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	m := &memory{bus: b, bucket: bucket, key: b.Cluster() + "." + name}
	for {
		if m.page, m.revision, m.written, err = m.read(ctx); err != nil {
			return nil, err
		}
		if err := m.lookBack(ctx); err != nil {
			return nil, err
		}
		m.Instance = instance
		err := m.write(ctx, m.page)
		if !errors.Is(err, bus.ErrFenced) {
			return m, err
		}
		slog.InfoContext(ctx, "the instance before still wrote", "key", m.key)
	}
}

// lookBack learns how far the instance before came, which its consumer tells. It asks again: a consumer with three
// replicas does not answer before they have agreed on a leader.
func (m *memory) lookBack(ctx context.Context) error {
	m.before = m.Instance
	return m.bus.Repeat(ctx, "look at the consumer before", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		acknowledged, heard, err := m.bus.Reach(ctx, m.durable(m.before))
		if err != nil {
			return err
		}
		m.reached, m.singly = heard, min(m.Heard, heard)
		if m.Heard = max(m.Heard, heard); acknowledged > max(m.Said, m.Sequence) {
			m.Said, m.fears = acknowledged, fears{}
		}
		return nil
	})
}

// durable is the name of an instance's consumer.
func (m *memory) durable(instance string) string {
	return strings.ReplaceAll(m.key, ".", "-") + "-" + instance
}

// remember stores the machine's memory after the message at a position.
func (m *memory) remember(ctx context.Context, machine Machine, at position, said uint64) error {
	snapshot, err := machine.Snapshot()
	if err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	next := page{Instance: m.Instance, position: at, Machine: snapshot, Said: said, Heard: m.Heard}
	next.Apart = slices.DeleteFunc(slices.Clone(m.Apart), func(read apart) bool { return read.Sequence <= at.Sequence })
	if at.Sequence <= max(m.Said, m.Sequence) {
		next.fears = m.fears // the message that is feared is still to come
	}
	return m.write(ctx, next)
}

// mostApart is how many bytes that were read apart a memory has beside the machine's: then the machine's is written anew.
const mostApart = 1 << 20

// keep stores the data of a message that was read apart, with the memory as it is: a next instance hears the message as this one did,
// whatever becomes of the data. It costs no work on the machine's memory, and its bytes. Data that no message can hold is not kept.
func (m *memory) keep(ctx context.Context, sequence uint64, data []byte) error {
	next := m.page
	next.Apart = append(slices.Clip(m.Apart), apart{sequence, string(data)})
	err := m.write(ctx, next)
	if errors.Is(err, nats.ErrMaxPayload) {
		slog.WarnContext(ctx, "what was read apart cannot be kept with the memory", "sequence", sequence, "error", err)
		return nil
	}
	return err
}

func (m *memory) has(sequence uint64) bool {
	return slices.ContainsFunc(m.Apart, func(read apart) bool { return read.Sequence == sequence })
}

// apartBytes is how many bytes were read apart since the machine's memory was written.
func (m *memory) apartBytes() (count int) {
	for _, read := range m.Apart {
		count += len(read.Data)
	}
	return count
}

// kept returns what was read apart, by the sequence of its message.
func (m *memory) kept() map[uint64][]byte {
	kept := map[uint64][]byte{}
	for _, read := range m.Apart {
		kept[read.Sequence] = []byte(read.Data)
	}
	return kept
}

// fear stores how many instances will have ended at the message behind all that was said, should this one.
func (m *memory) fear(ctx context.Context, fears fears) error {
	next := m.page
	next.fears = fears
	return m.write(ctx, next)
}

// known is how many instances in a row are known to have ended at the first message with which the one before was not done. The one
// before did, though it feared nothing, if it had messages one at a time, or no other.
func (m *memory) known(feared int, sequence uint64) int {
	if feared == 0 && (sequence <= m.singly || sequence == m.reached) {
		return 1
	}
	return feared
}

// write repeats until the bucket has the page or ctx ends. It fails with bus.ErrFenced when another instance wrote, with
// bus.ErrLogReplaced where the page is of a log that is gone, with bus.ErrFull, and with nats.ErrMaxPayload for a page that is too large.
func (m *memory) write(ctx context.Context, next page) error {
	head, data, err := m.compress(next)
	if err != nil {
		return err
	}
	err = m.bus.RepeatInLog(ctx, "memory", func(ctx context.Context) error { return m.attempt(ctx, data) })
	if err != nil {
		return fmt.Errorf("memory of %d bytes: %w", len(data), err)
	}
	m.page, m.head = next, head
	return nil
}

func (m *memory) attempt(ctx context.Context, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	revision, err := m.bucket.Update(ctx, m.key, data, m.revision)
	if err == nil {
		m.revision = revision
		return nil
	}
	if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return err
	}
	// Another wrote, or we did and did not hear so.
	there, revision, _, readErr := m.read(ctx)
	if readErr != nil {
		return readErr
	}
	if there.Instance != m.Instance {
		return bus.ErrFenced
	}
	m.revision = revision
	return err
}

func (m *memory) read(ctx context.Context) (page, uint64, time.Time, error) {
	entry, err := m.bucket.Get(ctx, m.key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return page{}, 0, time.Time{}, nil
	}
	if err != nil {
		return page{}, 0, time.Time{}, fmt.Errorf("memory %s: %w", m.key, err)
	}
	p, err := decompress(entry.Value())
	if err != nil {
		return page{}, 0, time.Time{}, fmt.Errorf("memory %s: %w", m.key, err)
	}
	return p, entry.Revision(), entry.Created(), nil
}

// Keys of nodes come again all over a memory. With 4,000 nodes of a secured installation gzip, which looks back 32 KiB,
// left 9.0 MB, and a message has 8 at most.
var compressor, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
var decompressor, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(mostMemory))

const mostMemory = 256 << 20 // bytes, not compressed: of more an instance could not be restored

// compress returns the next page as it is stored: its machine's memory, and a frame of its own for all else. The frame of the machine's
// memory is that of the page before if the memory is the same.
func (m *memory) compress(next page) (head, stored []byte, err error) {
	machine := next.Machine
	next.Machine = nil // it is JSON, and to encode it would be to read through it once more
	rest, err := json.Marshal(next)
	if err == nil && len(machine)+len(rest) > mostMemory {
		err = fmt.Errorf("%d bytes, expected at most %d", len(machine)+len(rest), mostMemory)
	}
	if err != nil || len(machine) == 0 {
		return nil, compressor.EncodeAll(rest, nil), err
	}
	head = m.head
	if head == nil || !same(machine, m.Machine) {
		head = compressor.EncodeAll(slices.Concat([]byte(`{"machine":`), machine, []byte(",")), nil)
	}
	return head, compressor.EncodeAll(rest[1:], slices.Clip(head)), nil
}

// same reports whether two are one piece of memory.
func same(a, b []byte) bool { return len(a) == len(b) && &a[0] == &b[0] }

func decompress(data []byte) (p page, err error) {
	plain, err := decompressor.DecodeAll(data, nil)
	if errors.Is(err, zstd.ErrMagicMismatch) {
		plain, err = bus.Decompress(data, events.MaxPayloadBytes) // as builds before November 2026 wrote it
	}
	if err != nil {
		return page{}, err
	}
	return p, json.Unmarshal(plain, &p)
}
