package shards

import (
	"runtime"
	"sync/atomic"
)

// Copies that messages leave behind. A part leaves three copies of itself with its giver when it is put: what the server reads it into,
// what it puts it into the stream from, and the bucket's own. It leaves two more for each receiver: what is read of the bucket, and
// the message that it becomes. It leaves one with its receiver.
const (
	copiesOfPut  = 3
	copiesOfRead = 2
	litterBytes  = 24 << 20 // collected at once: beside 1 GiB and two receivers, a giver takes 238 MiB with it (tests/bench/bytes)
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
