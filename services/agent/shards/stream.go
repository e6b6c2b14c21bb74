package shards

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// stream reads the chunks of an object that a claim needs, in order.
type stream struct {
	transfer *Transfer
	from     *source
	claim    *claim
	object   *object
	asked    []request
	at       int64  // offset of the next message
	sequence uint64 // behind the last message
	lacked   bool   // the chunk before
}

// request is for a chunk at an offset; of what another writer stored, for some messages from it on.
type request struct {
	*answer
	first int64
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
		message, err := s.transfer.await(ctx, s.asked[0].answer, s.claim.peer)
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
	return s.claim.next, s.claim.end
}

// ask keeps the source busy. Where it is not known at which sequence a chunk lies, one batch begins behind the other.
func (s *stream) ask() error {
	if s.object.sequences == nil {
		return s.askBatch()
	}
	for {
		t := s.transfer
		t.mutex.Lock()
		offset, wanted := t.queue.ask(s.claim, s.from.roundTrip(), time.Now())
		t.mutex.Unlock()
		if !wanted {
			return nil
		}
		asked, err := s.from.askChunk(s.object.sequences[offset/chunkBytes])
		if err != nil {
			return err
		}
		s.asked = append(s.asked, request{asked, offset})
	}
}

func (s *stream) askBatch() error {
	if len(s.asked) > 0 {
		return nil
	}
	asked, err := s.from.askChunks(s.object, s.sequence+1, batchMessages, batchBytes)
	if err != nil {
		return err
	}
	s.asked = append(s.asked, request{asked, s.at})
	s.transfer.mutex.Lock()
	defer s.transfer.mutex.Unlock()
	s.claim.asked = s.at + batchBytes
	return nil
}

// take puts a message in its place, or hears that there is none.
func (s *stream) take(message *nats.Msg) error {
	there := message.Header.Get("Status") == ""
	if s.object.sequences != nil || !there {
		asked := s.asked[0]
		s.from.forget(asked.answer)
		s.asked = s.asked[1:]
		if s.object.sequences == nil {
			return s.endBatch(asked)
		}
		s.at = asked.first
	}
	if !there {
		return s.lack()
	}
	s.lacked = false
	return s.store(message)
}

// endBatch checks that something came of a batch: chunks are gone when their part is retired or replaced.
func (s *stream) endBatch(ended request) error {
	if s.at == ended.first {
		return errAbsent
	}
	return nil
}

// lack leaves a chunk that is gone to others. Where the next one is gone too, all are: the part is retired or replaced.
func (s *stream) lack() error {
	t, c := s.transfer, s.claim
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if s.lacked || c.part.alone {
		return errHole
	}
	s.lacked = true
	c.await(s.at - min(s.at+chunkBytes, int64(len(c.part.into))))
	t.queue.lack(c, time.Now())
	t.wake.Broadcast()
	return nil
}

// store puts a chunk in its place.
func (s *stream) store(chunk *nats.Msg) (err error) {
	s.sequence, err = strconv.ParseUint(chunk.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return fmt.Errorf("sequence of a chunk: %w", err)
	}
	size, bytes := int64(s.object.info.Size), int64(len(chunk.Data))
	known := s.object.sequences != nil
	if known && (s.sequence != s.object.sequences[s.at/chunkBytes] || bytes != min(chunkBytes, size-s.at)) {
		return errHole
	}
	if bytes > size-s.at {
		return errAbsent
	}
	t, c := s.transfer, s.claim
	t.mutex.Lock()
	if known {
		c.await(-bytes)
	}
	offset, wanted, hashes := t.queue.reserve(c, s.at, bytes, time.Now())
	t.mutex.Unlock()
	if wanted > 0 {
		data := chunk.Data[offset-s.at:][:wanted]
		copy(c.part.into[offset:], data)
		if hashes { // while the bytes are in the processor's cache
			c.part.hash.Write(data)
		}
	}
	s.at += bytes
	t.mutex.Lock()
	complete := t.queue.stored(c, offset, wanted, hashes)
	t.mutex.Unlock()
	if complete {
		return t.verify(c.part)
	}
	return nil
}
