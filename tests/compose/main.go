// Command compose kills the containers of a docker compose deployment one by one while it trains. It ends with status
// 0 only if each came back, the model's digest is that of an undisturbed run, and the log holds the invariants.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/reknit/reknit/services/trainer"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/tests/observer"
)

// waitLimit is far beyond what any one thing takes; trainingLimit beyond what the rest of the training takes.
const (
	waitLimit     = 90 * time.Second
	trainingLimit = 10 * time.Minute
)

func main() {
	compose := flag.String("compose", "deploy/compose", "the command that runs docker compose on the deployment")
	secret := flag.String("secret", "", "the folder of kits, where the deployment is secured")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	slog.SetLogLoggerLevel(slog.LevelError)
	if err := run(ctx, *compose, *secret); err != nil {
		fmt.Fprintln(os.Stderr, "compose: FAILED:", err)
		os.Exit(1)
	}
}

// connect returns when the streams are there.
func connect(ctx context.Context, config trainer.Config, secret string) (*bus.Bus, error) {
	settings := bus.Config{URL: config.URL, Name: "test-compose", Cluster: config.Cluster}
	if secret != "" {
		settings.Kit = filepath.Join(secret, "services", "user")
	}
	connecting, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	connection, err := bus.Connect(connecting, settings)
	if err != nil {
		return nil, err
	}
	return connection, until(ctx, "streams", func() bool { return connection.Provisioned(ctx) == nil })
}

// run judges the deployment whose trainers have this process's environment.
func run(ctx context.Context, compose, secret string) error {
	var config trainer.Config
	if err := env.Parse(&config); err != nil {
		return err
	}
	connection, err := connect(ctx, config, secret)
	if err != nil {
		return err
	}
	defer connection.Close()
	watching, err := observer.Listen(ctx, connection)
	if err != nil {
		return err
	}
	deployed := &deployment{watching, connection, compose, secret}
	faults := single
	if strings.Contains(config.URL, ",") {
		faults = cluster
	}
	if _, err := deployed.containers(ctx, site.service); err == nil {
		faults = append(faults, site)
	}
	for _, fault := range faults {
		if err := fault.play(ctx, deployed); err != nil {
			return fmt.Errorf("%s, at step %d of %d: %w", fault.service, watching.Scene().Steps, config.Steps, err)
		}
	}
	if err := deployed.hurry(ctx); err != nil {
		return err
	}
	if err := watching.Wait(ctx, trainingLimit, "the end of training", observer.Scene.Complete); err != nil {
		return err
	}
	verdict, err := watching.Judge(config, watching.Scene())
	if err != nil {
		return err
	}
	fmt.Printf("model digest  %s\noracle digest %s\n", verdict.Digest, verdict.Oracle)
	fmt.Printf("%d events and %d plans, %d violations of an invariant\n", verdict.Events, verdict.Plans,
		len(verdict.Violations))
	return verdict.Err()
}
