package agentd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/service"
)

const usage = `Usage:
  reknit agent run [--restarts N] [--unchanged] -- COMMAND…   start a trainer and be its parent
  reknit agent serve                                          serve trainers that others start
  reknit agent help                                           list the variables

`

const runUsage = usage + `Flags of run:
  --restarts N   how often a command that fails, by an exit status other than 0 or a signal, is started again (3).
                 One that has run for five minutes has all its restarts again. It is started after a second, then
                 after twice as long each time, 30 s at most; one that joined with fields that are not as expected, or
                 with another job than the cluster trains, would be refused again, and is not. With N = 0 the agent
                 ends as the command does. Else it stays for as long as it alone keeps what the command left of a state
                 that others trained, too: it gives that to nodes that join, and two signals end it.
  --unchanged    the command knows nothing of Reknit. It has RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT of the
                 plan, as under torchrun, is stopped and started again whenever nodes join, leave or fail, and
                 begins with its own checkpoint: REKNIT_SNAPSHOT_… have no effect. Failures are counted as above, at all
                 nodes, and there is no pause.
                 Without it a script joins by reknit.py or reknit_torch.py, and goes on in place.
`

// Main is the command reknit agent. It ends the process with the status of the trainer.
func Main(arguments []string) error {
	verb, rest := "", []string(nil)
	if len(arguments) > 0 {
		verb, rest = arguments[0], arguments[1:]
	}
	program := os.Args[:1]
	switch verb {
	case "run":
		return runMain(program, rest)
	case "serve":
		if len(rest) > 0 {
			return tell.UsageError{Err: fmt.Errorf("agent serve: expected no argument, got %q", rest[0])}
		}
		os.Args = program
		service.Main("agent", serveMain)
		return nil
	case "help", "-h", "--help":
		fmt.Print(runUsage + "\n")
		os.Args = append(program, "help")
		service.Main("agent", serveMain)
		return nil
	}
	return tell.UsageError{Err: fmt.Errorf("agent: expected run, serve or help, got %q", verb)}
}

// runMain runs a trainer and ends as it did.
func runMain(program, arguments []string) error {
	how, err := parse(arguments)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Print(runUsage)
		return nil
	}
	if err != nil {
		return tell.UsageError{Err: err}
	}
	if world := os.Getenv("WORLD_SIZE"); world != "" && world != "1" {
		slog.Warn("WORLD_SIZE, RANK and MASTER_ADDR of the environment are replaced: start one agent for each process, "+
			"without torchrun", "WORLD_SIZE", world)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	run := Run
	if how.unchanged {
		run = RunUnchanged
	}
	status := 0
	os.Args = program
	service.Main("agent", func(ctx context.Context, config Config) (err error) {
		status, err = run(context.WithoutCancel(ctx), config, how.command, how.restarts, signals)
		return err
	})
	os.Exit(status)
	return nil
}

// running is how a trainer is run.
type running struct {
	command   []string
	restarts  int
	unchanged bool // it knows nothing of the agent
}

func parse(arguments []string) (how running, err error) {
	flags := flag.NewFlagSet("reknit agent run", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.IntVar(&how.restarts, "restarts", 3, "")
	flags.BoolVar(&how.unchanged, "unchanged", false, "")
	if err := flags.Parse(arguments); err != nil {
		return running{}, fmt.Errorf("agent run: %w", err)
	}
	how.command = flags.Args()
	switch {
	case how.restarts < 0:
		return running{}, fmt.Errorf("agent run: --restarts: expected 0 or more, got %d", how.restarts)
	case len(how.command) == 0:
		return running{}, errors.New("agent run: expected a command, as in reknit agent run -- python train.py")
	}
	return how, nil
}

func serveMain(ctx context.Context, config Config) error {
	again, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
		<-signals
		stop()
	})()
	return Serve(ctx, again, config, os.Stdout)
}
