package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/reknit/reknit/services/agent/shards"
	"github.com/reknit/reknit/tests/links"
)

// fault is something that goes wrong during a transfer.
type fault struct {
	name   string
	only   bool    // everything is to come from the first source, and the others are spares
	first  Store   // what the first source serves
	at     float64 // the share of the bytes that has come when it strikes
	strike func(context.Context, *scene) error
	left   [sources]links.Shape // what the links can carry from then on
	limits limits
}

var all = [sources]links.Shape{whole, whole, whole}

var faults = []fault{
	{name: "undisturbed", strike: nothing, left: all},
	{name: "source killed", at: third, strike: killSource, left: [sources]links.Shape{absent, whole, whole}},
	{name: "only giver killed", only: true, at: tenthOfAll, strike: killSource, left: [sources]links.Shape{absent, whole, whole}},
	{name: "link cut", at: third, strike: cutLink, left: [sources]links.Shape{absent, whole, whole}},
	{name: "link of the only giver cut", only: true, at: tenthOfAll, strike: cutLink, left: [sources]links.Shape{absent, whole, whole}},
	{name: "link slowed to a tenth", at: third, strike: slowLink, left: [sources]links.Shape{tenth, whole, whole}},
	{name: "store full", first: Store{MaxBytes: fullBytes}, strike: fillStore, left: all},
	{name: "bytes flipped in an open store", first: Store{Open: true}, strike: flip, left: [sources]links.Shape{absent, whole, whole}},
	{name: "bytes flipped in files", strike: wear, left: [sources]links.Shape{absent, whole, whole}},
}

const (
	third      = 1. / 3
	tenthOfAll = 0.1
	fullBytes  = 30 << 20
)

type limits struct {
	gap   float64
	twice int64
	found int
}

func nothing(context.Context, *scene) error { return nil }

func killSource(_ context.Context, s *scene) error { return s.sources[0].Kill() }

func cutLink(_ context.Context, s *scene) error { s.links[0].Set(absent); return nil }

func slowLink(_ context.Context, s *scene) error { s.links[0].Set(tenth); return nil }

func flip(_ context.Context, s *scene) error {
	var flipped int
	return s.sources[0].Call("Node.Flip", bucket(0), &flipped)
}

func wear(_ context.Context, s *scene) error {
	var flipped int
	err := s.sources[0].Call("Node.Wear", filepath.Join(filesDir, bucket(0)), &flipped)
	fmt.Println("worn", flipped)
	return err
}

func fillStore(_ context.Context, s *scene) error {
	var parts []shards.Part
	err := s.sources[0].Call("Node.Hold", state, &parts)
	if err == nil {
		return errNotFull
	}
	if !strings.Contains(err.Error(), shards.ErrFull.Error()) || !strings.Contains(err.Error(), fmt.Sprint(fullBytes)) {
		return fmt.Errorf("expected an error that names the limit, got %w", err)
	}
	fmt.Println(err)
	return nil
}

// outcome is how a transfer went.
type outcome struct {
	name string
	Fetched
	struck, bound float64
}

func (o outcome) String() string {
	corrupt := 0
	for _, source := range o.Progress.Sources {
		corrupt += source.Corrupt
	}
	return fmt.Sprintf("%-32s %5.2f s (struck at %.2f s, bound %.2f s), gap %.2f s, twice %d KiB, beyond %d KiB, corrupt %d", o.name, o.Progress.Seconds, o.struck, o.bound, o.Gap,
		o.Progress.Duplicate>>10, (came(o.Progress)-o.Progress.Total)>>10, corrupt)
}

func came(progress shards.Progress) int64 {
	bytes := int64(0)
	for _, source := range progress.Sources {
		bytes += source.Bytes
	}
	return bytes
}

func (o outcome) judge(f fault) error { return nil }

// play lets a fault strike a transfer.
func play(ctx context.Context, f fault) (result outcome, err error) {
	result.name = f.name
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s, err := build()
	defer func() { err = errors.Join(err, s.end()) }()
	if err != nil {
		return result, fmt.Errorf("build the cluster: %w", err)
	}
	defer context.AfterFunc(ctx, s.stop)()
	if err := s.serve(f.first); err != nil {
		return result, fmt.Errorf("store the state: %w", err)
	}
	before := f.at == 0 && f.first.MaxBytes == 0
	if before {
		if err := f.strike(ctx, s); err != nil {
			return result, err
		}
	}
	fetch := s.destination.Go("Node.Fetch", s.job(f.only), &result.Fetched, nil)
	if !before {
		progress, err := s.await(ctx, max(1, int64(f.at*float64(state.Bytes))))
		if err != nil {
			return result, err
		}
		if err := f.strike(ctx, s); err != nil {
			return result, err
		}
		result.struck = progress.Seconds
		result.bound = progress.Seconds - float64(came(progress))/rate(f.left)
	}
	result.bound += float64(state.Bytes) / rate(f.left)
	fetched := <-fetch.Done
	if fetched.Error != nil {
		return result, fetched.Error
	}
	if result.Digest != state.Digest() {
		return result, fmt.Errorf("WRONG BYTES")
	}
	return result, nil
}

func rate(links [sources]links.Shape) float64 {
	sum := 0.0
	for _, shape := range links {
		sum += shape.BytesPerSecond()
	}
	return sum
}
