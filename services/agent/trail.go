package agent

import (
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/events"
)

const (
	followWait   = time.Second // that a request waits for its step
	leftAtOnce   = 4           // steps that are not stored yet; beyond that nobody is led any more
	mostTrailing = 4           // bytes of changes that wait to be taken, in bytes of the layers themselves
)

// trail is what a node leaves to those who follow the layers that it gives: the layers at one step, and what each step after it
// changed in them.
type trail struct {
	*moves
	left chan *exported // to be cut into parts and stored
	held map[string]int // parts stored, by digest: one step may change the same as another. Of run alone

	mutex  sync.Mutex
	newest uint64              // completed steps, at the last boundary
	trails map[string]*trailOf // by receiver
	news   chan struct{}       // closed, and made anew, when an answer may have changed
	taken  []string            // digests of parts that their receivers have
}

// trailOf is what one receiver is left.
type trailOf struct {
	receiver string
	asked    bool   // for the layers
	base     uint64 // at this step
	begun    bool   // they were exported
	lost     bool   // it cannot be led any more
	last     uint64 // the newest step that was exported
	sizes    map[int]int64
	bytes    int64 // that it is given of the layers
	waiting  int64 // bytes of changes that it has not taken
	left     map[uint64]leftAt
}

// leftAt is what is left at a step.
type leftAt struct {
	layers []events.FollowedLayer
	bytes  int64
}

// exported is this node's shares of layers at a step, or of what it changed in them, for one receiver.
type exported struct {
	of     *trailOf
	step   uint64
	whole  bool
	shares []share
}

// share is a range of a layer's bytes, or of a change's.
type share struct {
	layer int
	first int64
	bytes int64 // of the whole
	data  []byte
}

func newTrail(t *moves, done uint64) *trail {
	l := &trail{
		moves: t, left: make(chan *exported, leftAtOnce), held: map[string]int{},
		newest: done, trails: map[string]*trailOf{}, news: make(chan struct{}),
	}
	for _, transfer := range t.Plan.Migration.Transfers {
		if _, gives := rangeOf(t.config.Node, transfer); gives && l.trails[transfer.To] == nil {
			l.trails[transfer.To] = newTrailOf(transfer.To)
		}
	}
	return l
}

func newTrailOf(receiver string) *trailOf {
	return &trailOf{receiver: receiver, sizes: map[int]int64{}, left: map[uint64]leftAt{}}
}

// leads reports whether a receiver follows.
func (l *trail) leads(receiver string) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	of := l.trails[receiver]
	return of != nil && of.begun && !of.lost
}

// due reports whether there is something to export after so many steps.
func (l *trail) due(done uint64) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if done != l.newest {
		return true
	}
	for _, of := range l.trails {
		if of.asked && !of.begun && of.base == done {
			return true
		}
	}
	return false
}

// leave exports what is to be left at a boundary, on the trainer's goroutine.
func (l *trail) leave(done uint64, state Follower) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.newest = done
	var due []*exported
	for _, receiver := range slices.Sorted(maps.Keys(l.trails)) {
		switch of := l.trails[receiver]; {
		case of.lost || !of.asked || of.begun && of.last == done || !of.begun && of.base > done:
		case !of.begun && of.base == done:
			of.begun, of.last = true, done
			due = append(due, &exported{of: of, step: done, whole: true})
		case of.begun && of.last+1 == done:
			of.last = done
			due = append(due, &exported{of: of, step: done})
		case of.begun:
			l.lose(of, "a step was left out")
		default:
			of.asked = false // it passed the step before it was asked
		}
	}
	for _, layer := range layersFrom(l.config.Node, l.Plan.Migration.Transfers) {
		l.export(layer, due, state)
	}
	for _, left := range due {
		select {
		case l.left <- left:
		default:
			l.lose(left.of, "its parts are stored too slowly")
		}
	}
	l.tell()
}

// tell wakes who waits for an answer.
func (l *trail) tell() {
	close(l.news)
	l.news = make(chan struct{})
}

// export asks for a layer once, whoever follows it, and copies no more than this node's shares: they are in memory until they are
// stored.
func (l *trail) export(layer int, due []*exported, state Follower) {
	var whole, change []byte
	for _, left := range due {
		transfer, given := l.given(layer, left.of.receiver)
		if !given {
			continue
		}
		data, from := &change, state.Change
		if left.whole {
			data, from = &whole, state.Export
		}
		if *data == nil {
			var err error
			if *data, err = from(layer, left.step); err != nil {
				l.lose(left.of, err.Error())
				continue
			}
		}
		left.shares = append(left.shares, l.share(left, transfer, *data))
	}
}

func (l *trail) share(left *exported, transfer events.Transfer, data []byte) share {
	bytes := int64(len(data))
	if left.whole {
		left.of.sizes[transfer.Layer] = bytes
	}
	given, _ := rangeOf(l.config.Node, transfer)
	first, end := shareOf(given, transfer, l.Plan.Migration.ShardBytes, left.of.sizes[transfer.Layer], bytes)
	return share{transfer.Layer, first, bytes, slices.Clone(data[first:end])}
}

// given returns the transfer of a layer from this node to a receiver.
func (l *trail) given(layer int, receiver string) (events.Transfer, bool) {
	for _, transfer := range l.Plan.Migration.Transfers {
		if _, gives := rangeOf(l.config.Node, transfer); gives && transfer.To == receiver && transfer.Layer == layer {
			return transfer, true
		}
	}
	return events.Transfer{}, false
}

// lose ends a trail: its receiver hears so, and takes its layers where all stand.
func (l *trail) lose(of *trailOf, reason string) {
	if !of.lost {
		slog.Warn("a receiver cannot follow", "node", l.config.Node, "receiver", of.receiver, "reason", reason)
	}
	of.lost = true
	l.tell()
}

// run cuts what is exported into parts, puts them into this node's store, and retires what has been taken, until the
// negotiation ends.
func (l *trail) run() {
	select {
	case <-l.before:
	case <-l.moving.Done():
		return
	}
	for {
		select {
		case <-l.moving.Done():
			return
		case left := <-l.left:
			if err := l.lay(left); err != nil && l.moving.Err() == nil {
				l.mutex.Lock()
				l.lose(left.of, err.Error())
				l.mutex.Unlock()
			}
			l.retireTaken()
		}
	}
}

// errBehind says that a receiver takes changes more slowly than training makes them.
var errBehind = errors.New("it takes changes more slowly than they come")

// lay tells the manifest before it stores the parts: who asks for one too early asks again. Nothing of it goes through the hub,
// where it would stay.
func (l *trail) lay(left *exported) error {
	var at leftAt
	for _, share := range left.shares {
		at.layers = append(at.layers, share.manifest())
		at.bytes += int64(len(share.data))
	}
	if !l.reveal(left, at) {
		return errBehind
	}
	puts, ctx := errgroup.WithContext(l.moving)
	puts.SetLimit(putsAtOnce)
	for i, share := range left.shares {
		for _, part := range at.layers[i].Parts {
			l.held[part.Digest]++
			puts.Go(func() error {
				return l.store.PutAs(ctx, part.Digest, share.data[part.First-share.first:part.End-share.first])
			})
		}
	}
	return puts.Wait()
}

// reveal has a receiver hear what is left at a step, unless too much waits for it.
func (l *trail) reveal(left *exported, at leftAt) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	of := left.of
	if left.whole {
		of.bytes = at.bytes
	} else {
		of.waiting += at.bytes
	}
	if of.lost || of.waiting > mostTrailing*of.bytes {
		return false
	}
	of.left[left.step] = at
	l.tell()
	return true
}

// manifest cuts a share into parts.
func (s share) manifest() events.FollowedLayer {
	layer := events.FollowedLayer{Layer: s.layer, Bytes: s.bytes}
	for part := range slices.Chunk(s.data, partBytes) {
		first := s.first
		if last := len(layer.Parts) - 1; last >= 0 {
			first = layer.Parts[last].End
		}
		layer.Parts = append(layer.Parts, events.Part{Digest: events.Digest(part), First: first, End: first + int64(len(part))})
	}
	return layer
}

// shareOf turns a range of shards of a layer into bytes of what a step changed in it, which may be longer or shorter.
func shareOf(share events.Layers, transfer events.Transfer, shardBytes, layerBytes, bytes int64) (first, end int64) {
	first, end = byteRange(share, transfer, shardBytes, layerBytes)
	scaled := func(at int64) int64 { return int64(float64(at) / float64(layerBytes) * float64(bytes)) }
	if end == layerBytes {
		return scaled(first), bytes
	}
	return scaled(first), scaled(end)
}

// answer waits for what is asked for. What a receiver asks for tells what it has.
func (l *trail) answer(request events.Follow) events.Following {
	timer := time.NewTimer(followWait)
	defer timer.Stop()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	of := l.note(request)
	for {
		if of == nil || of.lost || request.Step < of.base || !of.begun && !(request.Whole && of.asked) {
			return events.Following{Newest: l.newest, Gone: true}
		}
		if at, there := of.left[request.Step]; there {
			return events.Following{Newest: l.newest, Layers: at.layers}
		}
		news := l.news
		l.mutex.Unlock()
		late := false
		select {
		case <-news:
		case <-timer.C:
			late = true
		case <-l.moving.Done():
			late = true
		}
		l.mutex.Lock()
		if late {
			return events.Following{Newest: l.newest}
		}
	}
}

// note takes what a request tells: a receiver that asks for a step has taken the ones before, and one that asks for the layers at a
// later step begins anew.
func (l *trail) note(request events.Follow) *trailOf {
	of := l.trails[request.To]
	if of == nil {
		return nil
	}
	if request.Whole && of.begun && request.Step > of.base {
		l.take(of, request.Step)
		of = newTrailOf(request.To)
		l.trails[request.To] = of
	}
	switch {
	case !request.Whole:
		l.take(of, request.Step)
	case !of.begun:
		of.asked, of.base = request.Step >= l.newest, request.Step
		l.wake() // a trainer that stands at that step can export at once
	}
	return of
}

// take notes that what is left before a step can be retired.
func (l *trail) take(of *trailOf, before uint64) {
	for step, left := range of.left {
		if step >= before {
			continue
		}
		if step != of.base {
			of.waiting -= left.bytes
		}
		for _, layer := range left.layers {
			for _, part := range layer.Parts {
				l.taken = append(l.taken, part.Digest)
			}
		}
		delete(of.left, step)
	}
}

// retireTaken retires what no receiver is to take any more.
func (l *trail) retireTaken() {
	l.mutex.Lock()
	taken := l.taken
	l.taken = nil
	l.mutex.Unlock()
	var gone []string
	for _, digest := range taken {
		l.held[digest]--
		if l.held[digest] == 0 {
			delete(l.held, digest)
			gone = append(gone, digest)
		}
	}
	l.retireAll(gone)
}

func (l *trail) retireAll(digests []string) {
	if err := l.store.Retire(l.context, digests...); err != nil && l.context.Err() == nil {
		slog.Warn("parts not retired; they stay until this process ends", "node", l.config.Node, "error", err)
	}
}

// answerFollow answers a receiver. A negotiation that is not heard of yet, or is over, has nothing: it asks again.
func (s *Session) answerFollow(message *nats.Msg) {
	var request events.Follow
	if err := json.Unmarshal(message.Data, &request); err != nil {
		slog.Warn("request not understood", "subject", message.Subject, "error", err)
		return
	}
	s.mutex.Lock()
	following, answer := s.view.following, events.Following{Newest: s.view.done}
	s.mutex.Unlock()
	if following != nil && following.Negotiation == request.Negotiation {
		answer = following.trail.answer(request)
	}
	data, err := json.Marshal(answer)
	if err == nil {
		err = message.Respond(data)
	}
	if err != nil {
		slog.Warn("request not answered", "subject", message.Subject, "error", err)
	}
}
