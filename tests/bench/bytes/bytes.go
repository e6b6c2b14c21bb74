package main

import (
	"bytes"
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

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/shards"
	"github.com/reknit/reknit/tests/bench/figures"
)

// What the bytes path must reach of a plain TCP copy.
const (
	getTarget = 0.75
	putTarget = 0.65
)

// bench is the object on this side.
type bench struct {
	*other
	data, into []byte
	own        *shards.Store
	reader     jetstream.ObjectStore // the library's, of the other process's store
	writer     jetstream.ObjectStore // and of its hub
}

// way moves the whole object once; clean is not measured.
type way struct {
	name  string
	move  func(context.Context) error
	clean func(context.Context) error

	baseline bool
	times    []float64 // seconds
	costs    []float64 // CPU seconds of both processes
}

// bytesPath measures putting and getting an object of some size, in memory or in files.
func bytesPath(ctx context.Context, size int, memory bool, repeat int) ([]figures.Row, error) {
	o, err := start(size, memory, "")
	if err != nil {
		return nil, err
	}
	b := &bench{other: o, data: content(size), into: make([]byte, size)}
	rows, err := b.measure(ctx, memory, repeat)
	if b.own != nil {
		b.own.Close()
	}
	return rows, errors.Join(err, o.stop())
}

func (b *bench) measure(ctx context.Context, memory bool, repeat int) ([]figures.Row, error) {
	hub, err := nats.Connect(b.Hub)
	if err != nil {
		return nil, err
	}
	defer hub.Close()
	store, err := nats.Connect(b.Store)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	config := shards.StoreConfig{Bucket: storeBucket, Memory: memory, MaxBytes: 4 << 30}
	if b.own, err = shards.Serve(ctx, config); err != nil {
		return nil, err
	}
	if b.reader, err = library(ctx, store, storeBucket); err != nil {
		return nil, err
	}
	if b.writer, err = library(ctx, hub, hubBucket); err != nil {
		return nil, err
	}
	gets := []*way{
		{name: "ours", move: b.get},
		{name: "tcp", move: b.getTCP, baseline: true},
		{name: "library", move: b.getLibrary, baseline: true},
	}
	puts := []*way{
		{name: "ours", move: b.put, clean: func(ctx context.Context) error { return b.own.Retire(ctx, b.Parts...) }},
		{name: "tcp", move: b.putTCP, baseline: true},
		{name: "library", move: b.putLibrary, clean: b.cleanLibrary, baseline: true},
	}
	if memory && len(b.data) > 128<<20 { // the hub of the other process holds 256 MiB in memory
		puts = slices.Delete(puts, 2, 3)
	}
	ways := slices.Concat(gets, puts)
	for turn := range repeat * len(ways) {
		w := ways[(turn+turn/len(ways))%len(ways)] // each begins once: the first to write fills the system's buffers
		if err := b.once(ctx, w); err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
	}
	kind := map[bool]string{false: "file", true: "memory"}[memory]
	size := fmt.Sprintf("%d MiB %s", len(b.data)>>20, kind)
	return slices.Concat(b.rows("get "+size, gets, getTarget), b.rows("put "+size, puts, putTarget)), nil
}

func library(ctx context.Context, conn *nats.Conn, bucket string) (jetstream.ObjectStore, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	return js.ObjectStore(ctx, bucket)
}

// once measures a way one time.
func (b *bench) once(ctx context.Context, w *way) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	clear(b.into)
	calm(ctx)
	theirs, err := b.spent()
	if err != nil {
		return err
	}
	ours, began := figures.Spent(), time.Now()
	if err := w.move(ctx); err != nil {
		return err
	}
	w.times = append(w.times, time.Since(began).Seconds())
	after, err := b.spent()
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
func (b *bench) rows(figure string, ways []*way, target float64) []figures.Row {
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
			if their.name == "tcp" {
				wall.LeastRatio = target
			}
			rows = append(rows, wall, cost)
		}
	}
	return rows
}

func (b *bench) cleanLibrary(ctx context.Context) error {
	for _, digest := range b.Parts {
		if err := b.writer.Delete(ctx, digest); err != nil {
			return err
		}
	}
	return nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func (b *bench) get(ctx context.Context) error {
	return b.getFrom(ctx, shards.Source{Name: "other", URL: b.Store, Bucket: storeBucket})
}

func (b *bench) getFrom(ctx context.Context, source shards.Source) error {
	transfer, err := shards.NewTransfer([]shards.Source{source})
	if err != nil {
		return err
	}
	layer := shards.Layer{Into: b.into}
	for i, digest := range b.Parts {
		first, end := int64(i)*partBytes, int64(min((i+1)*partBytes, len(b.into)))
		layer.Parts = append(layer.Parts, shards.Part{Digest: digest, First: first, End: end})
	}
	if err := transfer.Add(layer); err != nil {
		return err
	}
	transfer.Seal()
	return transfer.Run(ctx)
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

func (b *bench) getLibrary(ctx context.Context) error {
	object, err := b.reader.Get(ctx, b.Whole)
	if err != nil {
		return err
	}
	defer object.Close()
	_, err = io.ReadFull(object, b.into)
	return errors.Join(err, object.Error())
}

func (b *bench) put(ctx context.Context) error {
	puts, ctx := errgroup.WithContext(ctx)
	puts.SetLimit(2)
	for part := range slices.Chunk(b.data, partBytes) {
		puts.Go(func() error { return b.own.PutAs(ctx, events.Digest(part), part) })
	}
	return puts.Wait()
}

func (b *bench) putTCP(context.Context) error {
	conn, err := net.Dial("tcp", b.TCP)
	if err != nil {
		return err
	}
	defer conn.Close()
	pieces := make(chan []byte, 1)
	pieces <- b.data
	close(pieces)
	sum := hashOf(pieces)
	if _, err := conn.Write([]byte("p")); err != nil {
		return err
	}
	if _, err := conn.Write(b.data); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		return err
	}
	return b.expect(<-sum)
}

func (b *bench) putLibrary(ctx context.Context) error {
	for i, digest := range b.Parts {
		meta := jetstream.ObjectMeta{Name: digest, Opts: &jetstream.ObjectMetaOptions{ChunkSize: 512 << 10}}
		part := b.data[i*partBytes : min((i+1)*partBytes, len(b.data))]
		if _, err := b.writer.Put(ctx, meta, bytes.NewReader(part)); err != nil {
			return err
		}
	}
	return nil
}
