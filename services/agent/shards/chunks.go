package shards

import (
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/services/agent/queue"
)

// batchBytes is what is asked for at a time of what another writer stored: nobody knows where its chunks lie.
const batchBytes = 2 << 20

// request is for the chunk at an offset. One for an object of another writer is for a batch, however many chunks that is.
type request struct {
	answer *answer
	first  int64 // offset in the part
}

// wanted returns the range of bytes that is still to come.
func (p *pull) wanted() (next, end int64) {
	p.transfer.mutex.Lock()
	defer p.transfer.mutex.Unlock()
	return p.claim.Next, p.claim.End
}

// ask keeps the source busy. One batch follows the other if the manifest does not say at which sequence a chunk lies.
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
	return p.transfer.queue.Ask(p.claim, time.Now())
}

func (p *pull) askChunk(offset int64) (request, error) {
	asked, err := p.from.askChunk(p.sequenceAt(offset))
	return request{answer: asked, first: offset}, err
}

// sequenceAt is where the chunk at an offset of the part lies, as the manifest says.
func (p *pull) sequenceAt(offset int64) uint64 {
	return p.manifest.sequences[(offset-p.piece.first)/chunkBytes]
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
		return errAbsent // it was removed: it is to be wanted again
	}
	return p.store(message)
}

// takeEarly puts a chunk in its place that came before its piece's record. The part's digest judges it, as it does all.
func (p *pull) takeEarly(chunk *nats.Msg) error {
	asked, size := p.asked[0], int64(len(chunk.Data))
	p.from.forget(asked.answer)
	p.asked = p.asked[1:]
	switch {
	case chunk.Header.Get("Status") != "":
		return errAbsent
	case size != min(chunkBytes, p.size()-asked.first):
		return errForeign
	}
	p.from.learn(puts)
	p.gives(queue.Pieces)
	p.at = asked.first
	return p.place(chunk.Data)
}

func (p *pull) size() int64 { return int64(len(p.claim.Part.Bytes)) }

// store judges a chunk of a stored part, and puts it in its place.
func (p *pull) store(chunk *nats.Msg) (err error) {
	p.sequence, err = strconv.ParseUint(chunk.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return fmt.Errorf("sequence of a chunk: %w", err)
	}
	size, bytes := p.size(), int64(len(chunk.Data))
	known := p.manifest.sequences != nil
	if known && (p.sequence != p.sequenceAt(p.at) || bytes != min(chunkBytes, size-p.at)) {
		return errForeign
	}
	if bytes > size-p.at {
		return errAbsent
	}
	return p.place(chunk.Data)
}

// place puts bytes in their place.
func (p *pull) place(came []byte) error {
	t, c, bytes := p.transfer, p.claim, int64(len(came))
	t.mutex.Lock()
	offset, wanted, hashes := t.queue.Reserve(c, p.at, bytes, time.Now())
	t.mutex.Unlock()
	if wanted > 0 {
		data := came[offset-p.at:][:wanted]
		p.from.seal.Apply(c.Part.Digest, offset, data)
		copy(c.Part.Bytes[offset:], data)
		if hashes { // while the bytes are in the processor's cache
			c.Part.Hash.Write(data)
		}
	}
	p.at += bytes
	left.leave(bytes)
	t.mutex.Lock()
	complete := t.queue.Stored(c, wanted, hashes)
	t.mutex.Unlock()
	if complete {
		t.verify(c.Part)
	}
	return nil
}
