// Command chaos-cluster kills, pauses and cuts off whatever a cluster is made of, servers and copies of services included,
// and judges how it ends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/reknit/reknit/shared/telemetry"
)

type programs struct{ reknit, nats string }

func programsIn(folder string) programs {
	return programs{filepath.Join(folder, "reknit"), filepath.Join(folder, "reknit-nats")}
}

func main() {
	folder := flag.String("programs", "bin", "the folder with reknit and reknit-nats")
	minutes := flag.Float64("minutes", 10, "how long to strike")
	seed := flag.Uint64("seed", 1, "of what is struck when")
	from := flag.String("from", "", "a folder with reknit and reknit-nats of another build, which runs first: nothing is struck but upgraded")
	flag.Parse()
	if *minutes <= 0 || flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "chaos-cluster: -minutes: expected more than 0 and no further arguments, got %v and %q\n",
			*minutes, flag.Args())
		os.Exit(2)
	}
	telemetry.Level.Set(slog.LevelError + 1) // faults are provoked here
	slog.SetLogLoggerLevel(slog.LevelError + 1)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	directory, err := os.MkdirTemp("", "reknit-chaos-cluster-")
	build, begins := programsIn(*folder), programsIn(*folder)
	strike := func(c *chaos) error { return c.run(ctx, *seed, time.Duration(*minutes*float64(time.Minute))) }
	if err == nil && *from != "" {
		begins, err = install(programsIn(*from), directory)
		strike = func(c *chaos) error { return c.upgrade(ctx, build, directory) }
	}
	if err == nil {
		err = play(ctx, begins, directory, strike)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "chaos-cluster: %v\n  log and processes' logs: %s\n", err, directory)
		os.Exit(1)
	}
	if err := os.RemoveAll(directory); err != nil {
		fmt.Fprintln(os.Stderr, "chaos-cluster:", err)
	}
}

// play has a cluster train, strikes, waits until all train again, and judges.
func play(ctx context.Context, programs programs, directory string, strike func(*chaos) error) error {
	text, err := textFile()
	if err != nil {
		return err
	}
	cluster, err := newCluster(ctx, programs, text, directory)
	defer cluster.close()
	if err != nil {
		return err
	}
	writes, err := newLedger(ctx, "nats://"+strings.Join(cluster.servers.addresses[:], ",nats://"))
	if err != nil {
		return err
	}
	defer writes.bus.Close()
	writing, end := context.WithCancel(ctx)
	var writer sync.WaitGroup
	writer.Go(func() { writes.write(writing) })
	finish := func() {
		end()
		writer.Wait()
	}
	defer finish()
	if err := cluster.observer.Wait(ctx, healLimit, "all trainers to train", trains); err != nil {
		return err
	}
	struck := &chaos{cluster: cluster, ledger: writes}
	striking := strike(struck)
	outcome, judging := judge(ctx, struck, finish)
	written := os.WriteFile(filepath.Join(directory, "log.jsonl"), cluster.observer.Log(), 0o644)
	return errors.Join(striking, judging, written, outcome.conclude())
}

// textFile returns the text that all train on; it comes with every Go distribution.
func textFile() (string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	return filepath.Join(strings.TrimSpace(string(root)), "src", "testdata", "Isaac.Newton-Opticks.txt"), err
}
