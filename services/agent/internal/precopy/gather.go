package precopy

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/shards"
)

// gather fetches what the givers left and makes a unit of each while the next ones are on their way, on half of the
// processors: this node may be training. It also returns how many bytes came.
func (r *Receiver) gather(
	ctx context.Context, left offered, unitOf func(unit int, data []byte) ([]byte, error),
) (units map[int][]byte, bytes int64, err error) {
	coming, arrived := make([][]byte, len(r.wanted)), make([]chan struct{}, len(r.wanted))
	for i, wanted := range r.wanted {
		layer, err := r.assemble(wanted, left)
		if err != nil {
			return nil, 0, fmt.Errorf("unit %d: %w", wanted.Unit, err)
		}
		coming[i], arrived[i] = layer.Into, make(chan struct{})
		layer.Whole = arrived[i]
		if err := r.fetch.Add(layer); err != nil {
			return nil, 0, err
		}
		bytes += int64(len(layer.Into))
	}
	units = make(map[int][]byte, len(r.wanted))
	var mutex sync.Mutex
	making, ctx := errgroup.WithContext(ctx)
	making.SetLimit(max(1, runtime.GOMAXPROCS(0)/2))
	watch := r.watch()
	for i, wanted := range r.wanted {
		if err := watch.until(ctx, arrived[i]); err != nil {
			return nil, 0, errors.Join(err, making.Wait())
		}
		making.Go(func() error {
			data, err := unitOf(wanted.Unit, coming[i])
			if err != nil {
				return fmt.Errorf("unit %d: %w", wanted.Unit, err)
			}
			mutex.Lock()
			defer mutex.Unlock()
			units[wanted.Unit] = data
			return nil
		})
	}
	return units, bytes, making.Wait()
}

// assemble puts the givers' shares of a unit together.
func (r *Receiver) assemble(wanted events.Transfer, left offered) (layer shards.Layer, err error) {
	next := int64(0)
	for _, source := range wanted.Sources {
		i := slices.IndexFunc(left.units[source.Node], func(unit events.PreCopied) bool { return unit.Unit == wanted.Unit })
		if i < 0 {
			return layer, fmt.Errorf("%s left nothing of it", source.Node)
		}
		share := left.units[source.Node][i]
		if most := r.exchange.Node().MemoryBytes; share.Bytes > most {
			return layer, fmt.Errorf("%s: bytes: expected at most the node's memory, %d, got %d", source.Node, most, share.Bytes)
		}
		if layer.Into == nil {
			layer.Into = make([]byte, share.Bytes)
		}
		if share.Bytes != int64(len(layer.Into)) {
			return layer, fmt.Errorf("%s: bytes: expected %d as from the others, got %d",
				source.Node, len(layer.Into), share.Bytes)
		}
		for _, part := range share.Parts {
			if part.First != next {
				return layer, fmt.Errorf("%s: parts: expected one from byte %d on, got %d", source.Node, next, part.First)
			}
			next = part.End
			layer.Parts = append(layer.Parts, shards.Part{
				Digest: part.Digest, First: part.First, End: part.End, Sources: []string{source.Node},
			})
		}
	}
	if next != int64(len(layer.Into)) {
		return layer, fmt.Errorf("parts: expected all of %d bytes, got %d", len(layer.Into), next)
	}
	return layer, nil
}

// watch notices when nothing moves.
type watch struct {
	receiver *Receiver
	step     uint64
	bytes    int64
	since    time.Time
}

func (r *Receiver) watch() *watch { return &watch{receiver: r, since: time.Now()} }

// idle reports whether neither a step nor a byte came for long.
func (w *watch) idle() bool {
	r := w.receiver
	r.mutex.Lock()
	defer r.mutex.Unlock()
	step, bytes := r.step, int64(0)
	if r.fetch != nil {
		for _, source := range r.fetch.Progress().Sources {
			bytes += source.Bytes
		}
	}
	if step != w.step || bytes != w.bytes {
		w.step, w.bytes, w.since = step, bytes, time.Now()
	}
	return time.Since(w.since) > patience
}

// until fails where nothing comes any more: what a giver left is gone.
func (w *watch) until(ctx context.Context, arrived <-chan struct{}) error {
	for {
		select {
		case <-arrived:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(requestPause):
			if w.idle() {
				return fmt.Errorf("not a byte for %v", patience)
			}
		}
	}
}
