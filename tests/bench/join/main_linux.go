// Command join measures what it costs the others that a node joins, with layers that move while training goes on and
// without.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/reknit/reknit/services/trainer/oracle"
	"github.com/reknit/reknit/tests/bench/figures"
	"github.com/reknit/reknit/tests/links"
	"github.com/reknit/reknit/tests/nodes"
)

// filesDir holds what the hub stores. A run removes what an earlier one left; there is one at a time.
var filesDir = filepath.Join(os.TempDir(), "reknit-bench-join")

func main() {
	if len(os.Args) == 3 && os.Args[1] == nodes.Argument {
		exit(serveNode(os.Args[2]))
	}
	file := flag.String("json", "", "write the figures to this file")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "bench-join: expected no further arguments, got %q\n", flag.Args())
		os.Exit(2)
	}
	if err := links.Able(); err != nil {
		fmt.Println("bench-join: skipped:", err)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	exit(run(ctx, *file))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-join:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(ctx context.Context, file string) (err error) {
	defer func() { err = errors.Join(err, os.RemoveAll(filesDir)) }()
	text, err := opticks()
	if err != nil {
		return err
	}
	var joins []join
	for _, preCopySteps := range []string{alwaysPreCopy, neverPreCopy} {
		if err := os.RemoveAll(filesDir); err != nil {
			return err
		}
		join, err := play(ctx, text, preCopySteps)
		if err != nil {
			return fmt.Errorf("REKNIT_PRECOPY_STEPS=%s: %w", preCopySteps, err)
		}
		join.print()
		joins = append(joins, join)
	}
	digest, err := undisturbed(text)
	if err != nil {
		return err
	}
	for _, join := range joins {
		if join.Digest != digest {
			return fmt.Errorf("REKNIT_PRECOPY_STEPS=%s: digest %s: expected that of an undisturbed process, %s",
				join.PreCopySteps, join.Digest, digest)
		}
	}
	fmt.Println("both digests are that of an undisturbed process:", digest)
	var report figures.Report
	judge(&report, joins[0], joins[1])
	return report.Finish(file)
}

// opticks is the path of the text that is trained on: it comes with every Go distribution.
func opticks() (string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	return filepath.Join(strings.TrimSpace(string(root)), "src", "testdata", "Isaac.Newton-Opticks.txt"), err
}

// undisturbed returns the digest of a model that one process trained alone.
func undisturbed(text string) (string, error) {
	config, err := trainerConfig("oracle", text)
	if err != nil {
		return "", err
	}
	training, samples, err := config.Training()
	if err != nil {
		return "", err
	}
	digest, _, err := oracle.Run(training, samples, nil)
	return digest, err
}
