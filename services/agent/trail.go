package agent

import (
	"context"
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
	leftAtOnce   = 4           // steps whose parts are not stored yet; who is further behind is not led any more
	mostTrailing = 4           // bytes of changes that wait to be taken, in bytes of the layers themselves
)

// trail is what a node leaves to those who follow the layers that it gives: the layers at one step, and what each step after it
// changed in them.
type trail struct {
	*moves
	puts sync.WaitGroup

	mutex  sync.Mutex
	newest uint64              // completed steps, at the last boundary
	trails map[string]*trailOf // by receiver
	news   chan struct{}       // closed, and made anew, when an answer may have changed
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
	exported chan exported // to be cut into parts and stored
}

// leftAt is what is left at a step.
type leftAt struct {
	layers []events.FollowedLayer
	bytes  int64
}

// exported is this node's shares of layers at a step, or of what it changed in them.
type exported struct {
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
	l := &trail{moves: t, newest: done, trails: map[string]*trailOf{}, news: make(chan struct{})}
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
	for _, receiver := range slices.Sorted(maps.Keys(l.trails)) {
		of := l.trails[receiver]
		switch {
		case of.lost || !of.asked || of.begun && of.last == done || !of.begun && of.base > done:
			continue
		case !of.begun && of.base == done:
			of.begun, of.last, of.exported = true, done, make(chan exported, leftAtOnce)
			l.puts.Go(func() { l.store(of) })
			l.export(of, exported{step: done, whole: true}, state.Export)
		case of.begun && of.last+1 == done:
			of.last = done
			l.export(of, exported{step: done}, state.Change)
		default:
			of.asked = false // it passed the step before it was asked
		}
	}
	l.tell()
}

// tell wakes who waits for an answer.
func (l *trail) tell() {
	close(l.news)
	l.news = make(chan struct{})
}

// export copies no more than this node's shares: they are in memory until they are stored.
func (l *trail) export(of *trailOf, left exported, from func(layer int, step uint64) ([]byte, error)) {
	for _, transfer := range l.given(of.receiver) {
		data, err := from(transfer.Layer, left.step)
		if err != nil {
			l.lose(of, err.Error())
			return
		}
		bytes := int64(len(data))
		if left.whole {
			of.sizes[transfer.Layer] = bytes
		}
		given, _ := rangeOf(l.config.Node, transfer)
		first, end := shareOf(given, transfer, l.Plan.Migration.ShardBytes, of.sizes[transfer.Layer], bytes)
		left.shares = append(left.shares, share{transfer.Layer, first, bytes, slices.Clone(data[first:end])})
	}
	select {
	case of.exported <- left:
	default:
		l.lose(of, "its parts are stored too slowly")
	}
}

// given returns the transfers from this node to a receiver.
func (l *trail) given(receiver string) []events.Transfer {
	return slices.DeleteFunc(slices.Clone(l.Plan.Migration.Transfers), func(transfer events.Transfer) bool {
		_, gives := rangeOf(l.config.Node, transfer)
		return !gives || transfer.To != receiver
	})
}

// lose ends a trail: its receiver hears so, and takes its layers where all stand.
func (l *trail) lose(of *trailOf, reason string) {
	slog.Warn("a receiver cannot follow", "node", l.config.Node, "receiver", of.receiver, "reason", reason)
	of.lost = true
	l.tell()
}

// store cuts what is exported for a receiver into parts, and puts them into this node's store.
func (l *trail) store(of *trailOf) {
	for {
		select {
		case <-l.moving.Done():
			return
		case left := <-of.exported:
			if err := l.lay(of, left); err != nil && l.moving.Err() == nil {
				l.mutex.Lock()
				l.lose(of, err.Error())
				l.mutex.Unlock()
			}
		}
	}
}

// errBehind says that a receiver takes changes more slowly than training makes them.
var errBehind = errors.New("it takes changes more slowly than they come")

// lay tells the manifest before it stores the parts: who asks for one too early asks again.
func (l *trail) lay(of *trailOf, left exported) error {
	var at leftAt
	select {
	case <-l.before:
	case <-l.moving.Done():
		return l.moving.Err()
	}
	for _, share := range left.shares {
		at.layers = append(at.layers, share.manifest())
		at.bytes += int64(len(share.data))
	}
	l.mutex.Lock()
	of.left[left.step] = at
	if left.whole {
		of.bytes = at.bytes
	} else {
		of.waiting += at.bytes
	}
	behind := of.waiting > mostTrailing*of.bytes
	l.tell()
	l.mutex.Unlock()
	if behind {
		return errBehind
	}
	puts, ctx := errgroup.WithContext(l.moving)
	puts.SetLimit(putsAtOnce)
	for i, share := range left.shares {
		for _, part := range at.layers[i].Parts {
			puts.Go(func() error {
				return l.put(ctx, part.Digest, share.data[part.First-share.first:part.End-share.first], []string{of.receiver})
			})
		}
	}
	return puts.Wait()
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
	of := l.trails[request.To]
	if of == nil {
		return events.Following{Newest: l.newest, Gone: true}
	}
	if request.Whole && of.begun && of.base != request.Step {
		of = newTrailOf(request.To) // it begins anew
		l.trails[request.To] = of
	}
	l.note(of, request)
	for {
		at, there := of.left[request.Step]
		passed := request.Whole && !(of.asked && of.base == request.Step) || !request.Whole && request.Step <= of.base
		if there || passed || of.lost {
			return events.Following{Newest: l.newest, Gone: !there, Layers: at.layers}
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

// note takes what a request tells: a receiver that asks for a step has taken the ones before.
func (l *trail) note(of *trailOf, request events.Follow) {
	if request.Whole {
		if !of.begun {
			of.asked, of.base = request.Step >= l.newest, request.Step
			l.wake() // a trainer that stands at that step can export at once
		}
		return
	}
	var taken []string
	for step, left := range of.left {
		if step >= request.Step {
			continue
		}
		if step != of.base {
			of.waiting -= left.bytes
		}
		for _, layer := range left.layers {
			for _, part := range layer.Parts {
				taken = append(taken, part.Digest)
			}
		}
		delete(of.left, step)
	}
	if len(taken) > 0 {
		l.puts.Go(func() { l.retireFrom(of.receiver, taken) })
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

// retireFrom removes parts that a receiver has, unless another one is to have them.
func (t *moves) retireFrom(receiver string, digests []string) {
	var gone []string
	t.given.Lock()
	t.stored = slices.DeleteFunc(t.stored, func(part stored) bool {
		return slices.Contains(digests, part.digest) && slices.Equal(part.receivers, []string{receiver})
	})
	for _, digest := range digests {
		if !slices.ContainsFunc(t.stored, func(part stored) bool { return part.digest == digest }) {
			gone = append(gone, digest)
		}
	}
	t.given.Unlock()
	if err := t.store.Retire(context.WithoutCancel(t.moving), gone...); err != nil && t.moving.Err() == nil {
		slog.Warn("parts not retired; they stay until the negotiation ends", "node", t.config.Node, "error", err)
	}
}
