package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/shards"
)

const (
	followTimeout  = 3 * followWait         // of a request, which waits for its step at the giver
	followPause    = 250 * time.Millisecond // before a request that failed is made again
	followPatience = 5 * time.Second        // without a byte or a step, where one is to be had
	beginnings     = 5                      // with layers at a later step, because a giver had passed the one asked for
	caughtUp       = 1                      // steps behind the givers: only the one that just ended
	fallingBack    = 4                      // steps in which a receiver must come nearer
)

// pursuit is how a receiver's layers come to where training is: it takes them as they were at some step, and applies what each
// step since changed.
type pursuit struct {
	*moves
	follower Follower
	givers   []string
	began    time.Time
	behind   uint64 // steps, when it was last known
	told     bool
	cancel   context.CancelFunc

	mutex  sync.Mutex
	fetch  *shards.Transfer
	base   uint64 // the step at which the layers were asked for
	newest uint64 // completed steps of the giver that is furthest
	layers map[int][]byte
	step   uint64 // that they are at
	bytes  int64
	ended  error
	news   chan struct{} // closed, and made anew, when it came further
}

func newPursuit(t *moves, follower Follower, cancel context.CancelFunc) *pursuit {
	return &pursuit{
		moves: t, follower: follower, givers: giversOf(t.wanted()), cancel: cancel, began: time.Now(), news: make(chan struct{}),
	}
}

// run follows until the negotiation ends. Where it cannot, it says why: then its layers come where all stand.
func (p *pursuit) run(ctx context.Context) {
	err := p.chase(ctx)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.layers, p.ended = nil, err
	close(p.news)
	p.news = make(chan struct{})
	if ctx.Err() == nil {
		slog.Warn("layers are not followed; they come where all stand", "node", p.config.Node, "error", err)
		p.tell(err)
	}
}

// chase returns why it cannot follow.
func (p *pursuit) chase(ctx context.Context) error {
	reached := p.reach(p.givers)
	for _, giver := range p.givers {
		if !reached[giver] {
			return fmt.Errorf("the store of %s is out of reach", giver) // changes are too many for the hub's
		}
	}
	sources := slices.DeleteFunc(p.sources(reached), func(source shards.Source) bool { return source.Name == theHub })
	fetch, err := shards.NewTransfer(sources, 0)
	if err != nil {
		return err
	}
	p.mutex.Lock()
	p.fetch = fetch
	p.mutex.Unlock()
	chasing, ctx := errgroup.WithContext(ctx)
	chasing.Go(func() error { return fetch.Run(ctx) })
	chasing.Go(func() error { return p.catchUp(ctx) })
	return chasing.Wait()
}

// catchUp does not return without an error.
func (p *pursuit) catchUp(ctx context.Context) error {
	left, step, err := p.askWhole(ctx)
	if err != nil {
		return err
	}
	asIs := func(_ int, data []byte) ([]byte, error) { return data, nil }
	layers, whole, err := p.take(ctx, left, asIs)
	if err != nil {
		return err
	}
	p.arrive(layers, step)
	if step == p.config.TotalSteps {
		p.tell(nil) // there will be no further one
	}
	var lags []uint64
	for step++; ; step++ {
		left, err := p.ask(ctx, step, false)
		if err != nil {
			return err
		}
		if left.gone {
			return fmt.Errorf("step %d is not to be had", step)
		}
		p.behind = left.newest - (step - 1)
		nearer := len(lags) < fallingBack || p.behind < lags[0]
		lags = append(lags, p.behind)
		lags = lags[max(0, len(lags)-fallingBack):]
		if p.behind <= caughtUp || !nearer {
			p.tell(nil)
		}
		before, changed := layers, int64(0)
		layers, changed, err = p.take(ctx, left, func(layer int, change []byte) ([]byte, error) {
			return p.follower.Apply(layer, before[layer], change)
		})
		if err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		p.arrive(layers, step)
		if !nearer && int64(p.behind)*changed > whole {
			return fmt.Errorf("%d steps behind, and not nearer for %d", p.behind, fallingBack)
		}
	}
}

// tell says once that this receiver has what it can have while training goes on.
func (p *pursuit) tell(why error) {
	if p.told {
		return
	}
	p.told = true
	followed := &events.Followed{
		Negotiation: p.Negotiation, Node: p.config.Node, Step: p.step, Behind: p.behind, Bytes: p.bytes, Seconds: time.Since(p.began).Seconds(),
	}
	if why != nil {
		followed.Reason = fmt.Sprintf("%.1000s", why)
	} else {
		slog.Info("layers are followed", "node", p.config.Node, "step", p.step, "behind", p.behind, "bytes", p.bytes, "seconds", followed.Seconds)
	}
	p.say(p.speaker.Say(p.cause, events.ShardFollowed, p.config.Node, followed))
}

// arrive notes what the layers have come to.
func (p *pursuit) arrive(layers map[int][]byte, step uint64) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.layers, p.step = layers, step
	p.bytes = p.fetch.Progress().Done
	close(p.news)
	p.news = make(chan struct{})
}

// at waits until the layers are those of a step, at which all stand. It returns none, and follows no more, where they do not come
// there.
func (p *pursuit) at(ctx context.Context, step uint64) map[int][]byte {
	watch := p.watch() // nothing need come before the first giver stands there
	for ctx.Err() == nil {
		p.mutex.Lock()
		layers, at, base, ended, news := p.layers, p.step, p.base, p.ended, p.news
		trained := p.newest < step
		p.mutex.Unlock()
		if trained {
			watch = p.watch()
		}
		switch {
		case ended != nil:
			return nil
		case layers != nil && at == step:
			return layers
		case layers == nil && base > step || watch.idle():
			slog.Warn("layers that were followed do not come to where all stand", "node", p.config.Node, "step", step, "have", at)
			p.cancel()
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
		case <-time.After(followPause):
		}
	}
	return nil
}

// watch notices when nothing moves.
func (p *pursuit) watch() *watch { return &watch{pursuit: p, since: time.Now()} }

type watch struct {
	pursuit *pursuit
	step    uint64
	bytes   int64
	since   time.Time
}

// idle reports whether neither a step nor a byte came for long.
func (w *watch) idle() bool {
	p := w.pursuit
	p.mutex.Lock()
	defer p.mutex.Unlock()
	step, bytes := p.step, int64(0)
	if p.fetch != nil {
		for _, source := range p.fetch.Progress().Sources {
			bytes += source.Bytes
		}
	}
	if step != w.step || bytes != w.bytes {
		w.step, w.bytes, w.since = step, bytes, time.Now()
	}
	return time.Since(w.since) > followPatience
}

func (p *pursuit) received() []events.Received {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.fetch == nil {
		return nil
	}
	return received(p.fetch.Progress())
}

// trails is what all givers left at a step.
type trails struct {
	newest uint64 // completed steps of the giver that is furthest
	gone   bool   // one of them does not have it
	layers map[string][]events.FollowedLayer
}

// askWhole asks for the layers at the first step that no giver has passed.
func (p *pursuit) askWhole(ctx context.Context) (left trails, step uint64, err error) {
	for ahead := range uint64(beginnings) {
		left, err = p.ask(ctx, step, true)
		if err != nil || !left.gone {
			return left, step, err
		}
		step = left.newest + ahead + 1
		if last := p.config.TotalSteps; last > 0 {
			step = min(step, last)
		}
		p.mutex.Lock()
		p.base = step
		p.mutex.Unlock()
	}
	return left, step, fmt.Errorf("no step before %d is to be had of all givers", step)
}

// ask asks every giver until each has come to the step, or one of them does not have it.
func (p *pursuit) ask(ctx context.Context, step uint64, whole bool) (trails, error) {
	asking, ctx := errgroup.WithContext(ctx)
	left := trails{layers: map[string][]events.FollowedLayer{}}
	var mutex sync.Mutex
	for _, giver := range p.givers {
		asking.Go(func() error {
			answer, err := p.askGiver(ctx, giver, events.Follow{Negotiation: p.Negotiation, To: p.config.Node, Step: step, Whole: whole})
			if err != nil {
				return fmt.Errorf("%s: %w", giver, err)
			}
			mutex.Lock()
			defer mutex.Unlock()
			left.newest, left.gone = max(left.newest, answer.Newest), left.gone || answer.Gone
			left.layers[giver] = answer.Layers
			return nil
		})
	}
	return left, asking.Wait()
}

// askGiver asks until there is an answer; one that does not understand the negotiation yet has none.
func (p *pursuit) askGiver(ctx context.Context, giver string, request events.Follow) (answer events.Following, err error) {
	text, err := json.Marshal(request)
	if err != nil {
		panic(err) // plain data
	}
	for {
		began := time.Now()
		asked, cancel := context.WithTimeout(ctx, followTimeout)
		message, err := p.bus.Conn().RequestWithContext(asked, events.FollowSubject(p.config.Cluster, giver), text)
		cancel()
		answer = events.Following{}
		if err == nil {
			if err = json.Unmarshal(message.Data, &answer); err == nil {
				err = answer.Validate()
			}
			if err != nil {
				return answer, err
			}
			p.hear(answer.Newest)
		}
		if answer.Gone || len(answer.Layers) > 0 {
			return answer, nil
		}
		if time.Since(began) < followWait && !pause(ctx, followPause) { // else the giver has waited, and its step may end now
			return answer, ctx.Err()
		}
	}
}

func (p *pursuit) hear(newest uint64) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.newest = max(p.newest, newest)
}

// take fetches what the givers left and makes a layer of each while the next ones are on their way, on half of the processors:
// this node may be training. It also returns how many bytes came.
func (p *pursuit) take(ctx context.Context, left trails, layerOf func(layer int, data []byte) ([]byte, error)) (layers map[int][]byte, bytes int64, err error) {
	wanted := p.wanted()
	coming, arrived := make([][]byte, len(wanted)), make([]chan struct{}, len(wanted))
	for i, transfer := range wanted {
		layer, err := p.assemble(transfer, left)
		if err != nil {
			return nil, 0, fmt.Errorf("layer %d: %w", transfer.Layer, err)
		}
		coming[i], arrived[i] = layer.Into, make(chan struct{})
		layer.Whole = arrived[i]
		if err := p.fetch.Add(layer); err != nil {
			return nil, 0, err
		}
		bytes += int64(len(layer.Into))
	}
	layers = make(map[int][]byte, len(wanted))
	var mutex sync.Mutex
	making, ctx := errgroup.WithContext(ctx)
	making.SetLimit(max(1, runtime.GOMAXPROCS(0)/2))
	watch := p.watch()
	for i, transfer := range wanted {
		if err := watch.until(ctx, arrived[i]); err != nil {
			return nil, 0, errors.Join(err, making.Wait())
		}
		making.Go(func() error {
			data, err := layerOf(transfer.Layer, coming[i])
			if err != nil {
				return fmt.Errorf("layer %d: %w", transfer.Layer, err)
			}
			mutex.Lock()
			defer mutex.Unlock()
			layers[transfer.Layer] = data
			return nil
		})
	}
	return layers, bytes, making.Wait()
}

// until fails where nothing comes any more: what a giver left is gone.
func (w *watch) until(ctx context.Context, arrived <-chan struct{}) error {
	for {
		select {
		case <-arrived:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(followPause):
			if w.idle() {
				return fmt.Errorf("not a byte for %v", followPatience)
			}
		}
	}
}

// assemble puts the givers' shares together.
func (p *pursuit) assemble(transfer events.Transfer, left trails) (layer shards.Layer, err error) {
	next := int64(0)
	for _, source := range transfer.Sources {
		i := slices.IndexFunc(left.layers[source.Node], func(l events.FollowedLayer) bool { return l.Layer == transfer.Layer })
		if i < 0 {
			return layer, fmt.Errorf("%s left nothing of it", source.Node)
		}
		share := left.layers[source.Node][i]
		if layer.Into == nil {
			layer.Into = make([]byte, share.Bytes)
		}
		if share.Bytes != int64(len(layer.Into)) {
			return layer, fmt.Errorf("%s: bytes: expected %d as from the others, got %d", source.Node, len(layer.Into), share.Bytes)
		}
		for _, part := range share.Parts {
			if part.First != next {
				return layer, fmt.Errorf("%s: parts: expected one from byte %d on, got %d", source.Node, next, part.First)
			}
			next = part.End
			layer.Parts = append(layer.Parts, shards.Part{Digest: part.Digest, First: part.First, End: part.End, Sources: []string{source.Node}})
		}
	}
	if next != int64(len(layer.Into)) {
		return layer, fmt.Errorf("parts: expected all of %d bytes, got %d", len(layer.Into), next)
	}
	return layer, nil
}

// loadFollowed loads a layer that was followed, and reports false where it is not what its holders have.
func (t *moves) loadFollowed(ctx context.Context, transfer events.Transfer, data []byte, state State, receipt *events.Receipt) (bool, error) {
	if data == nil {
		return false, nil
	}
	offers, err := t.awaitOffers(ctx, transfer)
	if err != nil {
		return false, err
	}
	loaded, err := (&arrival{offer: offers[0], data: data}).load(state)
	if errors.Is(err, errOtherBytes) {
		slog.Error("a layer that was followed is not what its holders have; it is fetched", "node", t.config.Node, "layer", transfer.Layer, "error", err)
		return false, nil
	}
	if err == nil {
		receipt.Layers = append(receipt.Layers, loaded)
	}
	return true, err
}
