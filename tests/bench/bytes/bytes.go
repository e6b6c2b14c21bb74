package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/services/agent/shards"
	"github.com/reknit/reknit/tests/bench/figures"
	"github.com/reknit/reknit/tests/nodes"
)

// The bytes path must reach these shares of the client library's speed. A writer of our own has to be so much faster to be there at all; a
// reader of our own is there because the library's needs rights that a reader must not have.
const (
	leastOfLibrary = 0.9
	leastOfWriter  = 1.3
)

// mostBeyond is what a giver may take beside its state.
const mostBeyond = 300 << 20

// bench is the object on this side.
type bench struct {
	*other
	data, into []byte
	transfer   *nodes.Transfer // that is connected, and has nothing to fetch yet
	own        *shards.Store
	ownReader  *nats.Conn            // of the own store
	ownLibrary *library              // a bucket like it
	theirs     jetstream.ObjectStore // the library's bucket in the other process
}

// way moves the whole object once; before and clean are not measured.
type way struct {
	name          string
	move          func(context.Context) error
	before, clean func(context.Context) error

	baseline bool
	times    []float64 // seconds
	costs    []float64 // CPU seconds of both processes
}

// group is ways that are compared.
type group struct {
	figure string
	least  float64 // of the library's rate
	ways   []*way
}

// bytesPath measures giving, putting and getting an object of some size.
func bytesPath(ctx context.Context, size, repeat int) ([]figures.Row, error) {
	o, err := start(size, "")
	if err != nil {
		return nil, err
	}
	b := &bench{other: o, data: content(size), into: make([]byte, size)}
	rows, err := b.measure(ctx, repeat)
	return rows, errors.Join(err, o.stop())
}

func (b *bench) measure(ctx context.Context, repeat int) (rows []figures.Row, err error) {
	if err := b.open(ctx); err != nil {
		return nil, err
	}
	defer b.own.Close()
	defer b.ownReader.Close()
	defer b.ownLibrary.close()
	groups := b.groups()
	for _, g := range groups {
		for turn := range repeat * len(g.ways) {
			w := g.ways[(turn+turn/len(g.ways))%len(g.ways)] // each begins once: the first to write fills the system's buffers
			if err := b.once(ctx, w); err != nil {
				return nil, fmt.Errorf("%s, %s: %w", g.figure, w.name, err)
			}
		}
		rows = append(rows, b.rows(fmt.Sprintf("%s %d MiB", g.figure, len(b.data)>>20), g.ways, g.least)...)
	}
	return rows, nil
}

func (b *bench) open(ctx context.Context) (err error) {
	if b.own, err = shards.Serve(ctx, shards.StoreConfig{Bucket: storeBucket}); err != nil {
		return err
	}
	for i, digest := range b.Parts {
		b.own.Offer(digest, b.data[i*partBytes:min((i+1)*partBytes, len(b.data))])
	}
	if b.ownReader, err = nats.Connect(b.own.URL(), shards.ReaderOptions()...); err != nil {
		return err
	}
	if b.ownLibrary, err = openLibrary(ctx); err != nil {
		return err
	}
	conn, err := nats.Connect(b.Library)
	if err != nil {
		return err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	b.theirs, err = js.ObjectStore(ctx, libBucket)
	return err
}

// groups is what is measured. A bucket in which parts lie is the hub's, or one that a user filled: both ways read the same objects.
func (b *bench) groups() []group {
	return []group{
		{"give", leastOfLibrary, []*way{
			{name: "ours", before: b.connect, move: b.get},
			{name: "tcp", move: b.getTCP, baseline: true},
			{name: "library", move: b.giveLibrary, clean: b.cleanLibrary, baseline: true},
		}},
		{"put", leastOfWriter, []*way{
			{name: "ours", move: b.put},
			{name: "library", move: b.putLibrary, clean: b.cleanOwnLibrary, baseline: true},
		}},
		{"get", leastOfLibrary, []*way{
			{name: "ours", before: b.connectToFilled, move: b.get, clean: b.cleanLibrary},
			{name: "library", before: b.fillLibrary, move: b.getLibrary, clean: b.cleanLibrary, baseline: true},
		}},
	}
}

// giverMemory measures what a giver takes beside a state of some size while two readers fetch all of it.
func giverMemory(ctx context.Context, size int) (row figures.Row, err error) {
	o, err := start(size, "")
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, o.stop()) }()
	var readers errgroup.Group
	for range 2 {
		reader := &bench{other: o, into: make([]byte, size)}
		readers.Go(func() error {
			if err := reader.connect(ctx); err != nil {
				return err
			}
			return reader.get(ctx)
		})
	}
	if err := readers.Wait(); err != nil {
		return row, err
	}
	bytes, err := o.tell("beyond")
	return figures.Row{
		Figure: fmt.Sprintf("memory beside %d MiB", size>>20), Unit: "MiB", Ours: bytes / (1 << 20), Target: mostBeyond >> 20,
	}, err
}

// once measures a way one time.
func (b *bench) once(ctx context.Context, w *way) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	clear(b.into)
	if w.before != nil {
		if err := w.before(ctx); err != nil {
			return err
		}
	}
	calm(ctx)
	theirs, err := b.tell("spent")
	if err != nil {
		return err
	}
	ours, began := figures.Spent(), time.Now()
	if err := w.move(ctx); err != nil {
		return err
	}
	w.times = append(w.times, time.Since(began).Seconds())
	after, err := b.tell("spent")
	if err != nil {
		return err
	}
	w.costs = append(w.costs, (figures.Spent()-ours).Seconds()+after-theirs)
	if w.clean != nil {
		return w.clean(ctx)
	}
	return nil
}

// rows compares our ways with the others.
func (b *bench) rows(figure string, ways []*way, least float64) []figures.Row {
	gibibytes := float64(len(b.data)) / (1 << 30)
	var rows []figures.Row
	for _, our := range ways {
		if our.baseline {
			continue
		}
		for _, their := range ways {
			if !their.baseline {
				continue
			}
			row := figures.Row{Figure: figure + ", " + our.name, BaselineName: their.name}
			wall, cost := row, row
			wall.Unit, wall.Ours, wall.Baseline = "s/GiB", median(our.times)/gibibytes, median(their.times)/gibibytes
			cost.Unit, cost.Ours, cost.Baseline = "CPU s/GiB", median(our.costs)/gibibytes, median(their.costs)/gibibytes
			if their.name == "library" {
				wall.LeastRatio = least
			}
			rows = append(rows, wall, cost)
		}
	}
	return rows
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// connect makes and warms the connection of a transfer, as an agent does before a move: the library's is there, too.
func (b *bench) connect(ctx context.Context) error {
	return b.connectTo(ctx, shards.Source{Name: "other", URL: b.Store, Bucket: storeBucket})
}

func (b *bench) connectTo(ctx context.Context, source shards.Source) (err error) {
	b.transfer, err = nodes.Connect(ctx, []shards.Source{source})
	return err
}

// get fetches all parts by the transfer that is connected.
func (b *bench) get(context.Context) error {
	layer := shards.Layer{Into: b.into}
	for i, digest := range b.Parts {
		first, end := int64(i)*partBytes, int64(min((i+1)*partBytes, len(b.into)))
		layer.Parts = append(layer.Parts, shards.Part{Digest: digest, First: first, End: end})
	}
	return b.transfer.Fetch(layer)
}

func (b *bench) getTCP(context.Context) error {
	conn, err := net.Dial("tcp", b.TCP)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("g")); err != nil {
		return err
	}
	arrived := make(chan []byte, len(b.into)/(1<<20)+1)
	sum := hashOf(arrived)
	for left := b.into; len(left) > 0; {
		part := left[:min(1<<20, len(left))]
		if _, err := io.ReadFull(conn, part); err != nil {
			return err
		}
		arrived <- part
		left = left[len(part):]
	}
	close(arrived)
	return b.expect(<-sum)
}

// hashOf hashes on a goroutine of its own.
func hashOf(pieces <-chan []byte) <-chan string {
	sum := make(chan string, 1)
	go func() {
		hash := sha256.New()
		for piece := range pieces {
			hash.Write(piece)
		}
		sum <- fmt.Sprintf("sha256:%x", hash.Sum(nil))
	}()
	return sum
}

func (b *bench) expect(digest string) error {
	if digest != b.Whole {
		return fmt.Errorf("got %s, expected %s", digest, b.Whole)
	}
	return nil
}

// put has every part be in the own store's bucket once, four at a time as a reader wants them.
func (b *bench) put(ctx context.Context) error {
	wants, ctx := errgroup.WithContext(ctx)
	wants.SetLimit(4)
	for _, digest := range b.Parts {
		wants.Go(func() error {
			if err := want(ctx, b.ownReader, digest); err != nil {
				return err
			}
			return b.ownReader.Publish("shards.have."+storeBucket, []byte(digest))
		})
	}
	return wants.Wait()
}

func (b *bench) putLibrary(ctx context.Context) error {
	for i, digest := range b.Parts {
		if err := b.ownLibrary.put(ctx, digest, b.data[i*partBytes:min((i+1)*partBytes, len(b.data))]); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) cleanOwnLibrary(ctx context.Context) error { return b.drop(ctx, b.ownLibrary.bucket) }

func (b *bench) cleanLibrary(ctx context.Context) error { return b.drop(ctx, b.theirs) }

func (b *bench) drop(ctx context.Context, bucket jetstream.ObjectStore) error {
	for _, digest := range b.Parts {
		if err := bucket.Delete(ctx, digest); err != nil {
			return err
		}
	}
	return nil
}

// hold has all parts be in the other process's bucket, and a transfer be connected.
// connectToFilled connects a transfer to the library's bucket, in which all parts lie.
func (b *bench) connectToFilled(ctx context.Context) error {
	if err := b.fillLibrary(ctx); err != nil {
		return err
	}
	return b.connectTo(ctx, shards.Source{Name: "library", URL: b.Library, Bucket: libBucket})
}

func (b *bench) partOf(i int) []byte { return b.into[i*partBytes : min((i+1)*partBytes, len(b.into))] }

// giveLibrary has the other process put part after part, and gets each as soon as it is there.
func (b *bench) giveLibrary(ctx context.Context) error {
	said, err := b.say("put")
	for i := 0; err == nil; i++ {
		if err := getPart(ctx, b.theirs, said, b.partOf(i)); err != nil {
			return err
		}
		if i+1 == len(b.Parts) {
			return nil
		}
		said, err = b.line()
	}
	return err
}

func (b *bench) fillLibrary(context.Context) error {
	_, err := b.say("put")
	for range len(b.Parts) - 1 {
		if err == nil {
			_, err = b.line()
		}
	}
	return err
}

func (b *bench) getLibrary(ctx context.Context) error {
	for i, digest := range b.Parts {
		if err := getPart(ctx, b.theirs, digest, b.partOf(i)); err != nil {
			return err
		}
	}
	return nil
}
