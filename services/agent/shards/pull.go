package shards

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/services/agent/queue"
)

// manifestsAhead is how many parts' manifests are asked for before the parts are: other sources take most of them. For a
// giver, which puts the parts then, they are those of so many bytes: with four claims that is 48 MiB of its window.
const (
	manifestsAhead = 16
	aheadBytes     = 16 << 20
)

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

// pull fetches what is claimed of a source, chunk by chunk, by the part's manifest.
type pull struct {
	transfer *Transfer
	from     *source
	claim    *queue.Claim
	manifest *manifest
	asked    []request
	at       int64  // offset of the next message in the part
	sequence uint64 // of the last message in the stream
}

// run returns when all that is claimed is there or was taken over, or when the source failed.
func (p *pull) run(ctx context.Context) (err error) {
	digest := p.claim.Part.Digest
	p.from.use(digest)
	defer func() {
		if errors.Is(err, errLater) {
			p.from.stay(p.claim.Part)
		} else {
			p.from.leave(digest)
		}
	}()
	defer p.forget()
	p.manifest, err = p.find(ctx)
	if errors.Is(err, errNobody) {
		p.from.learn(keeps)
		p.manifest, err = p.find(ctx)
	}
	if errors.Is(err, errLater) {
		p.from.keepAhead(nil) // what is there for later takes the room
	}
	if err != nil {
		return err
	}
	if !p.isOfPart(p.manifest.info) {
		return errForeign
	}
	return p.read(ctx)
}

// isOfPart reports whether a record is the part's own.
func (p *pull) isOfPart(info jetstream.ObjectInfo) bool {
	return info.Name == p.from.seal.Name(p.claim.Part.Digest) && info.Size == uint64(len(p.claim.Part.Bytes))
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
		message, err := p.await(ctx, p.asked[0].answer)
		if err == nil {
			err = p.take(message)
		}
		if err != nil {
			return err
		}
	}
}

// find returns the part's manifest, and asks for the manifests of the parts behind it: asked for later, they would come
// behind the bytes of the other parts in flight, and the link would run dry meanwhile.
func (p *pull) find(ctx context.Context) (*manifest, error) {
	digest := p.claim.Part.Digest
	if asked := p.from.takeManifest(digest); asked != nil {
		defer p.from.leave(digest)
		p.askAhead()
		if found, err := p.awaitManifest(ctx, asked); !errors.Is(err, errAbsent) && !errors.Is(err, errLater) { // it may have come since
			return found, err
		}
	}
	asked, err := p.from.askManifest(digest)
	if err != nil {
		return nil, err
	}
	p.askAhead()
	return p.awaitManifest(ctx, asked)
}

// askAhead asks a giver for as much as it may put ahead, and a bucket where parts lie for many manifests.
func (p *pull) askAhead() {
	t := p.transfer
	t.mutex.Lock()
	var parts []*queue.Part
	if p.from.puts() {
		parts = t.queue.Ahead(p.claim.Source, aheadBytes, time.Now())
	} else {
		parts = t.queue.Upcoming(p.claim.Source, manifestsAhead, time.Now())
	}
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
	message, err := p.await(ctx, asked)
	if err != nil {
		return nil, err
	}
	if p.from.puts() {
		switch message.Header.Get("Status") {
		case statusNobody:
			return nil, errNobody
		case statusLater:
			return nil, errLater
		}
		p.from.learn(puts)
	}
	found, err := parseManifest(message)
	if err == nil && found == nil {
		err = errAbsent
	}
	return found, err
}

// await returns the next message of an answer. It gives up when the source is silent, or after patientTurns times as
// long.
func (p *pull) await(ctx context.Context, asked *answer) (*nats.Msg, error) {
	timer := time.NewTimer(p.transfer.stall)
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
		silent := p.from.silence()
		if silent >= p.transfer.stall {
			break
		}
		timer.Reset(p.transfer.stall - silent)
	}
	return nil, errStalled
}
