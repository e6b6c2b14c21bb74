// Command faults breaks sources, links, stores and the destination in the middle of a transfer, and judges what comes
// of it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/reknit/reknit/tests/links"
	"github.com/reknit/reknit/tests/nodes"
)

// filesDir holds the stores of all nodes. A run removes what an earlier one left; there is one at a time.
var filesDir = filepath.Join(os.TempDir(), "reknit-test-faults")

func main() {
	if len(os.Args) == 3 && os.Args[1] == nodes.Argument {
		exit(serveNode(os.Args[2]))
	}
	if err := links.Able(); err != nil {
		fmt.Println("test-faults: skipped:", err)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	exit(run(ctx))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "test-faults:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run plays every fault on a cluster of its own, and says at the end what went too far.
func run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, os.RemoveAll(filesDir)) }()
	fmt.Printf("%d MiB from %d sources over links of %.0f Mbit/s and %s\n",
		state.Bytes>>20, sources, whole.MegabitsPerSecond, whole.Delay)
	var failed []error
	digest, undisturbed, asIssued := state.Digest(), 0.0, 0
	for _, fault := range faults {
		outcome, missed, err := fault.judged(ctx, digest)
		if err == nil && missed != nil { // a machine that others share may have stood still
			fmt.Printf("%v; it is played once more\n", missed)
			outcome, missed, err = fault.judged(ctx, digest)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", fault.name, err)
		}
		if undisturbed == 0 {
			undisturbed = outcome.seconds
		}
		fmt.Println(outcome.line(undisturbed))
		failed = append(failed, missed)
		if outcome.asIssued() {
			asIssued++
		}
	}
	fmt.Printf("less than a chunk of %d KiB came twice in %d of %d\n", chunkBytes>>10, asIssued, len(faults))
	return errors.Join(failed...)
}

// judged plays a fault, and tells which of its limits it missed.
func (f fault) judged(ctx context.Context, digest string) (result outcome, missed, err error) {
	if err := os.RemoveAll(filesDir); err != nil {
		return result, nil, err
	}
	result, err = f.play(ctx)
	return result, result.judge(f.limits, digest), err
}
