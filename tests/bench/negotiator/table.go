package main

import (
	"fmt"
	"io"
	"time"

	"github.com/reknit/reknit/services/reknit/processes"
)

// print writes what was measured at one size as a table. Events, bytes and processor time are those of one change.
func (r *result) print(w io.Writer) {
	fmt.Fprintf(w, "\n%d nodes: first plan after %s; a hop of the broker %s, an answer of many %s\n\n", r.nodes,
		milliseconds(r.formed), milliseconds(r.floor.hop), milliseconds(r.floor.answer))
	fmt.Fprintln(w, "| change | times | p50 | p99 | the broker alone | p50 / that | events | KiB | CPU of the services | of the server |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|")
	for _, c := range r.costs {
		times := len(c.times)
		if times == 0 {
			continue
		}
		p50, least := quantile(c.times, 0.5), r.floor.of(c.change, r.nodes)
		ratio := "–"
		if least > 0 {
			ratio = fmt.Sprintf("%.1f", p50.Seconds()/least.Seconds())
		}
		fmt.Fprintf(w, "| %s | %d | %s | %s | %s | %s | %d | %d | %s | %s |\n", c.change.name, times, milliseconds(p50),
			milliseconds(quantile(c.times, 0.99)), milliseconds(least), ratio, c.events/uint64(times),
			c.bytes/uint64(times)>>10, milliseconds(each(c.cpu, times)), milliseconds(each(c.broker, times)))
	}
	if r.failed != nil {
		fmt.Fprintf(w, "\nNot ended: %v\n", r.failed)
	}
}

// printMemory writes the most memory that each process had, by size.
func printMemory(w io.Writer, results []*result) {
	fmt.Fprintf(w, "\n| nodes |")
	for _, name := range append(processes.Services, broker) {
		fmt.Fprintf(w, " %s |", name)
	}
	fmt.Fprintln(w, "\n|---|---|---|---|---|---|")
	for _, r := range results {
		fmt.Fprintf(w, "| %d |", r.nodes)
		for _, name := range append(processes.Services, broker) {
			fmt.Fprintf(w, " %d MiB |", r.uses[name].bytes>>20)
		}
		fmt.Fprintln(w)
	}
}

func each(seconds float64, times int) time.Duration {
	return time.Duration(seconds / float64(times) * float64(time.Second))
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.3g ms", d.Seconds()*1e3)
}
