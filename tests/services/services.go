// Package services runs the four services inside a test's process, on a NATS server that the test started.
package services

import (
	"context"
	"maps"
	"strconv"
	"sync"
	"testing"

	"github.com/caarlos0/env/v11"

	"github.com/reknit/reknit/services/monitor"
	"github.com/reknit/reknit/services/negotiator"
	"github.com/reknit/reknit/services/planner"
	"github.com/reknit/reknit/services/restorer"
	"github.com/reknit/reknit/shared/bus"
)

// Provision makes the streams and buckets, so that a test can listen before the services speak.
func Provision(t *testing.T, url, cluster string) {
	t.Helper()
	b, err := bus.Connect(t.Context(), bus.Config{URL: url, Name: "test", Cluster: cluster})
	if err == nil {
		defer b.Close()
		err = b.Provision(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Run runs the services until the test ends. The first plan waits for so many nodes. A service that ends by itself
// fails the test.
func Run(t *testing.T, url, cluster string, startNodes int) {
	RunWith(t, url, cluster, startNodes, func(string) map[string]string { return nil })
}

// RunWith gives each service settings beside those.
func RunWith(t *testing.T, url, cluster string, startNodes int, more func(service string) map[string]string) {
	settings := func(service string) map[string]string {
		all := map[string]string{
			"REKNIT_NATS_URL": url, "REKNIT_CLUSTER": cluster, "REKNIT_START_NODES": strconv.Itoa(startNodes),
		}
		maps.Copy(all, more(service))
		return all
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { run(t, ctx, settings("monitor"), monitor.Run) })
	running.Go(func() { run(t, ctx, settings("negotiator"), negotiator.Run) })
	running.Go(func() { run(t, ctx, settings("planner"), planner.Run) })
	running.Go(func() { run(t, ctx, settings("restorer"), restorer.Run) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

func run[C any](t *testing.T, ctx context.Context, settings map[string]string, service func(context.Context, C) error) {
	var config C
	if err := env.ParseWithOptions(&config, env.Options{Environment: settings}); err != nil {
		t.Error(err)
		return
	}
	if err := service(ctx, config); err != nil || ctx.Err() == nil {
		t.Errorf("a service ended: %v", err)
	}
}
