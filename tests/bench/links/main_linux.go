// Command links measures how a state comes to a node that joins, over uneven links, by several policies.
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

	"github.com/reknit/reknit/tests/links"
	"github.com/reknit/reknit/tests/nodes"
)

// states are the sizes of models in MiB, as in the Chaos papers (section VI-A).
var states = map[string]int64{"resnet101": 178, "gpt2": 468, "gpt2-large": 3050}

// fewProcessors are clusters of 5, 3, 4, 4 and 6 neighbours whose rates together, 822 to 1,549 Mbit/s, two processors
// can carry.
const fewProcessors = "1,5,6,7,2014"

// settings say what is measured.
type settings struct {
	states []string
	seeds  []uint64
	file   string
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == nodes.Argument {
		exit(serveNode(os.Args[2]))
	}
	var s settings
	names := flag.String("states", "resnet101,gpt2", "whose states, of resnet101, gpt2 and gpt2-large")
	seeds := flag.String("seeds", fewProcessors, "seeds of clusters")
	flag.StringVar(&s.file, "json", "", "write the figures to this file")
	flag.Parse()
	if err := s.parse(*names, *seeds, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "bench-links:", err)
		os.Exit(2)
	}
	if err := links.Able(); err != nil {
		fmt.Println("bench-links: skipped:", err)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	exit(s.run(ctx))
}

func (s *settings) parse(names, seeds string, others []string) error {
	for name := range strings.SplitSeq(names, ",") {
		if states[name] == 0 {
			return fmt.Errorf("-states: expected some of resnet101, gpt2 and gpt2-large, got %q", name)
		}
		s.states = append(s.states, name)
	}
	for text := range strings.SplitSeq(seeds, ",") {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return fmt.Errorf("-seeds: expected numbers with commas between, got %q", seeds)
		}
		s.seeds = append(s.seeds, seed)
	}
	if len(others) > 0 {
		return fmt.Errorf("expected no further arguments, got %q", others)
	}
	return nil
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-links:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (s settings) run(ctx context.Context) (err error) {
	if err := os.RemoveAll(storesDir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(storesDir)) }()
	if err := provisionKits(); err != nil {
		return err
	}
	check, err := checkLink(ctx)
	if err != nil {
		return err
	}
	rows := check
	for _, name := range s.states {
		for _, seed := range s.seeds {
			outcome, err := play(ctx, draw(seed), states[name]<<20)
			if err != nil {
				return fmt.Errorf("%s, seed %d: %w", name, seed, err)
			}
			outcome.print()
			rows = append(rows, outcome.figures()...)
		}
	}
	if s.file != "" {
		if err := writeRows(s.file, rows); err != nil {
			return err
		}
	}
	return judge(rows)
}

// judge prints what does not hold.
func judge(rows []row) error {
	failed := 0
	for _, figure := range rows {
		if !figure.Holds {
			failed++
			fmt.Printf("does not hold: %s: %.4g %s, target %.4g %s\n", figure.Figure, figure.Ours, figure.Unit, figure.Target,
				figure.BaselineName)
		}
	}
	fmt.Printf("%d of %d figures hold\n", len(rows)-failed, len(rows))
	if failed > 0 {
		return fmt.Errorf("%d figures do not hold", failed)
	}
	return nil
}
