// Command negotiator measures what a change costs the control plane, with nodes that only speak the protocol.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	sizes := flag.String("nodes", "6,100,300,1000", "how many nodes, with commas")
	trials := flag.Int("trials", 10, "of each kind of change; above 100 nodes a third of that")
	programs := flag.String("programs", "bin", "directory of reknit and reknit-nats")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *sizes, *trials, *programs); err != nil {
		fmt.Fprintln(os.Stderr, "bench-negotiator:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, sizes string, trials int, programs string) error {
	var results []*result
	for _, size := range strings.Split(sizes, ",") {
		nodes, err := strconv.Atoi(size)
		if err != nil || nodes < 6 || trials < 1 {
			return fmt.Errorf("expected -nodes of 6 or more and -trials of 1 or more, got %q and %d", size, trials)
		}
		times := trials
		if nodes > 100 {
			times = max(1, trials/3)
		}
		r, err := measure(ctx, programs, nodes, times)
		if err != nil {
			return fmt.Errorf("%d nodes: %w", nodes, err)
		}
		results = append(results, r)
		r.print(os.Stdout)
	}
	printMemory(os.Stdout, results)
	return ctx.Err()
}
