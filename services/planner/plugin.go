package planner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner/internal/ahead"
	"github.com/reknit/reknit/services/planner/machine"
	"github.com/reknit/reknit/services/planner/policy"
)

// plugins are responders on core NATS that are asked for a plan beside our own search.
type plugins struct {
	conn     *nats.Conn
	cluster  string
	names    []string
	deadline time.Duration
}

func (p plugins) validate() error {
	for i, name := range p.names {
		_, err := policy.Named(name)
		if !events.Token(name) || err == nil || slices.Contains(p.names[:i], name) {
			return fmt.Errorf("REKNIT_POLICY_PLUGINS: expected names of A-Z a-z 0-9 - _, each once, none of a policy of ours, "+
				"got %q", name)
		}
	}
	return nil
}

// ask sends a request to all plug-ins at once and returns how to wait for their replies, in the order of the names.
func (p plugins) ask(request []byte) (replies func() []machine.Reply) {
	ctx, cancel := context.WithTimeout(context.Background(), p.deadline)
	all := make([]machine.Reply, len(p.names))
	var asked sync.WaitGroup
	for i, name := range p.names {
		asked.Go(func() { all[i] = p.askOne(ctx, name, request) })
	}
	return func() []machine.Reply {
		defer cancel()
		asked.Wait()
		return all
	}
}

func (p plugins) askOne(ctx context.Context, name string, request []byte) machine.Reply {
	subject := events.PolicySubject(p.cluster, name)
	message, err := p.conn.RequestWithContext(ctx, subject, request)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return machine.Reply{Plugin: name, Problem: "nobody answers on " + subject}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return machine.Reply{Plugin: name, Problem: fmt.Sprintf("no answer within %s", p.deadline)}
	case err != nil:
		return machine.Reply{Plugin: name, Problem: err.Error()}
	}
	return machine.Reply{Plugin: name, Data: message.Data}
}

// asking gives the machine what was computed ahead and what plug-ins reply. A request that comes again is asked again
// and may have other replies; the stream keeps the words that were said first.
type asking struct {
	*machine.Machine
	cache      *ahead.Cache
	forerunner *ahead.Planner
	plugins    plugins
}

// Handle asks the plug-ins, searches meanwhile unless the answer is there, and weighs what has come within the
// deadline.
func (a asking) Handle(event events.Event) ([]events.Event, error) {
	question, err := a.Hear(event)
	if err != nil {
		return nil, err
	}
	a.forerunner.Asked(event)
	replies := a.plugins.ask(event.Data)
	candidates, known := a.cache.Answer(question.Canonical)
	slog.Debug("plan is asked for", "computedAhead", known)
	found := machine.Found{Candidates: candidates}
	if !known {
		found = a.Search(question)
	}
	said := a.Answer(event, question, found, replies())
	if len(a.plugins.names) > 0 {
		a.plugins.tell(said)
	}
	return said, nil
}

// tell logs what became of each plug-in's plan.
func (p plugins) tell(said []events.Event) {
	for _, answer := range said {
		proposal, err := events.Open[events.Proposal](answer)
		if err != nil || answer.Kind != events.PlanProposed {
			continue
		}
		for _, candidate := range proposal.Plan.Considered {
			if slices.Contains(p.names, candidate.Policy) {
				slog.Info("plug-in answered", "plugin", candidate.Policy, "generation", proposal.Plan.Generation,
					"taken", candidate.Rejected == "", "rejected", candidate.Rejected)
			}
		}
	}
}
