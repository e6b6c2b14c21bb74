// Command recovery measures what failures, leaves and joins cost a PyTorch job under Reknit and under torchrun.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/reknit/reknit/tests/torch"
)

func main() {
	runs := flag.Int("n", 5, "runs of each system")
	file := flag.String("json", "", "write the figures to this file")
	only := flag.String("only", "", "run this system alone: "+strings.Join([]string{reknit, unchanged, tightest, documented}, ", "))
	flag.Parse()
	if flag.NArg() > 0 || *runs < 1 {
		fmt.Fprintf(os.Stderr, "bench-recovery: expected -n above 0 and no arguments, got %d and %q\n", *runs, flag.Args())
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := torch.Find(ctx); err != nil {
		fmt.Println("bench-recovery: skipped:", err)
		return
	}
	if err := run(ctx, *runs, *only, *file); err != nil {
		fmt.Fprintln(os.Stderr, "bench-recovery:", err)
		os.Exit(1)
	}
}
