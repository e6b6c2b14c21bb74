package agent

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

// take fetches what the givers left and makes a layer of each while the next ones are on their way, on half of the processors:
// this node may be training. It also returns how many bytes came.
func (p *pursuit) take(ctx context.Context, left trails, layerOf func(layer int, data []byte) ([]byte, error)) (layers map[int][]byte, bytes int64, err error) {
	wanted := p.wanted()
	coming, arrived := make([][]byte, len(wanted)), make([]chan struct{}, len(wanted))
	for i, transfer := range wanted {
		layer, err := p.assemble(transfer, left)
		if err != nil {
			return nil, 0, fmt.Errorf("layer %d: %w", transfer.Unit, err)
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
			data, err := layerOf(transfer.Unit, coming[i])
			if err != nil {
				return fmt.Errorf("layer %d: %w", transfer.Unit, err)
			}
			mutex.Lock()
			defer mutex.Unlock()
			layers[transfer.Unit] = data
			return nil
		})
	}
	return layers, bytes, making.Wait()
}

// assemble puts the givers' shares together.
func (p *pursuit) assemble(transfer events.Transfer, left trails) (layer shards.Layer, err error) {
	next := int64(0)
	for _, source := range transfer.Sources {
		i := slices.IndexFunc(left.layers[source.Node], func(l events.PreCopied) bool { return l.Unit == transfer.Unit })
		if i < 0 {
			return layer, fmt.Errorf("%s left nothing of it", source.Node)
		}
		share := left.layers[source.Node][i]
		if err := p.fits(share.Bytes); err != nil {
			return layer, fmt.Errorf("%s: %w", source.Node, err)
		}
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
