package shards

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/services/agent/queue"
	"github.com/reknit/reknit/services/agent/seal"
)

// maxPartBytes bounds a part: it is the most that is fetched again.
const maxPartBytes = 64 << 20

// usualStall is how long a source may send nothing before its bytes are asked of another.
const usualStall = 1500 * time.Millisecond

// SpareWait is after how long spare sources are asked for a part: a transfer that is over by then takes nothing of who
// was not to give, and a fault shows later than that. A spare source that gives other parts, and is done with them, is
// asked without that wait.
const SpareWait = time.Second

// lookEvery is how often idle sources look again: rates change without anybody saying so.
const lookEvery = 20 * time.Millisecond

// Source is a store to fetch from: a neighbour's or the hub's.
type Source struct {
	Name           string               // unique in the transfer
	URL            string               // of its NATS server
	Options        func() []nats.Option // of a connection to it; nil where it asks for no key
	API            string               // prefix of the JetStream API there; empty for the usual one
	Bucket         string               // there
	Stored         bool                 // parts lie in the bucket, as in the hub's: its server puts none when it is wanted
	Seal           seal.Key             // that its parts are sealed with; nil: they are not
	BytesPerSecond float64              // planned or measured earlier; zero where nothing is known
}

// Part is a range of a layer's bytes and the digest that they must have.
type Part struct {
	Digest     string
	First, End int64    // in the layer
	Sources    []string // by name; none means that all have it, or will
	Spares     []string // other sources that will have it later: asked for what is missing after SpareWait
}

// Layer is the memory for a layer, and the parts that fill it.
type Layer struct {
	Into  []byte
	Parts []Part
	Whole chan<- struct{} // closed when all parts are verified; nil where nobody waits for this layer
}

// awaited is how many parts of a layer are not verified, and whom to tell when all are.
type awaited struct {
	open  int
	whole chan<- struct{}
}

// Transfer fetches parts from several sources at a time. Its memory is the layers' buffers and at most six parts for
// each source.
type Transfer struct {
	sources []Source
	stall   time.Duration

	mutex  sync.Mutex
	wake   *sync.Cond
	queue  queue.Queue
	layers map[*queue.Part]*awaited // of the parts that are not verified
	sealed bool
	ended  bool
	failed error
	began  time.Time
	took   time.Duration
	cancel context.CancelFunc
}

// NewTransfer names the field of a source that is bad.
func NewTransfer(sources []Source) (*Transfer, error) {
	t := &Transfer{sources: sources, stall: usualStall, layers: map[*queue.Part]*awaited{}}
	t.wake = sync.NewCond(&t.mutex)
	for i, source := range sources {
		if source.Name == "" || source.URL == "" || source.Bucket == "" {
			return nil, fmt.Errorf("source %d: expected Name, URL and Bucket, got %+v", i, source)
		}
		if t.source(source.Name) != nil {
			return nil, fmt.Errorf("source %d: Name %q: expected each name once", i, source.Name)
		}
		added := queue.NewSource(source.Name, source.BytesPerSecond)
		if source.Stored {
			added.Gives = queue.Whole
		}
		t.queue.Sources = append(t.queue.Sources, added)
	}
	return t, nil
}

func (t *Transfer) source(name string) *queue.Source {
	for _, known := range t.queue.Sources {
		if known.Name == name {
			return known
		}
	}
	return nil
}

// Add queues a layer's parts, also while Run goes on. Its error names the field that is bad, and nothing is queued
// then; or it is ErrCorrupt, where no source is left that could serve them.
func (t *Transfer) Add(layer Layer) error {
	parts := make([]*queue.Part, len(layer.Parts))
	for i, part := range layer.Parts {
		var err error
		if parts[i], err = t.part(i, part, layer.Into); err != nil {
			return err
		}
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	shared := &awaited{open: len(parts), whole: layer.Whole}
	for _, part := range parts {
		t.layers[part] = shared
		t.queue.Add(part)
	}
	t.wake.Broadcast()
	return t.fail(t.queue.Servable())
}

// check names the field of a part of a layer that is bad.
func (p Part) check(number int, bytes int64) error {
	if _, err := sumOf(p.Digest); err != nil {
		return fmt.Errorf("part %d: Digest: %w", number, err)
	}
	if p.First < 0 || p.End <= p.First || p.End > bytes || p.End-p.First > maxPartBytes {
		return fmt.Errorf("part %d: First and End: expected a range of 1 to %d bytes within %d, got [%d, %d)",
			number, maxPartBytes, bytes, p.First, p.End)
	}
	return nil
}

func (t *Transfer) part(number int, part Part, into []byte) (*queue.Part, error) {
	if err := part.check(number, int64(len(into))); err != nil {
		return nil, err
	}
	sources, err := t.named(part.Sources)
	if len(part.Sources) == 0 {
		sources = t.queue.Sources
	}
	spares, unknown := t.named(part.Spares)
	if err := cmp.Or(err, unknown); err != nil {
		return nil, fmt.Errorf("part %d: Sources and Spares: %w", number, err)
	}
	if len(sources) == 0 {
		return nil, fmt.Errorf("part %d: Sources: expected one at least, got none", number)
	}
	added := queue.NewPart(part.Digest, into[part.First:part.End:part.End], sources)
	for _, spare := range spares {
		added.Spare(spare, time.Now().Add(SpareWait))
	}
	return added, nil
}

func (t *Transfer) named(names []string) (sources []*queue.Source, err error) {
	for _, name := range names {
		source := t.source(name)
		if source == nil {
			return nil, fmt.Errorf("expected names of this transfer's sources, got %q", name)
		}
		sources = append(sources, source)
	}
	return sources, nil
}

// Seal says that no layers will be added any more.
func (t *Transfer) Seal() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.sealed = true
	t.endIfComplete()
}

// Run returns when all parts of all layers are verified. It is called once. It fails with ErrCorrupt, or with ctx; a
// source that is away or does not have a part yet is waited for.
func (t *Transfer) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.mutex.Lock()
	t.began, t.cancel = time.Now(), cancel
	t.endIfComplete()
	t.mutex.Unlock()
	sources, pulling := errgroup.WithContext(ctx)
	for i := range t.sources {
		sources.Go(func() error { return t.fetch(pulling, t.sources[i], t.queue.Sources[i]) })
	}
	sources.Go(func() error { return t.look(pulling) })
	err := sources.Wait()
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.ended, t.took = true, time.Since(t.began)
	if t.complete() {
		return nil
	}
	return cmp.Or(t.failed, err)
}

func (t *Transfer) complete() bool { return t.sealed && t.queue.Open == 0 }

// endIfComplete also ends the waits for bytes that others have brought.
func (t *Transfer) endIfComplete() {
	if t.complete() && t.cancel != nil {
		t.ended = true
		t.cancel()
		t.wake.Broadcast()
	}
}

// fail ends the transfer.
func (t *Transfer) fail(err error) error {
	if err != nil {
		t.failed, t.ended = cmp.Or(t.failed, err), true
		if t.cancel != nil {
			t.cancel()
		}
	}
	return err
}

// look wakes who waits, until the transfer ends.
func (t *Transfer) look(ctx context.Context) error {
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-ticks.C:
		}
		t.mutex.Lock()
		t.ended = t.ended || ctx.Err() != nil
		t.wake.Broadcast()
		t.mutex.Unlock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
