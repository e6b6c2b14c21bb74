// Command negotiator measures what a change costs the control plane, with nodes that only speak the protocol.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	var b bench
	sizes := flag.String("nodes", "6,100,300,1000,2048", "how many nodes, with commas; none: only herds")
	herds := flag.String("herds", "6+100,100+1000", "how many nodes, and how many join these at once, with commas")
	flag.IntVar(&b.trials, "trials", 10, "of each kind of change; above 100 nodes half of that")
	flag.IntVar(&b.servers, "servers", 1, "of NATS, 1 or 3; three have every write on their disks before they acknowledge it")
	secured := flag.Bool("secured", false, "measure what security costs: each change without and with it, in turns")
	atOnce := flag.Int("at-once", 0, "measure what becomes of so many that come to a secured installation at once, and nothing else")
	flag.StringVar(&b.programs, "programs", "bin", "directory of reknit and reknit-nats")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	run := func() error { return b.run(ctx, list(*sizes), list(*herds)) }
	if *secured {
		run = func() error { return b.compare(ctx, list(*sizes)) }
	}
	if *atOnce > 0 {
		run = func() error { return b.come(ctx, *atOnce) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench-negotiator:", err)
		os.Exit(1)
	}
}

// come prints what became of a herd. A trainer that got no answer is an error.
func (b bench) come(ctx context.Context, nodes int) error {
	a, err := b.arrive(ctx, nodes)
	if err != nil {
		return err
	}
	a.print(os.Stdout)
	return a.ended
}

func list(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
}

func (b bench) run(ctx context.Context, sizes, herds []string) error {
	if b.trials < 1 || b.servers != 1 && b.servers != 3 {
		return fmt.Errorf("expected -trials of 1 or more and -servers of 1 or 3, got %d and %d", b.trials, b.servers)
	}
	var results []*result
	var joined []*herd
	for _, size := range sizes {
		nodes, err := strconv.Atoi(size)
		if err != nil || nodes < 6 {
			return fmt.Errorf("expected -nodes of 6 or more, got %q", size)
		}
		of := b
		if nodes > 100 {
			of.trials = max(1, b.trials/2)
		}
		r, err := of.measure(ctx, nodes)
		if err != nil {
			return fmt.Errorf("%d nodes: %w", nodes, err)
		}
		results, joined = append(results, r), append(joined, r.herds...)
		r.print(os.Stdout)
	}
	for _, text := range herds {
		var few, many int
		if _, err := fmt.Sscanf(text, "%d+%d", &few, &many); err != nil || few < 1 || many < 1 {
			return fmt.Errorf("expected -herds as 6+100, got %q", text)
		}
		h, err := b.join(ctx, few, many)
		if err != nil {
			return fmt.Errorf("a herd of %d into %d: %w", many, few, err)
		}
		joined = append(joined, h)
	}
	printHerds(os.Stdout, joined)
	printGrowth(os.Stdout, results)
	printMemory(os.Stdout, results)
	printRestarts(os.Stdout, results)
	return errors.Join(ctx.Err(), b.judge(results, joined))
}
