package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/caarlos0/env/v11"
	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/services/monitor"
	"github.com/reknit/reknit/services/negotiator"
	"github.com/reknit/reknit/services/planner"
	"github.com/reknit/reknit/services/restorer"
	"github.com/reknit/reknit/services/trainer"
	"github.com/reknit/reknit/shared/embedded"
	"github.com/reknit/reknit/tests/nodes"
)

// node is a process of the cluster: the hub with NATS and the services, or a trainer.
type node struct {
	ctx context.Context // of the process
	log log             // that the hub hears
}

// serveNode is the main function of a node.
func serveNode(string) error {
	slog.SetLogLoggerLevel(slog.LevelWarn)
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM) // meant for the bench, which ends us
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	return nodes.Serve(&node{ctx: ctx}, cancel)
}

const hubPort = 4222

// Govern runs NATS and the services, which are configured by an environment.
func (n *node) Govern(environment map[string]string, _ *struct{}) error {
	server, err := embedded.Start(embedded.Config{StoreDir: filepath.Join(filesDir, "nats"), Host: "0.0.0.0",
		Port: hubPort})
	if err != nil {
		return err
	}
	environment["REKNIT_NATS_URL"] = fmt.Sprintf("nats://127.0.0.1:%d", hubPort)
	if err := n.log.listen(n.ctx, environment["REKNIT_NATS_URL"]); err != nil {
		return err
	}
	var services errgroup.Group
	for _, run := range []func() error{
		configured(n.ctx, environment, monitor.Run), configured(n.ctx, environment, negotiator.Run),
		configured(n.ctx, environment, planner.Run), configured(n.ctx, environment, restorer.Run),
	} {
		services.Go(run)
	}
	go func() {
		end("the hub", services.Wait())
		server.Shutdown()
	}()
	return nil
}

// configured is a service, or a trainer, that reads an environment.
func configured[C any](
	ctx context.Context, environment map[string]string, run func(context.Context, C) error,
) func() error {
	return func() error {
		var config C
		if err := env.ParseWithOptions(&config, env.Options{Environment: environment}); err != nil {
			return err
		}
		return run(ctx, config)
	}
}

// end says why a part of this process ended.
func end(name string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	}
}

// niceness lets the hub and the links run first, where trainers compute on all cores: theirs would be elsewhere.
const niceness = 5

// Train runs a trainer.
func (n *node) Train(environment map[string]string, _ *struct{}) error {
	if err := syscall.Setpgid(0, 0); err != nil {
		return err
	}
	if err := syscall.Setpriority(syscall.PRIO_PGRP, 0, niceness); err != nil { // of all threads
		return err
	}
	train := configured(n.ctx, environment, trainer.Run)
	go func() { end(environment["REKNIT_TRAINER_NODE"], train()) }()
	return nil
}

// Heard answers with what the hub heard, from some line on.
func (n *node) Heard(from int, heard *[]Line) (err error) {
	*heard, err = n.log.from(from)
	return err
}
