// Command compose kills the containers of a docker compose deployment one by one while it trains. It ends with status
// 0 only if each came back, the model's digest is that of an undisturbed run, and the log holds the invariants.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/reknit/reknit/services/trainer"
	"github.com/reknit/reknit/services/trainer/oracle"
)

// waitLimit is far beyond what any one thing takes; trainingLimit beyond what the rest of the training takes.
const (
	waitLimit     = 90 * time.Second
	trainingLimit = 10 * time.Minute
)

func main() {
	compose := flag.String("compose", "deploy/compose", "the command that runs docker compose on the deployment")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	slog.SetLogLoggerLevel(slog.LevelError)
	if err := run(ctx, *compose); err != nil {
		fmt.Fprintln(os.Stderr, "compose: FAILED:", err)
		os.Exit(1)
	}
}

// run judges the deployment whose trainers have this process's environment.
func run(ctx context.Context, compose string) error {
	var config trainer.Config
	if err := env.Parse(&config); err != nil {
		return err
	}
	deployment, err := listen(ctx, config.Common, compose)
	if err != nil {
		return err
	}
	defer deployment.bus.Close()
	for _, fault := range faults {
		if err := fault.play(ctx, deployment); err != nil {
			return fmt.Errorf("%s, at step %d of %d: %w", fault.service, deployment.snapshot().steps, config.Steps, err)
		}
	}
	if err := deployment.wait(ctx, trainingLimit, "the end of training", scene.complete); err != nil {
		return err
	}
	return judge(config, deployment)
}

// judge compares the digests and holds the log against the invariants.
func judge(config trainer.Config, deployment *deployment) error {
	digest, err := deployment.snapshot().digest()
	if err != nil {
		return err
	}
	training, samples, err := config.Training()
	if err != nil {
		return err
	}
	fmt.Printf("training is complete; now its %d steps without any disturbance, in one process\n", training.Steps)
	undisturbed, _, err := oracle.Run(training, samples, nil)
	if err != nil {
		return err
	}
	fmt.Printf("model digest  %s\noracle digest %s\n", digest, undisturbed)
	if digest != undisturbed {
		return errors.New("the model's digest is not the oracle's")
	}
	return deployment.check()
}
