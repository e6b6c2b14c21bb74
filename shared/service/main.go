package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/telemetry"
)

// Common is the part of the configuration that every service has; a service's Config embeds it.
type Common struct {
	URL         string     `env:"REKNIT_NATS_URL" envDefault:"nats://127.0.0.1:4222" unit:"URL, or several with commas" reason:"where NATS listens unless told otherwise"`
	Kit         string     `env:"REKNIT_NATS_KIT" unit:"folder" reason:"of keys and certificates, written by reknit provision security; without one NATS asks for none, and anybody can speak for everybody"`
	Cluster     string     `env:"REKNIT_CLUSTER" envDefault:"default" unit:"id" reason:"one installation may serve several clusters; most serve one"`
	HTTPAddress string     `env:"REKNIT_HTTP_ADDRESS" unit:"host:port" reason:"off by default, so that services on one host do not collide"`
	LogLevel    slog.Level `env:"REKNIT_LOG_LEVEL" envDefault:"INFO" unit:"DEBUG, INFO, WARN or ERROR" reason:"INFO has one line for each event said"`
}

// Connect connects to the bus in the name of a service.
func (c Common) Connect(ctx context.Context, name string) (*bus.Bus, error) {
	telemetry.Level.Set(c.LogLevel)
	stop, err := newHealth(nil).serve(c.HTTPAddress) // or a service that waits for NATS would pass for one that hangs
	if err != nil {
		return nil, err
	}
	defer stop()
	return bus.Connect(ctx, bus.Config{URL: c.URL, Name: name, Cluster: c.Cluster, Kit: c.Kit})
}

const flushTimeout = 3 * time.Second

// Main is a service's main function: configuration from the environment, telemetry, a clean end on SIGTERM and SIGINT. It ends the
// process with status 1 where run fails, and with ExitMisconfigured where it would fail the same at the next start.
// The sub-command healthcheck asks the service that runs on REKNIT_HTTP_ADDRESS whether it is ready, healthcheck live
// whether a restart would help it; help prints the variables, version the build.
func Main[C any](name string, run func(context.Context, C) error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, name, run); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		if errors.As(err, &Misconfigured{}) {
			os.Exit(ExitMisconfigured)
		}
		os.Exit(1)
	}
}

func command[C any](ctx context.Context, name string, run func(context.Context, C) error) error {
	var config C
	switch {
	case len(os.Args) == 1:
	case os.Args[1] == "healthcheck":
		return Healthcheck(ctx, os.Getenv("REKNIT_HTTP_ADDRESS"), strings.Join(os.Args[2:], " "))
	case slices.Contains([]string{"help", "-h", "--help"}, os.Args[1]):
		return help(config)
	case slices.Contains([]string{"version", "--version"}, os.Args[1]):
		_, err := fmt.Println(name, Version())
		return err
	default:
		return Misconfigured{fmt.Errorf("expected no argument, healthcheck, help or version, got %q", os.Args[1])}
	}
	if err := Read(&config, env.ToMap(os.Environ())); err != nil {
		return err
	}
	shutdown, err := telemetry.Setup(ctx, name)
	if err != nil {
		return err
	}
	defer func() {
		flush, cancel := context.WithTimeout(context.Background(), flushTimeout)
		defer cancel()
		if err := shutdown(flush); err != nil {
			slog.Warn("telemetry was not sent", "error", err)
		}
	}()
	return runUntilTold(ctx, config, run)
}

// runUntilTold returns no error where run was told to end, while it waited for NATS, say.
func runUntilTold[C any](ctx context.Context, config C, run func(context.Context, C) error) error {
	for name, meant := range Misspelt(config, os.Environ()) {
		slog.WarnContext(ctx, "this is no setting, and has no effect; it is spelt almost as one", "variable", name, "didYouMean", meant)
	}
	err := run(ctx, config)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

func help(config any) error {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "VARIABLE\tDEFAULT\tUNIT\tREASON")
	for _, v := range Variables(config) {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", v.Name, v.Default, v.Unit, v.Reason)
	}
	return table.Flush()
}
