package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/reknit/reknit/services/reknit/processes"
)

// print writes what was measured at one size as a table. Events, bytes and processor time are those of one change.
func (r *result) print(w io.Writer) {
	fmt.Fprintf(w, "\n%d nodes: first plan after %s; a hop of the broker %s, an answer of many %s\n\n", r.nodes,
		milliseconds(r.formed), milliseconds(r.floor.hop), milliseconds(r.floor.answer))
	fmt.Fprintln(w, "| change | times | p50 | p99 | the broker alone | p50 / that | events | KiB | KiB apart | CPU of the services | of the server | of the trainers |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|---|---|")
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
		fmt.Fprintf(w, "| %s | %d | %s | %s | %s | %s | %d | %d | %d | %s | %s | %s |\n", c.change.name, times, milliseconds(p50),
			milliseconds(quantile(c.times, 0.99)), milliseconds(least), ratio, c.events/uint64(times),
			c.bytes/uint64(times)>>10, c.apart/uint64(times)>>10, milliseconds(each(c.cpu, times)), milliseconds(each(c.broker, times)),
			milliseconds(each(c.own, times)))
	}
	for _, c := range r.costs {
		fmt.Fprintf(w, "\n%s, in milliseconds since its first event, medians:\n\n", c.change.name)
		c.line.print(w)
	}
	if r.failed != nil {
		fmt.Fprintf(w, "\nNot ended: %v\n", r.failed)
	}
}

// growthFrom is the least size whose growth says something: below it a change costs what no node has a part in.
const growthFrom = 100

// printGrowth writes with which power of the number of nodes a change's cost grows, from 100 nodes to the most.
func printGrowth(w io.Writer, results []*result) {
	results = slices.DeleteFunc(slices.Clone(results), func(r *result) bool { return r.nodes < growthFrom || r.failed != nil })
	if len(results) < 2 {
		return
	}
	few, many := results[0], results[len(results)-1]
	n, m := float64(few.nodes), float64(many.nodes)
	power := func(before, after float64) float64 { return math.Log(after/before) / math.Log(m/n) }
	fmt.Fprintf(w, "\nFrom %d to %d nodes each grows with a power of their number; n log n would be %.2f.\n\n", few.nodes, many.nodes,
		power(n*math.Log(n), m*math.Log(m)))
	fmt.Fprintln(w, "| change | p50 | events | KiB | CPU of the services | of the server |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|")
	for i, c := range many.costs {
		before := few.costs[i]
		more := float64(len(before.times)) / float64(len(c.times)) // of both, one change's
		fmt.Fprintf(w, "| %s | %.2f | %.2f | %.2f | %.2f | %.2f |\n", c.change.name,
			power(quantile(before.times, 0.5).Seconds(), quantile(c.times, 0.5).Seconds()),
			power(float64(before.events), float64(c.events)*more), power(float64(before.bytes), float64(c.bytes)*more),
			power(before.cpu, c.cpu*more), power(before.broker, c.broker*more))
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
