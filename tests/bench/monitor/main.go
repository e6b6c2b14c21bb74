// Command monitor measures the monitor: how fast it finds failures and how often it takes the living for dead on a model
// of a wide area network, beside the detectors of the field, and what heartbeats cost.
package main

import (
	"container/heap"
	"flag"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/reknit/reknit/tests/bench/monitor/wan"
)

const day = 86400.0

func main() {
	days := flag.Float64("days", 1, "of virtual time in which nothing fails, and all verdicts are false")
	hours := flag.Float64("hours", 12, "of virtual time in which something fails every two minutes")
	seed := flag.Uint64("seed", 1, "of all that happens")
	nodes := flag.Int("nodes", 10000, "that send a heartbeat a second to a monitor's process, 0 for none")
	seconds := flag.Int("seconds", 60, "for so long")
	programs := flag.String("programs", "bin", "directory of reknit-monitor and reknit-nats")
	flag.Parse()
	fmt.Printf("%d nodes at %d sites, a heartbeat a second, seed %d\n\n", wan.Nodes, wan.Sites, *seed)
	if *days > 0 {
		falseVerdicts(*seed, *days)
	}
	if *hours > 0 {
		latencies(*seed, *hours*3600)
	}
	if *nodes > 0 {
		if err := throughput(*programs, *nodes, *seconds); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// falseVerdicts counts verdicts on nodes that live, cuts and stalls included.
func falseVerdicts(seed uint64, days float64) {
	w := newWorld(seed, days*day, false)
	w.run(days * day)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "false verdicts a node-day in %.0f node-days\tnodes given up\ta site's counted once\n", days*wan.Nodes)
	line := func(name string, f *found) {
		fmt.Fprintf(out, "%s\t%.4f\t%.4f\n", name, float64(f.nodes)/days/wan.Nodes, float64(f.verdicts)/days/wan.Nodes)
	}
	line("Reknit", &w.ours)
	for _, other := range w.others {
		line(other.name, &other.found)
	}
	out.Flush()
	fmt.Println()
}

// latencies measures after how long failures are found, with the delays and losses of the network.
func latencies(seed uint64, seconds float64) {
	w := newWorld(seed, seconds, true)
	w.training.began = 1
	w.at(60, func() { w.strike(0) })
	w.run(seconds)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(out, "found after, p50 / p99 in s (%s)\t%s\n", strings.Join(w.ours.counts(), ", "), strings.Join(kinds, "\t"))
	fmt.Fprintf(out, "Reknit\t%s\n", strings.Join(w.ours.row(), "\t"))
	for _, other := range w.others {
		fmt.Fprintf(out, "%s\t%s\n", other.name, strings.Join(other.row(), "\t"))
	}
	out.Flush()
	fmt.Printf("steps of %.0f s; %d living nodes were given up\n\n", stepSeconds, w.ours.nodes)
}

type happenings []happening

var _ heap.Interface = (*queue)(nil)

func (h happenings) Len() int { return len(h) }
func (h happenings) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].made < h[j].made
}
func (h happenings) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *happenings) Push(x any)   { *h = append(*h, x.(happening)) }
func (h *happenings) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
