package agent

import (
	"context"
	"fmt"
	"log/slog"
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
	follower PreCopier
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

func newPursuit(t *moves, follower PreCopier, cancel context.CancelFunc) *pursuit {
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
	sources := slices.DeleteFunc(p.sources(reached, p.wanted()), func(source shards.Source) bool { return source.Name == theHub })
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
	followed := &events.CaughtUp{
		Negotiation: p.Negotiation, Node: p.config.Node, Step: p.step, Behind: p.behind, Bytes: p.bytes, Seconds: time.Since(p.began).Seconds(),
	}
	if why != nil {
		followed.Reason = fmt.Sprintf("%.1000s", why)
	} else {
		slog.Info("layers are followed", "node", p.config.Node, "step", p.step, "behind", p.behind, "bytes", p.bytes, "seconds", followed.Seconds)
	}
	p.say(p.speaker.Say(p.cause, events.PreCopyCaughtUp, p.config.Node, followed))
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

func (p *pursuit) received() []events.Received {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.fetch == nil {
		return nil
	}
	return received(p.fetch.Progress())
}
