package shards

import (
	"runtime"
	"sync/atomic"
)

// What messages leave behind. A part leaves four copies of itself with its giver: what its server reads it into, what it puts it
// into the stream from, the bucket's own, and what is read for a receiver. With its receiver it leaves one.
const (
	copiesOfPut = 4
	litterBytes = 32 << 20 // collected at once: with 4 to 64 MiB a GiB took as long, and the giver 270 to 304 MiB (tests/bench/bytes)
)

// litter counts what messages leave behind in this process, and has it collected. Beside a large state the collector would not
// run by itself before that is as large as the state: a GiB of new pages, which cost its receiver 2 of 4 CPU seconds.
type litter struct {
	bytes      atomic.Int64 // since a collection began
	collecting atomic.Bool  // one is under way; there is one at a time
}

var left litter // the collector is the process's, too

func (l *litter) leave(bytes int64) {
	if l.bytes.Add(bytes) < litterBytes || !l.collecting.CompareAndSwap(false, true) {
		return
	}
	l.bytes.Store(0)
	go func() {
		runtime.GC()
		l.collecting.Store(false)
	}()
}
