package shards

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/services/agent/queue"
)

// fetch keeps a source busy until the transfer ends.
func (t *Transfer) fetch(ctx context.Context, config Source, p *queue.Source) error {
	changed := func(connected bool, roundTrip time.Duration) { t.connected(p, connected, roundTrip) }
	late := func(bytes int64) { t.late(p, bytes) }
	from, err := dial(ctx, config, t.idle, changed, late)
	if err != nil {
		return fmt.Errorf("source %s: %w", config.Name, err)
	}
	defer from.conn.Close()
	pulls, ctx := errgroup.WithContext(ctx)
	pulls.Go(func() error { return t.giveUp(ctx, from, p) })
	for range queue.MostClaims {
		pulls.Go(func() error {
			for c := t.take(p); c != nil; c = t.take(p) {
				err := (&pull{transfer: t, from: from, claim: c}).run(ctx)
				madeAnew := from.silence() < t.stall // by another claim
				if errors.Is(err, errStalled) && !madeAnew {
					from.drop() // or what was asked for comes later, and TCP tries again ever later
				}
				if err := t.settle(ctx, c, err); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	return pulls.Wait()
}

// giveUp ends a connection when what was asked for on it is asked of another source, and tells a giver which wants it need not
// keep: other sources have been asked for those parts, or they are there.
func (t *Transfer) giveUp(ctx context.Context, from *source, p *queue.Source) error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for !t.ended {
		if p.GivenUp {
			p.GivenUp = false
			from.drop()
		}
		if unneeded := from.unneeded(func(part *queue.Part) bool { return t.queue.Needs(p, part) }); len(unneeded) > 0 {
			t.mutex.Unlock()
			from.say(unneeded)
			t.mutex.Lock()
			continue
		}
		t.wake.Wait()
	}
	return ctx.Err()
}

// idle reports whether there is nothing to fetch yet.
func (t *Transfer) idle() bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return !t.ended && t.queue.Total == 0
}

func (t *Transfer) connected(p *queue.Source, connected bool, roundTrip time.Duration) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	p.RoundTrip = roundTrip
	p.Connected = connected || t.ended && p.Connected // the end closes connections, which is no news
	t.wake.Broadcast()
}

func (t *Transfer) late(p *queue.Source, bytes int64) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	p.Duplicate += bytes
}

// take waits until a source is to be asked for something. It returns nil when the transfer has ended.
func (t *Transfer) take(p *queue.Source) *queue.Claim {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for !t.ended {
		if c := t.queue.Take(p, time.Now()); c != nil {
			return c
		}
		t.wake.Wait()
	}
	return nil
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
	case errors.Is(err, errAbsent), errors.Is(err, errLater):
		t.queue.Absent(c, now)
	case errors.Is(err, errForeign):
		t.queue.Foreign(c, now)
	default:
		t.queue.Stall(c, now, t.stall)
	}
	return t.fail(t.queue.Servable())
}
