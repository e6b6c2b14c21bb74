package precopy

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/internal/transfer"
	"github.com/reknit/reknit/services/agent/shards"
)

const (
	requestTimeout = 3 * requestWait        // of a request, which waits for its step at the giver
	requestPause   = 250 * time.Millisecond // before a request that failed is made again
	patience       = 5 * time.Second        // without a byte or a step, where one is to be had
	beginningsMax  = 5                      // with units at a later step, because a giver had passed the one asked for
	caughtUp       = 1                      // steps behind the givers: only the one that just ended
	fallingBack    = 4                      // steps in which a receiver must come nearer
)

// Progress is how far a receiver is.
type Progress struct {
	Step    uint64  // completed steps that its units contain
	Behind  uint64  // steps that its givers had completed beyond that, when it last asked
	Bytes   int64   // that came
	Seconds float64 // since it began
	Reason  string  // why no pre-copy is made; empty where one is
}

// Receiver takes units at some step and applies what each step since changed, until its context ends.
type Receiver struct {
	exchange   *transfer.Exchange
	context    context.Context
	cancel     context.CancelFunc
	totalSteps uint64 // training ends there; zero is never
	apply      func(unit int, data, change []byte) ([]byte, error)
	told       func(Progress) // hears once that the receiver has what it can have while training goes on
	wanted     []events.Transfer
	givers     []string
	began      time.Time
	behind     uint64 // steps, when it was last known
	tell       sync.Once

	mutex  sync.Mutex
	fetch  *shards.Transfer
	base   uint64 // the step at which the units were asked for
	newest uint64 // completed steps of the giver that is furthest
	units  map[int][]byte
	step   uint64 // that they are at
	bytes  int64
	ended  bool          // no pre-copy is made any more
	news   chan struct{} // closed, and made anew, when it came further
}

// NewReceiver returns a receiver that begins with Run. Apply turns a unit and what a step changed in it into the
// unit one step on.
func NewReceiver(
	ctx context.Context, exchange *transfer.Exchange, totalSteps uint64,
	apply func(unit int, data, change []byte) ([]byte, error), told func(Progress),
) *Receiver {
	ctx, cancel := context.WithCancel(ctx)
	return &Receiver{
		exchange: exchange, context: ctx, cancel: cancel, totalSteps: totalSteps, apply: apply, told: told,
		wanted: exchange.Wanted(), givers: exchange.Givers(), began: time.Now(), news: make(chan struct{}),
	}
}

// Run pre-copies until the negotiation ends. It says why if it cannot: then its units come while all are paused.
func (r *Receiver) Run() {
	defer r.cancel()
	err := r.chase(r.context)
	r.mutex.Lock()
	r.units, r.ended = nil, true
	r.announce()
	r.mutex.Unlock()
	if r.context.Err() == nil {
		slog.Warn("units are not pre-copied; they come where all are paused", "node", r.exchange.Node().Name, "error", err)
		r.say(err)
	}
}

// announce wakes who waits for a step. Called with the mutex held.
func (r *Receiver) announce() {
	close(r.news)
	r.news = make(chan struct{})
}

// chase returns why it cannot pre-copy.
func (r *Receiver) chase(ctx context.Context) error {
	reached := r.exchange.Reach(ctx)
	for _, giver := range r.givers {
		if !reached[giver] {
			return fmt.Errorf("the store of %s is out of reach", giver) // changes are too many for the hub's
		}
	}
	fetch, err := shards.NewTransfer(r.exchange.Sources(reached))
	if err != nil {
		return err
	}
	r.mutex.Lock()
	r.fetch = fetch
	r.mutex.Unlock()
	chasing, ctx := errgroup.WithContext(ctx)
	chasing.Go(func() error { return fetch.Run(ctx) })
	chasing.Go(func() error { return r.catchUp(ctx) })
	return chasing.Wait()
}

// catchUp does not return without an error.
func (r *Receiver) catchUp(ctx context.Context) error {
	left, step, err := r.askWhole(ctx)
	if err != nil {
		return err
	}
	asIs := func(_ int, data []byte) ([]byte, error) { return data, nil }
	units, whole, err := r.gather(ctx, left, asIs)
	if err != nil {
		return err
	}
	r.arrive(units, step)
	if step == r.totalSteps {
		r.say(nil) // there will be no further one
	}
	var lags []uint64
	for step++; ; step++ {
		left, err := r.ask(ctx, step, false)
		if err != nil {
			return err
		}
		if left.gone {
			return fmt.Errorf("step %d is not to be had", step)
		}
		r.behind = left.newest - (step - 1)
		nearer := len(lags) < fallingBack || r.behind < lags[0]
		lags = append(lags, r.behind)
		lags = lags[max(0, len(lags)-fallingBack):]
		if r.behind <= caughtUp || !nearer {
			r.say(nil)
		}
		before, changed := units, int64(0)
		units, changed, err = r.gather(ctx, left, func(unit int, change []byte) ([]byte, error) {
			return r.apply(unit, before[unit], change)
		})
		if err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		r.arrive(units, step)
		if !nearer && int64(r.behind)*changed > whole {
			return fmt.Errorf("%d steps behind, and not nearer for %d", r.behind, fallingBack)
		}
	}
}

// say tells once that this receiver has what it can have while training goes on.
func (r *Receiver) say(why error) {
	r.tell.Do(func() {
		progress := Progress{Step: r.step, Behind: r.behind, Bytes: r.bytes, Seconds: time.Since(r.began).Seconds()}
		if why != nil {
			progress.Reason = why.Error()
		} else {
			slog.Info("units are pre-copied", "node", r.exchange.Node().Name, "step", progress.Step,
				"behind", progress.Behind, "bytes", progress.Bytes, "seconds", progress.Seconds)
		}
		r.told(progress)
	})
}

// arrive notes what the units have come to.
func (r *Receiver) arrive(units map[int][]byte, step uint64) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.units, r.step = units, step
	r.bytes = r.fetch.Progress().Done
	r.announce()
}

// Take returns the bytes of a unit that its holders offer where all are paused, once they are those of the step;
// nil where there are none, or where they are other than the holders'. It ends with ctx.
func (r *Receiver) Take(ctx context.Context, offer events.Offer) []byte {
	data := r.at(ctx, offer.Step)[offer.Unit]
	if data == nil {
		return nil
	}
	if digest := events.DigestOfUnit(data); digest != offer.Digest {
		slog.Error("a unit that was pre-copied is not what its holders have; it is fetched", "node", r.exchange.Node().Name,
			"unit", offer.Unit, "expected", offer.Digest, "got", digest)
		return nil
	}
	return data
}

// at waits until the units are those of a step, at which all are paused. It returns none, and nothing is pre-copied
// any more, where they do not come there.
func (r *Receiver) at(ctx context.Context, step uint64) map[int][]byte {
	watch := r.watch() // nothing need come before the first giver stands there
	for ctx.Err() == nil {
		r.mutex.Lock()
		units, at, base, ended, news := r.units, r.step, r.base, r.ended, r.news
		trained := r.newest < step
		r.mutex.Unlock()
		if trained {
			watch = r.watch()
		}
		switch {
		case ended:
			return nil
		case units != nil && at == step:
			return units
		case units == nil && base > step || watch.idle():
			slog.Warn("units that were pre-copied do not come to where all are paused",
				"node", r.exchange.Node().Name, "step", step, "have", at)
			r.cancel()
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
		case <-time.After(requestPause):
		}
	}
	return nil
}

// Received tells what came from whom.
func (r *Receiver) Received() []events.Received {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.fetch == nil {
		return nil
	}
	return transfer.Received(r.fetch.Progress())
}
