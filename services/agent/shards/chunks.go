package shards

import (
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// batchBytes is what is asked for at a time of what another writer stored: nobody knows where its chunks lie.
const batchBytes = 2 << 20

// request is for the chunk at an offset. A request before the manifest came is for all chunks up to an end. One for an
// object of another writer is for a batch, however many chunks that is.
type request struct {
	answer     *answer
	first, end int64 // offsets in the part; end is zero for one chunk and for a batch
}

// wanted returns the range of bytes that is still to come.
func (p *pull) wanted() (next, end int64) {
	p.transfer.mutex.Lock()
	defer p.transfer.mutex.Unlock()
	return p.claim.Next, p.claim.End
}

// ask keeps the source busy. Where the manifest does not say at which sequence a chunk lies, one batch follows the
// other.
func (p *pull) ask() error {
	if p.manifest.sequences == nil {
		return p.askBatch()
	}
	for offset, wanted := p.next(); wanted; offset, wanted = p.next() {
		asked, err := p.askChunk(offset)
		if err != nil {
			return err
		}
		p.asked = append(p.asked, asked)
	}
	return nil
}

// next returns the offset of the next chunk to ask for, if any.
func (p *pull) next() (offset int64, wanted bool) {
	p.transfer.mutex.Lock()
	defer p.transfer.mutex.Unlock()
	return p.transfer.queue.Ask(p.claim, p.from.roundTrip(), time.Now())
}

func (p *pull) askChunk(offset int64) (request, error) {
	asked, err := p.from.askChunk(p.manifest.sequences[offset/chunkBytes])
	return request{answer: asked, first: offset}, err
}

// askFirst asks for a part's first chunks in the same flight as for its manifest. It does so only while the link has
// nothing else to carry: later, chunks would come of parts whose manifests are not stored yet. The last of the chunks
// that the source may be asked for is left to be asked for by its sequence: where an earlier chunk is gone, the server
// sends the next one in its place.
func (p *pull) askFirst() error {
	chunks := 0
	for _, wanted := p.next(); wanted; _, wanted = p.next() {
		chunks++
	}
	asked, err := p.from.askFirstChunks(p.claim.Part.Digest, max(1, chunks-1))
	if err == nil {
		p.asked = append(p.asked, request{answer: asked, end: int64(chunks) * chunkBytes})
	}
	return err
}

func (p *pull) askBatch() error {
	if len(p.asked) > 0 {
		return nil
	}
	t := p.transfer
	t.mutex.Lock()
	bytes := t.queue.AskRest(p.claim, p.at, batchBytes)
	t.mutex.Unlock()
	asked, err := p.from.askChunks(p.manifest, p.sequence+1, batchMessages, bytes)
	if err == nil {
		p.asked = append(p.asked, request{answer: asked, first: p.at})
	}
	return err
}

// take puts a message in its place, or hears that the source has none.
func (p *pull) take(message *nats.Msg) error {
	there := message.Header.Get("Status") == ""
	if p.asked[0].end > 0 {
		return p.takeFirst(message, there)
	}
	if p.manifest.sequences != nil || !there {
		asked := p.asked[0]
		p.from.forget(asked.answer)
		p.asked = p.asked[1:]
		if p.manifest.sequences == nil && p.at == asked.first {
			return errAbsent // nothing came of the batch: the part was retired or replaced
		}
		if p.manifest.sequences == nil {
			return nil
		}
		p.at = asked.first
	}
	if !there {
		p.lack()
		return nil
	}
	return p.store(message)
}

// takeFirst takes one of the first chunks. Those that do not come are asked for by their sequences.
func (p *pull) takeFirst(message *nats.Msg, there bool) error {
	if there && !p.follows(message) {
		p.from.late(int64(len(message.Data)))
		return nil
	}
	if there {
		return p.store(message)
	}
	first := p.asked[0]
	p.from.forget(first.answer)
	p.asked = p.asked[1:]
	if p.manifest.sequences == nil {
		return nil
	}
	var again []request
	for offset := p.at; offset < min(first.end, p.size()); offset += chunkBytes {
		asked, err := p.askChunk(offset)
		if err != nil {
			return err
		}
		again = append(again, asked)
	}
	p.asked = append(again, p.asked...)
	return nil
}

// follows reports whether a message is a chunk of the manifest's object that did not come yet. Chunks between the one
// that was to come next and this one are gone.
func (p *pull) follows(message *nats.Msg) bool {
	if message.Header.Get(jetstream.SubjectHeader) != chunkSubject(p.from.bucket, p.manifest.info.NUID) {
		return false
	}
	sequence, err := strconv.ParseUint(message.Header.Get(jetstream.SequenceHeader), 10, 64)
	known := p.manifest.sequences
	for err == nil && known != nil && p.at < p.size() && known[p.at/chunkBytes] < sequence {
		p.lack()
		p.at += chunkBytes
	}
	return err == nil && p.at < p.size()
}

func (p *pull) size() int64 { return int64(p.manifest.info.Size) }

// lack leaves a chunk that is gone to other sources.
func (p *pull) lack() {
	t := p.transfer
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.queue.Lack(p.claim, time.Now())
	t.wake.Broadcast()
}

// store puts a chunk in its place.
func (p *pull) store(chunk *nats.Msg) (err error) {
	p.sequence, err = strconv.ParseUint(chunk.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return fmt.Errorf("sequence of a chunk: %w", err)
	}
	size, bytes := p.size(), int64(len(chunk.Data))
	known := p.manifest.sequences != nil
	if known && (p.sequence != p.manifest.sequences[p.at/chunkBytes] || bytes != min(chunkBytes, size-p.at)) {
		return errForeign
	}
	if bytes > size-p.at {
		return errAbsent
	}
	t, c := p.transfer, p.claim
	t.mutex.Lock()
	offset, wanted, hashes := t.queue.Reserve(c, p.at, bytes, time.Now())
	t.mutex.Unlock()
	if wanted > 0 {
		data := chunk.Data[offset-p.at:][:wanted]
		copy(c.Part.Bytes[offset:], data)
		if hashes { // while the bytes are in the processor's cache
			c.Part.Hash.Write(data)
		}
	}
	p.at += bytes
	t.mutex.Lock()
	complete := t.queue.Stored(c, wanted, hashes)
	t.mutex.Unlock()
	if complete {
		t.verify(c.Part)
	}
	return nil
}
