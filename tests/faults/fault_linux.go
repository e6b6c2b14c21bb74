package main

import (
	"context"
	"fmt"

	"github.com/reknit/reknit/tests/links"
)

// When faults strike.
const (
	inTheMiddle = 1. / 3
	early       = 0.03 // before shards.SpareWait is over, so that nobody else gives yet
)

// The shapes of the links.
var (
	all    = []links.Shape{whole, whole, whole}
	others = []links.Shape{whole, whole}
	slowed = []links.Shape{tenth, whole, whole}
)

// Limits of what may come of faults.
var (
	usual = limits{twice: chunkBytes}
	// A source is left after two corrupt parts, and two are on their way then.
	flipped   = limits{twice: chunkBytes, leastCorrupt: 2, mostOfCorrupt: 4}
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
	{name: "link of a store cut", first: Store{Open: true}, at: inTheMiddle, strike: cutLink, left: others, limits: usual},
	{name: "window full", at: early, strike: fillWindow, left: others, limits: usual},
	{name: "bytes flipped in a store", first: Store{Open: true}, strike: flipParts, left: others, limits: flipped},
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

// fillWindow has readers want all that a source gives, and take nothing: it has no room for who does.
func fillWindow(_ context.Context, s *scene, _ *outcome) error {
	return s.sources[0].Call("Node.Occupy", s.parts, nil)
}
