package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reknit/reknit/tests/links"
)

// playLimit is far beyond the longest transfer.
const playLimit = time.Minute

// fault is something that goes wrong during a transfer.
type fault struct {
	name   string
	only   bool    // everything is to come from the first source, and the others are spares
	first  Store   // what the first source serves
	at     float64 // the share of the bytes that has come when it strikes; 0 before the first is asked for
	strike func(context.Context, *scene, *outcome) error
	left   []links.Shape // what the links carry from then on, as far as sources give something
	limits limits
}

// play lets a fault strike a transfer of the state on a cluster of its own.
func (f fault) play(ctx context.Context) (result outcome, err error) {
	result.name = f.name
	ctx, cancel := context.WithTimeout(ctx, playLimit)
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
	err = f.disturb(ctx, s, &result)
	return result, err
}

// disturb runs the transfer and lets the fault strike in its course.
func (f fault) disturb(ctx context.Context, s *scene, result *outcome) error {
	if f.at == 0 {
		if err := f.strike(ctx, s, result); err != nil {
			return err
		}
	}
	s.fetch(s.job(f.only))
	result.bound = allow(state.Bytes, f.left)
	if f.at > 0 {
		struck, err := s.await(ctx, int64(f.at*float64(state.Bytes)))
		if err != nil {
			return err
		}
		result.struck, result.came = struck.Seconds, came(struck)
		result.bound = struck.Seconds + allow(state.Bytes-came(struck), f.left)
		if err := f.strike(ctx, s, result); err != nil {
			return err
		}
	}
	<-s.fetching.Done
	result.gap, result.digest = s.fetched.Gap, s.fetched.Digest
	result.add(s.fetched.Progress)
	result.beyond = s.carried() - s.apart - state.Bytes
	return s.fetching.Error
}
