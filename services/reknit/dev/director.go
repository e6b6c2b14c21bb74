package dev

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/processes"
)

// director plays a script on a running cluster.
type director struct {
	cluster *cluster
	story   *story
	screen  *screen
	random  *rand.Rand // of the choices that "any" leaves
	joined  int        // trainers that ever were; the next one to join under "any" takes the next number
}

// play does the actions in their order. It returns when the last one is done, healed or not.
func (d *director) play(ctx context.Context, actions []Action) error {
	for _, action := range actions {
		if err := d.await(ctx, action); err != nil {
			return fmt.Errorf("script line %d, %s: %w", action.Line, action, err)
		}
		names, err := d.choose(ctx, action)
		if err == nil {
			err = d.act(ctx, action, names)
		}
		if err != nil {
			return fmt.Errorf("script line %d, %s: %w", action.Line, action, err)
		}
	}
	return nil
}

// await waits until an action is due.
func (d *director) await(ctx context.Context, action Action) error {
	if action.AtStep == 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(action.After):
			return nil
		}
	}
	return d.story.wait(ctx, func(s *story) bool { return s.step() >= action.AtStep && len(s.open()) == 0 })
}

// choose turns "any" into names. A kill waits until there is a trainer that the layers can spare.
func (d *director) choose(ctx context.Context, action Action) ([]string, error) {
	if !slices.Equal(action.Names, []string{Any}) {
		return action.Names, nil
	}
	trainers := func() []string { return d.cluster.processes.Running(processes.Trainer) }
	var candidates [][]string
	switch action.Verb {
	case "join":
		return []string{fmt.Sprintf("n%d", d.joined+1)}, nil
	case "kill":
		err := d.story.wait(ctx, func(s *story) bool {
			candidates = alone(s.safeVictims(trainers()))
			return len(candidates) > 0
		})
		if err != nil {
			return nil, err
		}
	case "leave":
		candidates = alone(d.story.members(trainers()))
	default:
		candidates = d.story.links(trainers(), action.Verb == "connect")
	}
	if len(candidates) == 0 {
		return nil, fmt.Errorf("expected something to choose, but of the trainers %v there is none that fits", trainers())
	}
	return candidates[d.random.IntN(len(candidates))], nil
}

func alone(names []string) [][]string {
	var list [][]string
	for _, name := range names {
		list = append(list, []string{name})
	}
	return list
}

// act does an action and notes the moment.
func (d *director) act(ctx context.Context, action Action, names []string) error {
	change := d.story.begin(action, names)
	d.screen.acted(change)
	running := d.cluster.processes
	switch action.Verb {
	case "kill":
		return running.Kill(names[0])
	case "join":
		d.joined++
		return d.cluster.startTrainer(names[0])
	case "leave":
		return running.Signal(names[0], syscall.SIGTERM) // the trainer asks to leave, and goes when it may
	case "connect":
		return d.ask(ctx, change, events.ConnectRequested, names)
	case "disconnect":
		return d.ask(ctx, change, events.DisconnectRequested, names)
	}
	return nil
}

// ask says a link request as any user of the public subjects would.
func (d *director) ask(ctx context.Context, change *Change, kind events.Kind, names []string) error {
	speaker := events.Speaker{Source: "/user", Cluster: d.cluster.options.Cluster}
	reason := fmt.Sprint(change.done.UnixNano())
	_, err := d.cluster.bus.Publish(ctx, speaker.First(change.done, reason, kind, names[0],
		&events.LinkRequest{From: names[0], To: names[1]}))
	return err
}
