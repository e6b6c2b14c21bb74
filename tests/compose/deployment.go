package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/tests/observer"
)

// trainers are the services whose share of a core deploy/test.env bounds.
var trainers = []string{"n1", "n2", "n3", "n4", "n5", "n6"}

// deployment is a running cluster of docker compose.
type deployment struct {
	observer *observer.Observer
	bus      *bus.Bus
	compose  string
	secret   string // folder of kits; empty where nothing is secured
}

// containers returns the ids of a service's containers.
func (d *deployment) containers(ctx context.Context, service string) ([]string, error) {
	output, err := exec.CommandContext(ctx, d.compose, "ps", "--quiet", service).Output()
	ids := strings.Fields(string(output))
	if err == nil && len(ids) == 0 {
		err = errors.New("expected a container, found none")
	}
	return ids, err
}

// acting returns the container of a service that works: where there are two, the other stands by, and is not ready.
func (d *deployment) acting(ctx context.Context, service string) (id string, err error) {
	ids, err := d.containers(ctx, service)
	if err != nil || len(ids) == 1 {
		return strings.Join(ids, ""), err
	}
	err = until(ctx, "a copy that acts", func() bool {
		for _, id = range ids {
			if docker(ctx, "exec", id, "/reknit", "healthcheck") == nil {
				return true
			}
		}
		return false
	})
	return id, err
}

// leader returns the name of the server that leads the log, which is that of its container.
func (d *deployment) leader(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	stream, err := d.bus.JetStream().Stream(ctx, d.bus.Lane(events.EventStream.Name))
	if err != nil {
		return "", err
	}
	cluster := stream.CachedInfo().Cluster
	if cluster == nil || cluster.Leader == "" || len(cluster.Replicas) != 2 {
		return "", fmt.Errorf("expected the log on three servers of which one leads, got %+v", cluster)
	}
	return cluster.Leader, nil
}

// node returns the id of a trainer, by the name of its container.
func (d *deployment) node(trainer string) (string, error) {
	if d.secret == "" {
		return trainer, nil
	}
	identity, err := bus.ReadIdentity(filepath.Join(d.secret, "institutions", "local", trainer))
	return identity.Key, err
}

// hurry gives each trainer a core: nothing is left that their training has to outlast.
func (d *deployment) hurry(ctx context.Context) error {
	for _, trainer := range trainers {
		ids, err := d.containers(ctx, trainer)
		if err != nil {
			return err
		}
		if err := docker(ctx, append([]string{"update", "--cpus", "1"}, ids...)...); err != nil {
			return err
		}
	}
	return nil
}

// docker does something to a container.
func docker(ctx context.Context, arguments ...string) error {
	if output, err := exec.CommandContext(ctx, "docker", arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("docker %s: %w: %s", arguments[0], err, output)
	}
	return nil
}

// until asks until something is so.
func until(ctx context.Context, what string, so func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	for !so() {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("expected %s within %v: %w", what, waitLimit, ctx.Err())
		}
	}
	return nil
}
