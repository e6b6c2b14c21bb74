package agent_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent"
)

// A training loop takes its orders from Boundary, trains the step that they say, and tells how it went. The state and the function
// that trains one step are the trainer's own. A name that cannot stand in a subject is refused before anything is asked for.
func ExampleJoin() {
	loop := func(ctx context.Context, node string, job events.Job, state agent.State,
		train func(context.Context, *events.Plan) (seconds, loss float64, err error),
	) error {
		session, err := agent.Join(ctx, agent.Config{
			NATSURL: "nats://127.0.0.1:4222", Cluster: "opticks", Node: node, Address: "10.0.0.1:7000", MemoryBytes: 8 << 30, Job: job,
		})
		if err != nil {
			return err
		}
		defer session.Close()
		for done := uint64(0); ; {
			orders, err := session.Boundary(ctx, done, state)
			if errors.Is(err, agent.ErrLeft) || errors.Is(err, agent.ErrComplete) {
				return nil
			}
			if err != nil {
				return err
			}
			if orders.Switched {
				done = orders.Plan.ResumeStep // at which the state was adopted
			}
			seconds, loss, err := train(orders.Step, orders.Plan)
			switch {
			case err == nil:
				done++
				session.Report(done, seconds, loss)
			case orders.Step.Err() == nil: // or the step was to be given up
				session.Broken(err.Error())
			}
		}
	}
	fmt.Println(loop(context.Background(), "the first", events.Job{}, nil, nil))
	// Output:
	// agent: node "the first": expected 1 to 64 characters of A-Z a-z 0-9 - _
}
