package shards

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/services/agent/queue"
)

// stream reads the chunks of an object that a claim needs, in order.
type stream struct {
	transfer *Transfer
	from     *source
	claim    *queue.Claim
	manifest *manifest
	asked    []request
	at       int64  // offset of the next message
	sequence uint64 // behind the last message
}

// request is for a chunk at an offset; before the manifest came, for those up to another; and of what another writer
// stored, for some messages.
type request struct {
	*answer
	first, end int64 // no end: one chunk, or nobody knows
}

func (s *stream) forget() {
	for _, asked := range s.asked {
		s.from.forget(asked.answer)
	}
}

func (s *stream) read(ctx context.Context) error {
	for {
		next, end := s.wanted()
		if next == end {
			return nil
		}
		if err := s.ask(); err != nil {
			return err
		}
		message, err := s.transfer.await(ctx, s.from, s.asked[0].answer)
		if err == nil {
			err = s.take(message)
		}
		if err != nil {
			return err
		}
	}
}

// wanted returns the range of bytes that is still to come.
func (s *stream) wanted() (next, end int64) {
	s.transfer.mutex.Lock()
	defer s.transfer.mutex.Unlock()
	return s.claim.Next, s.claim.End
}

// ask keeps the source busy. Where it is not known at which sequence a chunk lies, one batch begins behind the other.
func (s *stream) ask() error {
	if s.manifest.sequences == nil {
		return s.askBatch()
	}
	for offset, wanted := s.next(); wanted; offset, wanted = s.next() {
		asked, err := s.askChunk(offset)
		if err != nil {
			return err
		}
		s.asked = append(s.asked, asked)
	}
	return nil
}

// next returns the offset of the next chunk to ask for, if any.
func (s *stream) next() (offset int64, wanted bool) {
	s.transfer.mutex.Lock()
	defer s.transfer.mutex.Unlock()
	return s.transfer.queue.Ask(s.claim, s.from.roundTrip(), time.Now())
}

func (s *stream) askChunk(offset int64) (request, error) {
	asked, err := s.from.askChunk(s.manifest.sequences[offset/chunkBytes])
	return request{answer: asked, first: offset}, err
}

// askFirst asks for a part's first chunks in the flight of the question for its manifest. It does so at the beginning,
// when the link has nothing else to carry: later, chunks would come of parts whose manifests are not stored yet. The
// last of them is asked for by its sequence like all that follow: where one is gone, it comes in that one's stead.
func (s *stream) askFirst() error {
	if !s.transfer.begins(s.claim) {
		return nil
	}
	chunks := 0
	for _, wanted := s.next(); wanted; _, wanted = s.next() {
		chunks++
	}
	asked, err := s.from.askFirstChunks(s.claim.Part.Digest, max(1, chunks-1))
	if err == nil {
		s.asked = append(s.asked, request{asked, 0, int64(chunks) * chunkBytes})
	}
	return err
}

func (s *stream) askBatch() error {
	if len(s.asked) > 0 {
		return nil
	}
	bytes := s.batch()
	asked, err := s.from.askChunks(s.manifest, s.sequence+1, batchMessages, bytes)
	if err == nil {
		s.asked = append(s.asked, request{answer: asked, first: s.at})
	}
	return err
}

// batch is how many bytes to ask for next. From then on nobody takes them over.
func (s *stream) batch() int64 {
	s.transfer.mutex.Lock()
	defer s.transfer.mutex.Unlock()
	return s.transfer.queue.AskRest(s.claim, s.at, batchBytes)
}

// take puts a message in its place, or hears that there is none.
func (s *stream) take(message *nats.Msg) error {
	there := message.Header.Get("Status") == ""
	if s.asked[0].end > 0 {
		return s.takeFirst(message, there)
	}
	if s.manifest.sequences != nil || !there {
		asked := s.asked[0]
		s.from.forget(asked.answer)
		s.asked = s.asked[1:]
		if s.manifest.sequences == nil {
			return s.endBatch(asked)
		}
		s.at = asked.first
	}
	if !there {
		s.lack()
		return nil
	}
	return s.store(message)
}

// takeFirst takes one of the first chunks. Those that do not come are asked for by their sequences.
func (s *stream) takeFirst(message *nats.Msg, there bool) error {
	if there && !s.follows(message) {
		s.from.late(int64(len(message.Data)))
		return nil
	}
	if there {
		return s.store(message)
	}
	first := s.asked[0]
	s.from.forget(first.answer)
	s.asked = s.asked[1:]
	if s.manifest.sequences == nil {
		return nil
	}
	var again []request
	for offset := s.at; offset < min(first.end, s.size()); offset += chunkBytes {
		asked, err := s.askChunk(offset)
		if err != nil {
			return err
		}
		again = append(again, asked)
	}
	s.asked = append(again, s.asked...)
	return nil
}

// follows reports whether a message is the object's, and at or behind the next one: those between are gone.
func (s *stream) follows(message *nats.Msg) bool {
	if message.Header.Get(jetstream.SubjectHeader) != chunkSubject(s.from.bucket, s.manifest.info.NUID) {
		return false
	}
	sequence, err := strconv.ParseUint(message.Header.Get(jetstream.SequenceHeader), 10, 64)
	known := s.manifest.sequences
	for err == nil && known != nil && s.at < s.size() && known[s.at/chunkBytes] < sequence {
		s.lack()
		s.at += chunkBytes
	}
	return err == nil && s.at < s.size()
}

func (s *stream) size() int64 { return int64(s.manifest.info.Size) }

// endBatch checks that something came of a batch: chunks are gone when their part is retired or replaced.
func (s *stream) endBatch(ended request) error {
	if s.at == ended.first {
		return errAbsent
	}
	return nil
}

// lack leaves a chunk that is gone to others.
func (s *stream) lack() {
	t := s.transfer
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.queue.Lack(s.claim, time.Now())
	t.wake.Broadcast()
}

// store puts a chunk in its place.
func (s *stream) store(chunk *nats.Msg) (err error) {
	s.sequence, err = strconv.ParseUint(chunk.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return fmt.Errorf("sequence of a chunk: %w", err)
	}
	size, bytes := s.size(), int64(len(chunk.Data))
	known := s.manifest.sequences != nil
	if known && (s.sequence != s.manifest.sequences[s.at/chunkBytes] || bytes != min(chunkBytes, size-s.at)) {
		return errForeign
	}
	if bytes > size-s.at {
		return errAbsent
	}
	t, c := s.transfer, s.claim
	t.mutex.Lock()
	offset, wanted, hashes := t.queue.Reserve(c, s.at, bytes, time.Now())
	t.mutex.Unlock()
	if wanted > 0 {
		data := chunk.Data[offset-s.at:][:wanted]
		copy(c.Part.Bytes[offset:], data)
		if hashes { // while the bytes are in the processor's cache
			c.Part.Hash.Write(data)
		}
	}
	s.at += bytes
	t.mutex.Lock()
	complete := t.queue.Stored(c, wanted, hashes)
	t.mutex.Unlock()
	if complete {
		t.verify(c.Part)
	}
	return nil
}
