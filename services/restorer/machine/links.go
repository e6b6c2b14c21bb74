package machine

import (
	"slices"

	"github.com/reknit/reknit/events"
)

// relayedShare is what a pair without a direct link has of its bandwidth: it goes through the hub, where both ways
// share one server. A tenth is a guess on the safe side, and only serves to prefer other sources.
const relayedShare = 0.1

// bandwidths returns what each link carries in bytes per second, from sender to receiver, as measured. O(names^2).
func (r *restoration) bandwidths(names []string) [][]float64 {
	index := make(map[string]int, len(names))
	links := make([][]float64, len(names))
	for i, name := range names {
		index[name] = i
		links[i] = slices.Repeat([]float64{events.AssumedBytesPerSecond}, len(names))
		links[i][i] = 0
	}
	at := func(from, to string) *float64 {
		i, sends := index[from]
		j, receives := index[to]
		if !sends || !receives || i == j {
			return new(float64) // a link of somebody else
		}
		return &links[i][j]
	}
	for _, link := range r.Links {
		if link.BandwidthBytesPerSecond > 0 {
			*at(link.From, link.To) = link.BandwidthBytesPerSecond
		}
	}
	relayed := map[events.Pair]bool{}
	for _, pair := range r.Unreachable {
		if !relayed[pair] {
			relayed[pair] = true
			*at(pair.A, pair.B) *= relayedShare
			*at(pair.B, pair.A) *= relayedShare
		}
	}
	return links
}

// way is a direct link in one direction.
type way struct{ from, to string }

// measured returns the bytes a second of the links that were measured; those used directly.
func (r *restoration) measured() map[way]float64 {
	rates := map[way]float64{}
	for _, link := range r.Links {
		rates[way{link.From, link.To}] = link.BandwidthBytesPerSecond
	}
	for _, pair := range r.Unreachable {
		delete(rates, way{pair.A, pair.B})
		delete(rates, way{pair.B, pair.A})
	}
	return rates
}

// roundTrips returns the longest measured round trip of each node, at least the assumed one.
func (r *restoration) roundTrips(names []string) []float64 {
	longest := map[string]float64{}
	for _, link := range r.Links {
		longest[link.From] = max(longest[link.From], link.RoundTripSeconds)
		longest[link.To] = max(longest[link.To], link.RoundTripSeconds)
	}
	seconds := make([]float64, len(names))
	for i, name := range names {
		seconds[i] = max(longest[name], events.AssumedRoundTripSeconds)
	}
	return seconds
}
