package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/reknit/reknit/tests/observer"
)

// deployment is a running cluster of docker compose.
type deployment struct {
	observer *observer.Observer
	compose  string
}

// container returns the id of a service's container.
func (d *deployment) container(ctx context.Context, service string) (string, error) {
	output, err := exec.CommandContext(ctx, d.compose, "ps", "--quiet", service).Output()
	id := strings.TrimSpace(string(output))
	if err == nil && id == "" {
		err = errors.New("expected a container, found none")
	}
	return id, err
}

// docker does something to a container.
func docker(ctx context.Context, verb, id string) error {
	if output, err := exec.CommandContext(ctx, "docker", verb, id).CombinedOutput(); err != nil {
		return fmt.Errorf("docker %s: %w: %s", verb, err, output)
	}
	return nil
}
