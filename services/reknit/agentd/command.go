package agentd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/service"
)

const usage = `Usage:
  reknit agent run [--restarts N] -- COMMAND…   start a trainer and be its parent
  reknit agent serve                            serve trainers that others start
  reknit agent help                             list the variables

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
		fmt.Print(usage)
		os.Args = append(program, "help")
		service.Main("agent", serveMain)
		return nil
	}
	return tell.UsageError{Err: fmt.Errorf("agent: expected run, serve or help, got %q", verb)}
}

// runMain runs a trainer and ends as it did.
func runMain(program, arguments []string) error {
	restarts, command, err := parse(arguments)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Print(usage)
		return nil
	}
	if err != nil {
		return tell.UsageError{Err: err}
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	status := 0
	os.Args = program
	service.Main("agent", func(ctx context.Context, config Config) (err error) {
		status, err = Run(context.WithoutCancel(ctx), config, command, restarts, signals)
		return err
	})
	os.Exit(status)
	return nil
}

func parse(arguments []string) (restarts int, command []string, err error) {
	flags := flag.NewFlagSet("reknit agent run", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.IntVar(&restarts, "restarts", 3, "how often a trainer that fails is started again")
	if err := flags.Parse(arguments); err != nil {
		return 0, nil, err
	}
	switch {
	case restarts < 0:
		return 0, nil, fmt.Errorf("agent run: --restarts: expected 0 or more, got %d", restarts)
	case flags.NArg() == 0:
		return 0, nil, errors.New("agent run: expected a command, as in reknit agent run -- python train.py")
	}
	return restarts, flags.Args(), nil
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
