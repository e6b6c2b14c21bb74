package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/negotiator/protocol"
	"github.com/reknit/reknit/tests/bench/figures"
)

// rows tells of a run while it goes on: each hour of the first day, and each day. One that is cut off has told as much.
type rows struct {
	to    io.Writer
	at    time.Duration // of the row before
	steps uint64        // by then
}

// columns are the head of the rows; each is as wide as its name.
var columns = []string{
	"hours", "failures", "falsely lost", "   plans", " aborted", "training", "   log MiB", "payloads MiB", "plans MiB", "   stretches",
	"negotiator KiB", "monitor KiB", "agent KiB", "heap MiB", "  CPU s",
}

func (r *rows) tell(c *course) {
	now, s := c.world.Now(), c.samples[len(c.samples)-1]
	if now > day && now%day != 0 {
		return
	}
	if r.at == 0 {
		fmt.Fprintln(r.to, strings.Join(columns, "  "))
		r.at, r.steps = calm, c.steps.calm
	}
	training := float64(c.steps.done-r.steps) * c.steps.usual.Seconds() / (now - r.at).Seconds()
	r.at, r.steps = now, c.steps.done
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	for i, cell := range []string{
		fmt.Sprintf("%.0f", now.Hours()), fmt.Sprint(c.failed()), fmt.Sprint(len(c.falsely)), fmt.Sprint(c.told[events.PlanCommitted]),
		fmt.Sprint(c.told[events.Aborted]), fmt.Sprintf("%.2f %%", 100*training), in(20, s.held(0)), in(20, s.held(1)),
		in(20, s.held(2)+s.held(3)), fmt.Sprintf("%d of %d", s.stretches, protocol.MostStretches), in(10, s.machines["negotiator, remembered"]),
		in(10, s.machines["monitor, remembered"]), in(10, s.machines[agents]), in(20, float64(memory.HeapAlloc)),
		fmt.Sprintf("%.0f", figures.Spent().Seconds()),
	} {
		fmt.Fprintf(r.to, "%*s  ", len(columns[i]), cell)
	}
	fmt.Fprintln(r.to)
}

// held is what a store holds, in bytes.
func (s sample) held(store int) float64 { return float64(s.stores[store].Held) }

// in tells bytes in units of so many bits.
func in(bits int, bytes float64) string { return fmt.Sprintf("%.1f", bytes/float64(int(1)<<bits)) }

// failed counts the failures so far.
func (c *course) failed() (count int) {
	for _, kind := range c.counts {
		count += kind
	}
	return count
}
