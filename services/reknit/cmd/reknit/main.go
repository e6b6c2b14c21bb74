// Command reknit is all of Reknit in one binary: some sub-commands look into a cluster, dev and up run one on this machine,
// the others run one part each.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/reknit/reknit/services/monitor"
	"github.com/reknit/reknit/services/negotiator"
	"github.com/reknit/reknit/services/planner"
	"github.com/reknit/reknit/services/reknit/accept"
	"github.com/reknit/reknit/services/reknit/agentd"
	"github.com/reknit/reknit/services/reknit/audit"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/dev"
	"github.com/reknit/reknit/services/reknit/doctor"
	"github.com/reknit/reknit/services/reknit/drain"
	"github.com/reknit/reknit/services/reknit/history"
	"github.com/reknit/reknit/services/reknit/inventory"
	"github.com/reknit/reknit/services/reknit/plan"
	"github.com/reknit/reknit/services/reknit/policies"
	"github.com/reknit/reknit/services/reknit/provision"
	"github.com/reknit/reknit/services/reknit/remove"
	"github.com/reknit/reknit/services/reknit/reset"
	"github.com/reknit/reknit/services/reknit/step"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/services/reknit/up"
	"github.com/reknit/reknit/services/reknit/version"
	"github.com/reknit/reknit/services/restorer"
	"github.com/reknit/reknit/services/trainer"
	"github.com/reknit/reknit/shared/service"
)

const help = `Reknit heals distributed training.

Exit status: 0 done; 1 failed, and the reason is printed; 2 the command line or a file is wrong;
3 something is not well, and is named (status and doctor); 4 NATS cannot be reached, or lets nobody in;
78 a setting is wrong.
reknit agent run ends as what it runs does.`

func main() {
	ctx, stop := untilTold()
	err := execute(ctx, root(), os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(tell.Printable(os.Stderr), "reknit:", err)
	}
	os.Exit(status(err))
}

// untilTold returns a context that ends with the first signal to end. The second ends the process at once.
func untilTold() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// execute runs a command line. If it asks for help, cobra would take an unknown command for its parent.
func execute(ctx context.Context, root *cobra.Command, line []string) error {
	if err := knownHelp(root, line); err != nil {
		return tell.UsageError{Err: err}
	}
	root.SetArgs(line)
	return root.ExecuteContext(ctx)
}

func knownHelp(root *cobra.Command, line []string) error {
	asks := slices.Contains(line, "--help") || slices.Contains(line, "-h")
	if len(line) > 0 && line[0] == "help" {
		asks, line = true, line[1:]
	}
	found, words, err := root.Find(line)
	if !asks || err != nil || !found.HasSubCommands() {
		return nil
	}
	words = slices.DeleteFunc(slices.Clone(words), func(word string) bool { return strings.HasPrefix(word, "-") })
	return knownCommand(found, words)
}

// Exit statuses, as users of nats and kubectl expect them.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitNotWell     = 3
	exitUnreachable = 4
)

func status(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.As(err, &tell.UsageError{}):
		return exitUsage
	case errors.As(err, &service.Misconfigured{}):
		return service.ExitMisconfigured
	case errors.As(err, &tell.NotWell{}):
		return exitNotWell
	case errors.As(err, &connect.Unreachable{}):
		return exitUnreachable
	}
	return exitFailed
}

func root() *cobra.Command {
	root := tell.Command(&cobra.Command{
		Use: "reknit", Long: help, Args: knownCommand, Version: service.Version(),
		RunE:             func(c *cobra.Command, _ []string) error { return c.Help() },
		PersistentPreRun: func(c *cobra.Command, _ []string) { warnOfStrangers(c.Name(), os.Environ(), c.ErrOrStderr()) },
	})
	group(root, "Look into a cluster:",
		inventory.Status(), history.WatchCommand(), history.ExplainCommand(), history.Command(), plan.Command(),
		inventory.Nodes(), inventory.Links(), policies.Command(), audit.Command(), doctor.Command(), version.Command(),
	)
	cluster := remove.Command()
	cluster.AddCommand(reset.Command())
	group(root, "Change it:", drain.Command(), drain.StopCommand(), cluster, step.Command(), accept.Command())
	group(root, "Run a cluster, or a part of one:",
		dev.Command(), up.Command(), provision.Command(),
		part("agent", "run a trainer in any language, or serve some that run here", agentd.Main, "run", "serve", "help"),
		ofService("monitor", monitor.Run), ofService("negotiator", negotiator.Run), ofService("planner", planner.Run),
		ofService("restorer", restorer.Run), ofService("trainer", trainer.Run),
	)
	return root
}

// knownCommand refuses what is no command, with those that are spelt alike.
func knownCommand(parent *cobra.Command, given []string) error {
	if len(given) == 0 || given[0] == "help" || given[0] == "completion" {
		return nil
	}
	alike := ""
	parent.SuggestionsMinimumDistance = 2
	for _, name := range parent.SuggestionsFor(given[0]) {
		alike += "; did you mean " + name + "?"
	}
	return fmt.Errorf("no command %q%s; %s --help lists them", given[0], alike, parent.CommandPath())
}

// group adds commands under a heading of the list that help prints.
func group(root *cobra.Command, heading string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: heading, Title: heading})
	for _, command := range commands {
		command.GroupID = heading
	}
	root.AddCommand(commands...)
}

// part is a command that reads its line itself, and prints its own help.
func part(name, says string, run func(arguments []string) error, verbs ...string) *cobra.Command {
	command := tell.Command(&cobra.Command{
		Use: name, Short: says, DisableFlagParsing: true, ValidArgs: verbs, Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, arguments []string) error { return run(arguments) },
	})
	command.SetHelpFunc(func(c *cobra.Command, _ []string) {
		if err := run([]string{"help"}); err != nil {
			c.PrintErrln("reknit:", err)
		}
	})
	return command
}

// ofService runs one service as its own binary would: the sub-command takes the place of the program's name.
func ofService[C any](name string, run func(context.Context, C) error) *cobra.Command {
	return part(name, "run the "+name+", configured by the environment: reknit "+name+" help lists it", func(line []string) error {
		os.Args = append([]string{name}, line...)
		service.Main(name, run)
		return nil
	}, "help", "healthcheck", "version")
}
