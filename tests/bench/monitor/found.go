package main

import (
	"fmt"
	"slices"

	"github.com/reknit/reknit/tests/bench/monitor/wan"
)

// found is what a detector found: verdicts on the living, and failures with their seconds.
type found struct {
	nodes     int // living ones that were given up
	of        map[int]float64
	verdicts  int // a site that was given up counts as one
	latencies map[string][]float64
}

// sameSeconds is within how long the verdicts on a site's nodes are one.
const sameSeconds = 10

// falsely counts a verdict on a living node. Those on a site at one time are one fact to whoever hears them.
func (f *found) falsely(now float64, node int) {
	f.nodes++
	if f.of == nil {
		f.of = map[int]float64{}
	}
	site := wan.SiteOf(node)
	if last, ok := f.of[site]; !ok || now-last > sameSeconds {
		f.verdicts++
	}
	f.of[site] = now
}

func (f *found) after(kind string, seconds float64) {
	if f.latencies == nil {
		f.latencies = map[string][]float64{}
	}
	f.latencies[kind] = append(f.latencies[kind], seconds)
}

// quantiles tells p50 and p99 of a kind of failure.
func (f *found) quantiles(kind string) string {
	seconds := slices.Sorted(slices.Values(f.latencies[kind]))
	if len(seconds) == 0 {
		return "-"
	}
	at := func(share float64) float64 { return seconds[min(len(seconds)-1, int(share*float64(len(seconds))))] }
	return fmt.Sprintf("%.2f / %.2f", at(0.5), at(0.99))
}
