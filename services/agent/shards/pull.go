package shards

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/services/agent/queue"
)

// manifestsAhead is how many parts' manifests are asked for before the parts are, of a bucket in which they lie: other sources take
// most of them.
const manifestsAhead = 16

// patientTurns is for how many stalls a message may wait behind others' bytes, while those come: 4 MiB that another
// claim asked for take so long over a link of 1.1 Mbit/s.
const patientTurns = 20

var (
	errAbsent  = errors.New("the source does not have the part")
	errLater   = errors.New("the source is to be asked for the part again")
	errStalled = errors.New("the source sends nothing")
	errForeign = errors.New("the source answers with something else than the part")
	errNobody  = errors.New("the source puts no parts")
)

// pull fetches what is claimed of a source, chunk by chunk, by the manifest of the object in which that lies.
type pull struct {
	transfer *Transfer
	from     *source
	claim    *queue.Claim
	piece    piece // that the object is
	plain    bool  // asked for as an earlier build understands it
	manifest *manifest
	asked    []request
	at       int64  // offset of the next message in the part
	sequence uint64 // of the last message in the stream
}

// run returns when all that is claimed is there or was taken over, or when the source failed. A source of which nothing is known yet may
// put no parts, or none but whole ones.
func (p *pull) run(ctx context.Context) error {
	known := p.from.known()
	p.piece = piece{digest: p.claim.Part.Digest}
	if known == keeps || known == putsWhole {
		p.widen()
	} else if p.split() {
		p.piece.first, p.piece.end = p.claim.Piece()
	}
	err := p.attempt(ctx)
	switch {
	case errors.Is(err, errNobody):
		p.from.learn(keeps)
		p.widen()
	case errors.Is(err, errAbsent) && p.from.known() == unknown:
	default:
		return err
	}
	p.whole()
	return p.attempt(ctx)
}

// whole has a claim come out of the whole part.
func (p *pull) whole() {
	p.piece, p.plain = piece{digest: p.claim.Part.Digest}, true
	p.reask()
}

// widen has the source give a part that lies there whole: it was claimed a piece of before that was known.
func (p *pull) widen() {
	t := p.transfer
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if p.claim.Source.Gives == queue.Untold {
		p.claim.Source.Gives = queue.Whole
	}
	t.queue.Widen(p.claim)
}

func (p *pull) attempt(ctx context.Context) (err error) {
	name := p.piece.name()
	p.from.use(name)
	defer func() {
		if errors.Is(err, errLater) {
			p.from.stay(name, p.claim.Part)
		} else {
			p.from.leave(name)
		}
	}()
	defer p.forget()
	if p.manifest, err = p.find(ctx); err != nil || p.manifest == nil {
		return err
	}
	p.learn()
	if !p.isOfPiece(p.manifest.info) {
		return errForeign
	}
	return p.read(ctx)
}

// learn notes what a source does that has what it was asked for.
func (p *pull) learn() {
	switch {
	case p.plain:
		p.from.learn(putsWhole)
	case !p.piece.whole() || len(p.asked) > 0:
		p.from.learn(puts)
	}
	gives := map[kind]queue.Giving{puts: queue.Pieces, putsWhole: queue.Whole, keeps: queue.Whole}[p.from.known()]
	if p.manifest.sequences == nil {
		gives = queue.Ordered
	}
	p.gives(gives)
}

func (p *pull) gives(what queue.Giving) {
	t := p.transfer
	t.mutex.Lock()
	defer t.mutex.Unlock()
	p.claim.Source.Gives = what
}

// split reports whether a claim is a piece of its part.
func (p *pull) split() bool {
	first, end := p.claim.Piece()
	return end-first < p.size()
}

// isOfPiece reports whether a record is the piece's own.
func (p *pull) isOfPiece(info jetstream.ObjectInfo) bool {
	size := p.size()
	if !p.piece.whole() {
		size = p.piece.end - p.piece.first
	}
	return info.Name == p.from.seal.Name(p.piece.name()) && info.Size == uint64(size)
}

// reask forgets what was asked for: it is asked for in another way.
func (p *pull) reask() {
	p.forget()
	p.asked, p.at = nil, 0
	t := p.transfer
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.queue.Reask(p.claim)
}

func (p *pull) forget() {
	for _, asked := range p.asked {
		p.from.forget(asked.answer)
	}
}

func (p *pull) read(ctx context.Context) error {
	for {
		next, end := p.wanted()
		if next == end {
			return nil
		}
		if err := p.ask(); err != nil {
			return err
		}
		if len(p.asked) == 0 { // it came while another source had the claim's end, which is given back
			p.reask()
			continue
		}
		message, err := p.await(ctx, p.asked[0].answer, nil)
		if err == nil {
			err = p.take(message)
		}
		if err != nil {
			return err
		}
	}
}

// find returns the manifest; nil where all that is claimed came before it. It also asks a bucket in which parts lie for the manifests of
// the parts behind: asked for later, they would come behind the bytes of the other parts in flight, and the link would run dry meanwhile.
func (p *pull) find(ctx context.Context) (*manifest, error) {
	if !p.from.puts() {
		return p.findStored(ctx)
	}
	asked, err := p.askPut()
	if err != nil {
		return nil, err
	}
	defer p.from.forget(asked)
	for next, end := p.wanted(); next < end; next, end = p.wanted() {
		message, err := p.await(ctx, asked, p.nextChunk())
		if err != nil {
			return nil, err
		}
		if message.Subject == p.from.inbox+asked.token {
			return p.judge(message)
		}
		if err := p.takeEarly(message); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// askPut asks a giver for the manifest, and for chunks beside it: they come a round trip earlier so, as soon as each is put. A giver that
// has no room is asked for chunks only while nothing is on its way: the chunks of other claims would be asked for one by one meanwhile.
func (p *pull) askPut() (*answer, error) {
	if p.plain || p.from.known() == putsWhole || p.from.crowded.Load() && !p.rests() {
		return p.from.askManifest(p.piece)
	}
	var offsets []int64
	for offset, wanted := p.next(); wanted; offset, wanted = p.next() {
		offsets = append(offsets, offset)
	}
	if len(offsets) == 0 { // another source took the claim over meanwhile
		return p.from.askManifest(p.piece)
	}
	asked, pushed, err := p.from.askPiece(p.piece, len(offsets))
	for i, awaited := range pushed {
		p.asked = append(p.asked, request{answer: awaited, first: offsets[i]})
	}
	return asked, err
}

// nextChunk is where the next chunk that was asked for arrives; nil where none was.
func (p *pull) nextChunk() <-chan *nats.Msg {
	if len(p.asked) == 0 {
		return nil
	}
	return p.asked[0].answer.messages
}

func (p *pull) rests() bool {
	p.transfer.mutex.Lock()
	defer p.transfer.mutex.Unlock()
	return p.claim.Source.Rests()
}

func (p *pull) findStored(ctx context.Context) (*manifest, error) {
	if asked := p.from.takeManifest(p.piece.digest); asked != nil {
		p.askAhead()
		if found, err := p.awaitManifest(ctx, asked); !errors.Is(err, errAbsent) { // it may have come since
			return found, err
		}
	}
	asked, err := p.from.askManifest(p.piece)
	if err != nil {
		return nil, err
	}
	p.askAhead()
	return p.awaitManifest(ctx, asked)
}

// askAhead asks for the manifests of the parts behind.
func (p *pull) askAhead() {
	t := p.transfer
	t.mutex.Lock()
	parts := t.queue.Upcoming(p.claim.Source, manifestsAhead, time.Now())
	t.mutex.Unlock()
	var digests []string
	for _, part := range parts {
		digests = append(digests, part.Digest)
	}
	p.from.keepAhead(digests)
	for _, digest := range digests {
		if p.from.askManifestAhead(digest) != nil {
			return // it shows when the part is asked for
		}
	}
}

func (p *pull) awaitManifest(ctx context.Context, asked *answer) (*manifest, error) {
	defer p.from.forget(asked)
	message, err := p.await(ctx, asked, nil)
	if err != nil {
		return nil, err
	}
	return p.judge(message)
}

// judge reads a source's answer to the question for a manifest.
func (p *pull) judge(message *nats.Msg) (*manifest, error) {
	if p.from.puts() {
		if message.Header.Get(givesHeader) == givesPieces {
			p.from.learn(puts)
		}
		p.from.crowded.Store(message.Header.Get("Status") == statusLater)
		switch message.Header.Get("Status") {
		case statusNobody:
			return nil, errNobody
		case statusLater:
			return nil, errLater
		}
	}
	found, err := parseManifest(message)
	if err == nil && found == nil {
		err = errAbsent
	}
	return found, err
}

// await returns the next message of an answer, or of what may come before it. It gives up when the source is silent, or after
// patientTurns times as long.
func (p *pull) await(ctx context.Context, asked *answer, before <-chan *nats.Msg) (*nats.Msg, error) {
	timer := time.NewTimer(p.transfer.stall)
	defer timer.Stop()
	for range patientTurns {
		select {
		case message := <-asked.messages:
			return message, nil
		case message := <-before:
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
		silent := p.from.silence()
		if silent >= p.transfer.stall {
			break
		}
		timer.Reset(p.transfer.stall - silent)
	}
	return nil, errStalled
}
