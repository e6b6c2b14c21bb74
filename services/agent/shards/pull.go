package shards

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/services/agent/queue"
)

// batchBytes is what is asked for at a time of what another writer stored: nobody knows where its chunks lie.
const batchBytes = 2 << 20

// manifestsAhead is how many parts' manifests are asked for before the parts are: other sources take most of them.
const manifestsAhead = 16

// patientTurns is for how many stalls a message may wait behind others' bytes, while those come: 4 MiB that another
// claim asked for take so long over a link of 1.1 Mbit/s.
const patientTurns = 20

var (
	errAbsent  = errors.New("the source does not have the part")
	errStalled = errors.New("the source sends nothing")
	errForeign = errors.New("the source's object is not of the part's size")
)

// pull fetches what is claimed, and returns when it is there, was taken over, or failed.
func (t *Transfer) pull(ctx context.Context, from *source, c *queue.Claim) error {
	s := &stream{transfer: t, from: from, claim: c}
	defer s.forget()
	found, err := t.manifest(ctx, s)
	if err != nil {
		return err
	}
	if found.info.Size != uint64(len(c.Part.Bytes)) {
		return fmt.Errorf("%w: expected %d bytes, got %d", errForeign, len(c.Part.Bytes), found.info.Size)
	}
	s.manifest = found
	return s.read(ctx)
}

// manifest returns a part's manifest, and asks for those of the parts behind it: the answer would come behind the bytes
// of the other parts in flight, and the link ran dry meanwhile. Where it has to be awaited, the first chunks come
// behind it.
func (t *Transfer) manifest(ctx context.Context, s *stream) (*manifest, error) {
	from, c := s.from, s.claim
	if asked := from.takeManifest(c.Part.Digest); asked != nil {
		t.askAhead(from, c.Source)
		if found, err := t.readManifest(ctx, from, asked); !errors.Is(err, errAbsent) { // it may have come since
			return found, err
		}
	}
	asked, err := from.askManifest(c.Part.Digest)
	if err == nil {
		err = s.askFirst()
	}
	if err != nil {
		return nil, err
	}
	t.askAhead(from, c.Source)
	return t.readManifest(ctx, from, asked)
}

// begins reports whether a source has given nothing yet, and a claim is for a part from its beginning on that nobody
// says it lacks.
func (t *Transfer) begins(c *queue.Claim) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return c.Source.Bytes() == 0 && c.Next == 0 && !c.Part.Alone() && !c.Part.Absent(c.Source)
}

func (t *Transfer) askAhead(from *source, p *queue.Source) {
	t.mutex.Lock()
	parts := t.queue.Upcoming(p, manifestsAhead, time.Now())
	t.mutex.Unlock()
	for _, part := range parts {
		if from.askManifestAhead(part.Digest) != nil {
			return // it shows when the part is asked for
		}
	}
}

func (t *Transfer) readManifest(ctx context.Context, from *source, asked *answer) (*manifest, error) {
	defer from.forget(asked)
	message, err := t.await(ctx, from, asked)
	if err != nil {
		return nil, err
	}
	found, err := parseManifest(message)
	if err == nil && found == nil {
		err = errAbsent
	}
	return found, err
}

// await returns the next message of an answer. It gives up when the source is silent, or after patientTurns times as
// long.
func (t *Transfer) await(ctx context.Context, from *source, asked *answer) (*nats.Msg, error) {
	timer := time.NewTimer(t.stalls)
	defer timer.Stop()
	for range patientTurns {
		select {
		case message := <-asked.messages:
			return message, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-asked.broken:
			select {
			case message := <-asked.messages: // it came before
				return message, nil
			default:
				return nil, errBroken
			}
		case <-timer.C:
		}
		silent := from.silence()
		if silent >= t.stalls {
			break
		}
		timer.Reset(t.stalls - silent)
	}
	return nil, errStalled
}

// verify judges a complete part, which nobody else touches.
func (t *Transfer) verify(part *queue.Part) {
	part.Hash.Write(part.Bytes[part.Hashed():])
	same := digestOf(part.Hash.Sum(nil)) == part.Digest
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if !same {
		t.queue.Corrupted(part)
		return
	}
	t.queue.Verified(part)
	layer := t.layers[part]
	delete(t.layers, part)
	if layer.open--; layer.open == 0 && layer.whole != nil {
		close(layer.whole)
	}
}

// settle ends a claim. Its error ends the transfer.
func (t *Transfer) settle(ctx context.Context, c *queue.Claim, err error) error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	defer t.wake.Broadcast()
	switch now := time.Now(); {
	case err == nil:
		t.queue.Release(c, now)
		t.endIfComplete()
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errAbsent):
		t.queue.Absent(c, now)
	case errors.Is(err, errForeign):
		t.queue.Release(c, now)
		t.queue.Exclude(c.Part, c.Source)
	default:
		t.queue.Stall(c, now, t.stalls)
	}
	return t.fail(t.queue.Servable())
}
