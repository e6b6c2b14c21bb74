package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/reknit/reknit/services/agent/shards"
	"github.com/reknit/reknit/tests/links"
)

// When faults strike.
const (
	inTheMiddle = 1. / 3
	early       = 0.03 // before shards.SpareWait is over, so that nobody else gives yet
)

// fullBytes has room for one part of 8 MiB.
const fullBytes = 12 << 20

// What the links carry.
var (
	all    = []links.Shape{whole, whole, whole}
	others = []links.Shape{whole, whole}
	slowed = []links.Shape{tenth, whole, whole}
)

// What may come of faults.
var (
	usual = limits{twice: chunkBytes}
	// A source is left after two corrupt parts, and two are on their way then.
	flipped = limits{twice: chunkBytes, leastCorrupt: 2, mostOfCorrupt: 4}
	// The server finds a flipped bit in its files by itself: the chunk is gone, and others give it.
	worn      = limits{twice: chunkBytes, leastLacked: 1}
	restarted = limits{twice: chunkBytes, lost: sources * onTheWay}
)

// onTheWay is what a link carries in a round trip and holds in its queue, 0.9 MiB, a chunk that was not complete, and
// what the link carries in 0.1 s between the look at the progress and the kill.
const onTheWay = 5 * chunkBytes

// faults lists every fault, the transfer without one first.
var faults = []fault{
	{name: "undisturbed", strike: nothing, left: all, limits: usual},
	{name: "source killed", at: inTheMiddle, strike: killSource, left: others, limits: usual},
	{name: "only giver killed", only: true, at: early, strike: killSource, left: others, limits: usual},
	{name: "link cut", at: inTheMiddle, strike: cutLink, left: others, limits: usual},
	{name: "link of the only giver cut", only: true, at: early, strike: cutLink, left: others, limits: usual},
	{name: "link slowed to a tenth", at: inTheMiddle, strike: slowLink, left: slowed, limits: usual},
	{name: "link of a store cut", first: Store{Stored: true}, at: inTheMiddle, strike: cutLink, left: others, limits: usual},
	{name: "store full", first: Store{MaxBytes: fullBytes, Stored: true}, at: early, strike: fillStore, left: all, limits: usual},
	{name: "bytes flipped in a store", first: Store{Open: true}, strike: flipParts, left: others, limits: flipped},
	{name: "bits flipped in files", first: Store{Stored: true}, strike: wearFiles, left: all, limits: worn},
	{name: "destination killed", at: inTheMiddle, strike: killDestination, left: all, limits: restarted},
}

func nothing(context.Context, *scene, *outcome) error { return nil }

func killSource(_ context.Context, s *scene, _ *outcome) error { return s.sources[0].Kill() }

func cutLink(_ context.Context, s *scene, _ *outcome) error {
	s.links[0].Set(links.Shape{})
	return nil
}

func slowLink(_ context.Context, s *scene, _ *outcome) error {
	s.links[0].Set(tenth)
	return nil
}

func flipParts(_ context.Context, s *scene, result *outcome) error {
	var flipped int
	s.apart -= warmed // its server is one that warms nobody
	err := s.sources[0].Call("Node.Flip", struct{}{}, &flipped)
	result.note = fmt.Sprintf("; %d parts flipped", flipped)
	return err
}

func wearFiles(_ context.Context, s *scene, result *outcome) error {
	var flipped int
	err := s.sources[0].Call("Node.Wear", filepath.Join(filesDir, bucket(0)), &flipped)
	result.note = fmt.Sprintf("; a bit in each of %d files", flipped)
	return err
}

// fillStore has a source store the state although it has no room for it, while others are asked for theirs.
func fillStore(_ context.Context, s *scene, result *outcome) error {
	var filled Filled
	if err := s.sources[0].Call("Node.Fill", state, &filled); err != nil {
		return err
	}
	limit := fmt.Sprintf("at most %d bytes", fullBytes)
	if !strings.Contains(filled.Error, shards.ErrFull.Error()) || !strings.Contains(filled.Error, limit) {
		return fmt.Errorf("expected an error that names the limit of %d bytes, got %q", fullBytes, filled.Error)
	}
	if messages := uint64(filled.Parts) * messagesOf(state.PartBytes); filled.Messages != messages || filled.Parts == 0 {
		return fmt.Errorf("expected %d messages of %d parts in the full store, got %d",
			messages, filled.Parts, filled.Messages)
	}
	result.bound = result.struck + allow(state.Bytes-int64(filled.Parts)*state.PartBytes, others)
	result.note = fmt.Sprintf("; %d part had room; %s", filled.Parts, filled.Error)
	return nil
}

// messagesOf is how many messages a part is: its chunks and its manifest.
func messagesOf(bytes int64) uint64 { return uint64((bytes+chunkBytes-1)/chunkBytes) + 1 }
