package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/reknit/reknit/services/reknit/processes"
)

// restart is how long a change took that was asked for when a service had just been killed: its supervisor starts it again,
// and it reads its memory and what was said since.
type restart struct {
	service string
	took    time.Duration
}

// restarts kills each service in turn.
func (f *fleet) restarts(ctx context.Context, p *plane) (all []restart, err error) {
	asked := changes[2:4] // disconnect and connect, after which all is as before
	for i, service := range processes.Services {
		if _, err := f.settled(ctx); err != nil {
			return all, err
		}
		if err := p.services.Kill(service); err != nil {
			return all, err
		}
		took, err := f.play(ctx, asked[i%len(asked)])
		if err != nil {
			return all, fmt.Errorf("a change with the %s killed: %w", service, err)
		}
		all = append(all, restart{service, took})
	}
	return all, nil
}

func printRestarts(w io.Writer, results []*result) {
	fmt.Fprintf(w, "\nA change that is asked for when a service was killed:\n\n| nodes |")
	for _, name := range processes.Services {
		fmt.Fprintf(w, " %s |", name)
	}
	fmt.Fprintln(w, "\n|---|---|---|---|---|")
	for _, r := range results {
		fmt.Fprintf(w, "| %d |", r.nodes)
		for _, killed := range r.restarts {
			fmt.Fprintf(w, " %s |", milliseconds(killed.took))
		}
		fmt.Fprintln(w)
	}
}
