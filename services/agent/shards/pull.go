package shards

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Batches of direct gets. Two are asked for at a time of each part, so that the link is busy while the end of the first
// travels. Those of all parts in flight hold what the source sends in inFlightSeconds: that is what a take-over may waste.
const (
	batchesAsked = 2
	batchBytes   = 2 << 20
	firstBatch   = 1 << 20 // while the rate of a source is not known
)

// manifestsAhead is how many parts' manifests are asked for before the parts are: other sources take most of them.
const manifestsAhead = 16

var (
	errAbsent  = errors.New("the source does not have the part")
	errStalled = errors.New("the source sends nothing")
	errHole    = errors.New("chunks are gone that the source's manifest lists")
	errForeign = errors.New("the source's object has another size")
)

// pull fetches what is claimed, and returns when it is there, was taken over, or failed.
func (t *Transfer) pull(ctx context.Context, from *source, c *claim) error {
	found, err := t.manifest(ctx, from, c)
	if err != nil {
		return err
	}
	if found.info.Size != uint64(len(c.part.into)) {
		return fmt.Errorf("%w: expected %d bytes, got %d", errForeign, len(c.part.into), found.info.Size)
	}
	s := &stream{transfer: t, from: from, claim: c, object: found}
	defer s.forget()
	return s.read(ctx)
}

// manifest returns a part's manifest, and asks for those of the parts behind it: the answer would come behind the bytes of
// the other parts in flight, and the link ran dry meanwhile.
func (t *Transfer) manifest(ctx context.Context, from *source, c *claim) (*object, error) {
	if asked := from.takeManifest(c.part.digest); asked != nil {
		t.askAhead(from, c.peer)
		if found, err := t.readManifest(ctx, from, c, asked); !errors.Is(err, errAbsent) { // it may have come since
			return found, err
		}
	}
	asked, err := from.askManifest(c.part.digest)
	if err != nil {
		return nil, err
	}
	t.askAhead(from, c.peer)
	return t.readManifest(ctx, from, c, asked)
}

func (t *Transfer) askAhead(from *source, p *peer) {
	t.mutex.Lock()
	parts := t.queue.upcoming(p, manifestsAhead, time.Now())
	t.mutex.Unlock()
	for _, part := range parts {
		if from.askManifestAhead(part.digest) != nil {
			return // it shows when the part is asked for
		}
	}
}

func (t *Transfer) readManifest(ctx context.Context, from *source, c *claim, asked *answer) (*object, error) {
	defer from.forget(asked)
	message, err := t.await(ctx, asked, c.peer)
	if err != nil {
		return nil, err
	}
	found, err := parseObject(message)
	if err == nil && !found.present() {
		err = errAbsent
	}
	return found, err
}

// await returns the next message of an answer. One that waits behind others' bytes is given four times as long.
func (t *Transfer) await(ctx context.Context, asked *answer, p *peer) (*nats.Msg, error) {
	const turns = 4
	timer := time.NewTimer(t.stalls)
	defer timer.Stop()
	for turn := 1; ; turn++ {
		select {
		case message := <-asked.messages:
			return message, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-asked.broken:
			return nil, errBroken
		case <-timer.C:
		}
		silent := t.silence(p)
		if turn == turns || silent >= t.stalls {
			return nil, errStalled
		}
		timer.Reset(t.stalls - silent)
	}
}

func (t *Transfer) silence(p *peer) time.Duration {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return time.Since(p.meter.heard)
}

// stream reads the chunks of an object that a claim needs, in order.
type stream struct {
	transfer *Transfer
	from     *source
	claim    *claim
	object   *object
	asked    []batch
	askedTo  int64  // offset in the object up to which chunks were asked for
	at       int64  // offset of the next message
	sequence uint64 // behind the last message
}

// batch is a request for the chunks up to an offset; what another writer stored is asked for without knowing it.
type batch struct {
	*answer
	end int64
}

func (s *stream) forget() {
	for _, asked := range s.asked {
		s.from.forget(asked.answer)
	}
}

func (s *stream) read(ctx context.Context) error {
	if next, _ := s.wanted(); s.object.sequences != nil {
		s.at = next / chunkBytes * chunkBytes
		s.askedTo = s.at
	}
	for {
		next, end := s.wanted()
		if next == end {
			return nil
		}
		if err := s.ask(end); err != nil {
			return err
		}
		message, err := s.transfer.await(ctx, s.asked[0].answer, s.claim.peer)
		if err == nil && message.Header.Get("Status") != "" {
			err = s.endBatch()
		} else if err == nil {
			err = s.store(message)
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
func (s *stream) ask(end int64) error {
	if s.object.sequences == nil {
		if len(s.asked) > 0 {
			return nil
		}
		return s.askFor(s.sequence+1, batchMessages, batchBytes, 0)
	}
	for len(s.asked) < batchesAsked && s.askedTo < end {
		chunks := min(s.transfer.batch(s.claim.peer), chunksOf(end-s.askedTo))
		from := s.object.sequences[s.askedTo/chunkBytes]
		s.askedTo += chunks * chunkBytes
		if err := s.askFor(from, int(chunks), 0, min(s.askedTo, int64(s.object.info.Size))); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) askFor(from uint64, chunks int, bytes, end int64) error {
	asked, err := s.from.askChunks(s.object, from, chunks, bytes)
	if err == nil {
		s.asked = append(s.asked, batch{asked, end})
	}
	return err
}

// batch returns how many chunks to ask a source for.
func (t *Transfer) batch(p *peer) int64 {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	rate, known := p.meter.speed(time.Now())
	if !known {
		return firstBatch / chunkBytes
	}
	share := int64(rate*inFlightSeconds) / int64(batchesAsked*len(p.claims))
	return max(1, min(batchBytes/chunkBytes, chunksOf(share))) // a source that fell silent has next to no rate
}

// endBatch checks that all of a batch came: chunks are gone when their part is retired or replaced.
func (s *stream) endBatch() error {
	ended := s.asked[0]
	s.from.forget(ended.answer)
	s.asked = s.asked[1:]
	if s.at < ended.end {
		return errHole
	}
	if s.at == s.askedTo && s.object.sequences == nil {
		return errAbsent
	}
	if s.object.sequences == nil {
		s.askedTo = s.at
	}
	return nil
}

// store puts a chunk in its place.
func (s *stream) store(chunk *nats.Msg) (err error) {
	s.sequence, err = strconv.ParseUint(chunk.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return fmt.Errorf("sequence of a chunk: %w", err)
	}
	size, bytes := int64(s.object.info.Size), int64(len(chunk.Data))
	if s.object.sequences != nil && (s.sequence != s.object.sequences[s.at/chunkBytes] || bytes != min(chunkBytes, size-s.at)) {
		return errHole
	}
	if bytes > size-s.at {
		return errAbsent
	}
	t, c := s.transfer, s.claim
	t.mutex.Lock()
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
	complete := t.queue.stored(c, wanted, hashes)
	t.mutex.Unlock()
	if complete {
		return t.verify(c.part)
	}
	return nil
}

// verify judges a complete part, which nobody else touches.
func (t *Transfer) verify(part *fetched) error {
	part.hash.Write(part.into[part.hashed:])
	same := digestOf([sha256.Size]byte(part.hash.Sum(nil))) == part.digest
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if !same {
		return t.queue.corrupted(part)
	}
	t.queue.verified(part)
	part.layer.verified()
	return nil
}

// settle ends a claim. Its error ends the transfer.
func (t *Transfer) settle(ctx context.Context, c *claim, err error) error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	defer t.wake.Broadcast()
	switch now := time.Now(); {
	case err == nil:
		t.queue.release(c, now)
		t.endIfComplete()
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, ErrCorrupt):
		return t.fail(err)
	case errors.Is(err, errAbsent):
		t.queue.absent(c, now)
	case errors.Is(err, errHole):
		return t.fail(t.queue.hole(c, now))
	case errors.Is(err, errForeign):
		t.queue.release(c, now)
		return t.fail(t.queue.exclude(c.part, c.peer))
	default:
		t.queue.stall(c, now, t.stalls)
	}
	return t.fail(t.queue.servable())
}
