package inventory

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/processes"
	"github.com/reknit/reknit/shared/bus"
	wires "github.com/reknit/reknit/shared/service"
)

// Service is one of the four.
type Service struct {
	Service  string     `json:"service"`
	Works    bool       `json:"works"` // it answers that it acts for the cluster and gets on
	Instance string     `json:"instance,omitempty"`
	Since    *time.Time `json:"since,omitempty"`   // when this instance took over
	Version  string     `json:"version,omitempty"` // of its build; empty where it does not answer, or is too old to tell
	// Computing is what its machine is at, and since when; empty where it waits, or does not answer.
	Computing string `json:"computing,omitempty"`
}

// Build says of which build a service is.
func (s Service) Build() string {
	switch {
	case s.Version != "":
		return s.Version
	case s.Works:
		return "works, and is of a build before November 2026"
	}
	return "does not answer"
}

// askTimeout is how long a service has to answer that it works.
const askTimeout = time.Second

// mostVersion and mostComputing bound what is believed to be a version, and what a machine is at.
const mostVersion, mostComputing = 128, 256

// Services asks each of the four whether it works, all at a time.
func Services(ctx context.Context, b *bus.Bus) ([]Service, error) {
	all, failed := make([]Service, len(processes.Services)), make([]error, len(processes.Services))
	var asked sync.WaitGroup
	for i, name := range processes.Services {
		asked.Go(func() { all[i], failed[i] = ask(ctx, b, name) })
	}
	asked.Wait()
	return all, errors.Join(failed...)
}

func ask(ctx context.Context, b *bus.Bus, name string) (Service, error) {
	service := Service{Service: name}
	last, found, err := b.LastEvent(ctx, events.EventStream, events.EventSubject(b.Cluster(), events.LeaseTaken, name))
	if err != nil {
		return service, err
	}
	if lease, err := events.Open[events.Lease](last); found && err == nil {
		service.Instance, service.Since = lease.Instance, &last.Logged
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	reply, err := b.Conn().RequestWithContext(ctx, events.LeaseSubject(b.Cluster(), name, b.Identity().Key), nil)
	if service.Works = err == nil; service.Works {
		service.Version = string(reply.Data[:min(len(reply.Data), mostVersion)])
		service.Computing = printable(reply.Header.Get(wires.ComputingHeader))
	}
	if silent := errors.Is(err, nats.ErrNoResponders) || errors.Is(err, context.DeadlineExceeded); silent || err == nil {
		return service, nil
	}
	return service, err
}

// printable is what is believed to be what a machine is at: anybody may answer where no keys are asked for.
func printable(computing string) string {
	return strings.Map(func(letter rune) rune {
		if unicode.IsPrint(letter) && letter != utf8.RuneError {
			return letter
		}
		return -1
	}, computing[:min(len(computing), mostComputing)])
}

func (s Service) says() string {
	switch {
	case s.Works && s.Computing != "":
		return "works, " + s.Computing
	case s.Works && s.Since != nil:
		return "works, since " + s.Since.Local().Format("01-02 15:04:05")
	case s.Works:
		return "works"
	case s.Since != nil:
		return "does not answer; the last one began " + s.Since.Local().Format("01-02 15:04:05")
	}
	return "never ran"
}
