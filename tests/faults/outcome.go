package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/reknit/reknit/services/agent/shards"
	"github.com/reknit/reknit/tests/links"
	"github.com/reknit/reknit/tests/nodes"
)

// partBytes is the length of a part, as agents make them.
const partBytes = 8 << 20

// state is what is transferred.
var state = nodes.State{Seed: 1, Bytes: 72 << 20, PartBytes: partBytes}

// headers is more than those of all messages and of the manifests, 80 KiB where nothing fails, with what TCP repeats: once
// 0.4 MiB, on two processors with a load of 5.
const headers = 512 << 10

// chunkBytes is a message of the data path: less than that may come twice for each fault, by the issue that asks for
// this.
const chunkBytes = 512 << 10

// Limits of every fault.
const (
	longestGap  = 2 * time.Second
	mostOfBound = 1.25 // of what the links allow
	start       = time.Second
)

// limits are what may come of a fault.
type limits struct {
	twice                       int64 // bytes at most
	leastCorrupt, mostOfCorrupt int   // parts that were found to be corrupt
	lost                        int64 // bytes at most that were on their way to a process that was killed
}

// outcome is how a transfer went.
type outcome struct {
	name    string
	seconds float64
	struck  float64 // seconds after which the fault did
	bound   float64 // seconds that the links need at least, given what they carry behind the fault
	gap     float64 // the longest time without a byte, in seconds, by the last process of the destination
	twice   int64   // bytes that came although they were there
	corrupt int     // parts
	came    int64   // bytes that the last process of the destination was sent
	lost    int64   // bytes that were on their way to a process that was killed
	beyond  int64   // bytes that the links carried beyond the state: headers, what TCP repeated, chunks dropped in part
	note    string
	digest  string // of what was loaded
}

// add counts a transfer, or a further part of one.
func (o *outcome) add(progress shards.Progress) {
	o.seconds += progress.Seconds
	o.twice += progress.Duplicate
	o.came = came(progress)
	for _, source := range progress.Sources {
		o.corrupt += source.Corrupt
	}
}

// came is how many bytes came that somebody waited for.
func came(progress shards.Progress) int64 {
	bytes := int64(0)
	for _, source := range progress.Sources {
		bytes += source.Bytes
	}
	return bytes
}

// allow returns the seconds that links need for so many bytes.
func allow(bytes int64, links []links.Shape) float64 {
	rate := 0.0
	for _, shape := range links {
		rate += shape.BytesPerSecond()
	}
	return float64(bytes) / rate
}

// line tells an outcome beside the same transfer undisturbed.
func (o outcome) line(undisturbed float64) string {
	return fmt.Sprintf("%-30s %.2f s, %.2f times the undisturbed, links allow %.2f s; longest gap %.2f s; "+
		"twice %d KiB; %d KiB over the links beyond the state; corrupt parts %d%s",
		o.name, o.seconds, o.seconds/undisturbed, o.bound, o.gap, o.twice>>10, o.beyond>>10, o.corrupt, o.note)
}

// asIssued reports whether what came twice is what the issue asks for.
func (o outcome) asIssued() bool { return o.twice < chunkBytes }

// judge says what went too far.
func (o outcome) judge(limits limits, digest string) error {
	var failed []error
	expect := func(holds bool, format string, arguments ...any) {
		if !holds {
			failed = append(failed, fmt.Errorf("%s: %s", o.name, fmt.Sprintf(format, arguments...)))
		}
	}
	expect(o.digest == digest, "expected bytes of %s, loaded %s", digest, o.digest)
	expect(o.gap < longestGap.Seconds(), "expected that bytes come within %s, none came for %.2f s", longestGap, o.gap)
	again := int64(o.corrupt) * partBytes
	most := mostOfBound*o.bound*(1+float64(again)/float64(state.Bytes)) + start.Seconds()
	expect(o.seconds <= most, "expected at most %.2f s, it took %.2f s", most, o.seconds)
	expect(o.twice <= limits.twice, "expected that at most %d bytes come twice, %d did", limits.twice, o.twice)
	expect(o.corrupt >= limits.leastCorrupt && o.corrupt <= limits.mostOfCorrupt,
		"expected that %d to %d corrupt parts are found, got %d", limits.leastCorrupt, limits.mostOfCorrupt, o.corrupt)
	expect(o.lost <= limits.lost, "expected that at most %d bytes are lost on their way, %d were", limits.lost, o.lost)
	beyond := limits.twice + again + headers
	expect(o.beyond <= beyond,
		"expected that links carry at most %d bytes beyond the state, they carried %d", beyond, o.beyond)
	expect(o.came >= state.Bytes && o.came <= state.Bytes+o.twice+again,
		"expected that %d bytes come, %d did", state.Bytes, o.came)
	return errors.Join(failed...)
}
