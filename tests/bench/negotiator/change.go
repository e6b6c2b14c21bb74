package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reknit/reknit/events"
)

// change is a kind of change, with what the protocol cannot do without: messages of which each waits for the one
// before, and rounds in which every member answers.
type change struct {
	name         string
	hops, rounds int
	make         func(*fleet) (request events.Event, by *trainer, done func(*events.Plan) bool)
	calm         time.Duration // before it, in which nothing changes
}

// calmTime is long enough for the planner to answer the loss of any of a hundred nodes ahead: it begins after a second.
const calmTime = 3 * time.Second

// changes are the kinds, in an order after which a cluster has as many nodes as before. The request, the opening, the two
// questions with their answers, preparation, schedule, offers, receipts, completion and commitment are 12 hops; where no
// unit moves there are 8, and a step that is given up needs no preparation. A kill is told by the agent, and then by the
// monitor.
var changes = []change{
	{"join", 12, 2, join, 0},
	{"leave", 12, 2, leave, 0},
	{"disconnect", 8, 2, disconnect, 0},
	{"connect", 8, 2, connect, 0},
	{"kill", 12, 1, kill, 0},
	{"join", 12, 2, join, 0},
	{"kill after calm", 12, 1, kill, calmTime},
	{"join", 12, 2, join, 0},
}

// joins is how many of them are joins.
const joins = 3

func join(f *fleet) (events.Event, *trainer, func(*events.Plan) bool) {
	t := f.create()
	return t.join(f.nodes), t, func(plan *events.Plan) bool { return t.named(plan.Nodes) }
}

func leave(f *fleet) (events.Event, *trainer, func(*events.Plan) bool) {
	placed := f.placed()
	t := placed[len(placed)/2]
	return t.leave(), t, func(plan *events.Plan) bool { return !t.named(plan.Nodes) }
}

func kill(f *fleet) (events.Event, *trainer, func(*events.Plan) bool) {
	placed := f.placed()
	t := placed[len(placed)/3]
	f.remove(t)
	return t.die(f.plan.Generation), t, func(plan *events.Plan) bool { return !t.named(plan.Nodes) }
}

func disconnect(f *fleet) (events.Event, *trainer, func(*events.Plan) bool) {
	return f.link(events.DisconnectRequested)
}

func connect(f *fleet) (events.Event, *trainer, func(*events.Plan) bool) {
	return f.link(events.ConnectRequested)
}

// link asks about the link between the first and the last node that train.
func (f *fleet) link(kind events.Kind) (events.Event, *trainer, func(*events.Plan) bool) {
	placed := f.placed()
	a, b := placed[0], placed[len(placed)-1]
	request := a.speaker.First(time.Now(), fmt.Sprint(f.plan.Generation), kind, a.name,
		&events.LinkRequest{From: a.name, To: b.name})
	return request, a, func(*events.Plan) bool { return true }
}

// commitTime is how long a commit is waited for.
const commitTime = 90 * time.Second

var errNoCommit = errors.New("no plan was committed in time")

// commit waits for a plan that does what was asked for, and returns when it was heard.
func (f *fleet) commit(ctx context.Context, done func(*events.Plan) bool) (time.Time, error) {
	limit := time.After(commitTime)
	for {
		select {
		case heard := <-f.plans:
			if done(heard.plan) {
				return heard.at, nil
			}
		case <-limit:
			return time.Time{}, errNoCommit
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

// form starts the first nodes at once and waits for a plan of all.
func (f *fleet) form(ctx context.Context, nodes int) (time.Duration, error) {
	began := time.Now()
	var said []saying
	for range nodes {
		t := f.create()
		said = append(said, saying{t, t.join(f.nodes)})
	}
	f.say(said)
	at, err := f.commit(ctx, func(plan *events.Plan) bool { return len(plan.Nodes) == nodes })
	return at.Sub(began), err
}

// play makes a change and returns the time from its request to the plan.
func (f *fleet) play(ctx context.Context, change change) (time.Duration, error) {
	request, by, done := change.make(f)
	for len(f.plans) > 0 {
		<-f.plans
	}
	began := time.Now()
	if _, err := by.bus.Publish(ctx, request); err != nil {
		return 0, err
	}
	at, err := f.commit(ctx, done)
	if change.name == "leave" {
		f.remove(by)
	}
	return at.Sub(began), err
}
