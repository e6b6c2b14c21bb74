package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/service"
	"github.com/reknit/reknit/tests/invariants"
)

// deployment is a running cluster, seen from outside.
type deployment struct {
	compose string
	bus     *bus.Bus

	mutex   sync.Mutex
	scene   scene
	lines   bytes.Buffer  // the log, as package invariants reads it
	news    chan struct{} // closed when something is heard
	failure error
}

// listen connects and hears the log from its beginning.
func listen(ctx context.Context, config service.Common, compose string) (*deployment, error) {
	connection, err := bus.Connect(ctx, bus.Config{URL: config.URL, Name: "test-compose", Cluster: config.Cluster})
	if err != nil {
		return nil, err
	}
	d := &deployment{compose: compose, bus: connection, scene: newScene(), news: make(chan struct{})}
	for _, stream := range []events.Stream{events.EventStream, events.PlanStream} {
		hear := func(event events.Event) { d.hear(stream, event) }
		if _, err := connection.Follow(ctx, stream, stream.Subjects, bus.All, hear); err != nil {
			return nil, err
		}
	}
	_, err = connection.Conn().Subscribe(events.PulseSubject(config.Cluster, "*"), d.pulse)
	return d, err
}

func (d *deployment) pulse(message *nats.Msg) {
	var pulse events.Pulse
	if json.Unmarshal(message.Data, &pulse) != nil {
		return // the monitor judges heartbeats
	}
	d.tell(func() error {
		d.scene.steps = max(d.scene.steps, pulse.Step)
		return nil
	})
}

func (d *deployment) hear(stream events.Stream, event events.Event) {
	d.tell(func() error { return errors.Join(d.record(stream, event), d.scene.take(event)) })
}

// tell changes what is known, and wakes who waits for it.
func (d *deployment) tell(change func() error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.failure = errors.Join(d.failure, change())
	close(d.news)
	d.news = make(chan struct{})
}

func (d *deployment) record(stream events.Stream, event events.Event) error {
	envelope, err := bus.Encode(event)
	if err != nil {
		return err
	}
	return json.NewEncoder(&d.lines).Encode(map[string]any{
		"stream": stream.Name, "sequence": event.Sequence, "logged": event.Logged, "subject": event.SubjectName(),
		"event": json.RawMessage(envelope),
	})
}

func (d *deployment) snapshot() scene {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.scene.clone()
}

// wait returns nil when the scene shows what is waited for.
func (d *deployment) wait(ctx context.Context, limit time.Duration, what string, shows func(scene) bool) error {
	timeout := time.After(limit)
	for {
		d.mutex.Lock()
		news, shown, failure := d.news, shows(d.scene), d.failure
		d.mutex.Unlock()
		if shown || failure != nil {
			return failure
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		case <-timeout:
			return fmt.Errorf("expected %s within %v", what, limit)
		}
	}
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

// check holds the log against the invariants.
func (d *deployment) check() error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	log, err := invariants.Read(bytes.NewReader(d.lines.Bytes()))
	if err != nil {
		return err
	}
	var violations []error
	for _, violation := range log.Check() {
		violations = append(violations, errors.New(violation.String()))
	}
	fmt.Printf("%d events and %d plans, %d violations of an invariant\n", len(log.Events), len(log.Plans), len(violations))
	return errors.Join(violations...)
}
