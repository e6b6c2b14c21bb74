// Command reknit is all of Reknit in one binary: dev runs a cluster on this machine, the other sub-commands run one
// part each.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"

	"golang.org/x/term"

	"github.com/reknit/reknit/services/monitor"
	"github.com/reknit/reknit/services/negotiator"
	"github.com/reknit/reknit/services/planner"
	"github.com/reknit/reknit/services/reknit/agentd"
	"github.com/reknit/reknit/services/reknit/dev"
	"github.com/reknit/reknit/services/reknit/plan"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/services/reknit/up"
	"github.com/reknit/reknit/services/restorer"
	"github.com/reknit/reknit/services/trainer"
	"github.com/reknit/reknit/shared/service"
)

type command struct {
	name string
	says string
	run  func(arguments []string) error
}

var commands = []command{
	{"dev", "run NATS, the services and some trainers here, and show how training heals", runDev},
	{"up", "run NATS and the services here, for trainers that you start", runUp},
	{"plan", "plan for a file or a live cluster, change nothing, and show why", runPlan},
	{"monitor", "run the monitor, configured by the environment", part("monitor", monitor.Run)},
	{"negotiator", "run the negotiator", part("negotiator", negotiator.Run)},
	{"planner", "run the planner", part("planner", planner.Run)},
	{"restorer", "run the restorer", part("restorer", restorer.Run)},
	{"trainer", "run a reference trainer", part("trainer", trainer.Run)},
	{"agent", "run a trainer in any language, or serve some that run here", agentd.Main},
}

// Exit statuses, as users of nats and kubectl expect them.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	if len(os.Args) < 2 || os.Args[1] == "help" || os.Args[1] == "-h" || os.Args[1] == "--help" {
		usage()
		return
	}
	for _, command := range commands {
		if command.name == os.Args[1] {
			warnOfStrangers(os.Environ(), os.Stderr)
			exit(command.run(os.Args[2:]))
		}
	}
	fmt.Fprintf(os.Stderr, "reknit: no command %q; reknit help lists them\n", os.Args[1])
	os.Exit(exitUsage)
}

func exit(err error) {
	var use tell.UsageError
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case errors.As(err, &use):
		fmt.Fprintln(os.Stderr, "reknit:", err)
		os.Exit(exitUsage)
	}
	fmt.Fprintln(os.Stderr, "reknit:", err)
	os.Exit(exitFailed)
}

func usage() {
	fmt.Println("Reknit heals distributed training.\n\nUsage: reknit COMMAND")
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, command := range commands {
		fmt.Fprintf(table, "  %s\t%s\n", command.name, command.says)
	}
	table.Flush()
	fmt.Println("\nreknit dev --help lists its flags; reknit monitor help lists the variables of a service.")
}

func runDev(arguments []string) error {
	options, err := dev.Parse(arguments, os.Stdout)
	if err != nil {
		return tell.UsageError{Err: err}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return dev.Run(ctx, options, os.Stdout, term.IsTerminal(int(os.Stdout.Fd())))
}

func runUp(arguments []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return up.Run(ctx, arguments, os.Stdout)
}

func runPlan(arguments []string) error { return plan.Run(arguments, os.Stdout) }

// part runs one service as its own binary would: the sub-command takes the place of the program's name.
func part[C any](name string, run func(context.Context, C) error) func([]string) error {
	return func([]string) error {
		os.Args = os.Args[1:]
		service.Main(name, run)
		return nil
	}
}
