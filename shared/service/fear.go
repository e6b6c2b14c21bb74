package service

import (
	"context"
	"fmt"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// mostDeaths is how many instances in a row may end at one message: while they open it, or while the machine has it.
const mostDeaths = 2

// A panic can be caught, but not a lack of memory or of stack.
var (
	errDeadly   = fmt.Errorf("%d instances in a row died while the machine handled it", mostDeaths)
	errUnopened = fmt.Errorf("%d instances in a row died while they opened it", mostDeaths)
)

// opener opens a message, as bus.Sealed.Open does.
type opener func(sealed bus.Sealed, ctx context.Context, arrived func()) (bus.Delivery, error)

var openSealed opener = bus.Sealed.Open

// doubts tells messages that an instance before had and was not done with, at any of which it may have ended. The next has them one at a
// time, so that it is known at which one that ends.
func (r *runner) doubts() func(bus.Sealed) bool {
	said, heard := r.said, r.memory.Heard
	return func(sealed bus.Sealed) bool { return sealed.Sequence() > said && sealed.Sequence() <= heard }
}

// mayHaveKilled reports whether an instance before ended while it had a message: it was delivered to it, and is the first with which
// it was not done.
func (r *runner) mayHaveKilled(sequence uint64) bool {
	return sequence <= r.memory.Heard && r.recent.last.Sequence <= r.said
}

// openDoubtful opens a message that an instance before had. The end of that instance is the first sign that the message is deadly: from
// then on the memory tells how many instances have opened it in vain. An instance that ends while it waits for the bytes of a message does
// not end of that.
func (r *runner) openDoubtful(ctx context.Context, sealed bus.Sealed) (bus.Delivery, error) {
	sequence := sealed.Sequence()
	if !r.mayHaveKilled(sequence) {
		return openSealed(sealed, ctx, nil)
	}
	feared := fears{Unopened: r.memory.known(r.memory.Unopened, sequence), Deaths: r.memory.Deaths}
	if r.memory.Deaths > 0 {
		feared.Unopened = r.memory.Unopened // those before have opened it
	}
	if feared.Unopened >= mostDeaths {
		return sealed.Refuse(ctx, bus.Poison, "%s: %v", r.Name, errUnopened), nil
	}
	feared.Unopened++
	var fearing error
	delivery, err := openSealed(sealed, ctx, func() { fearing = r.memory.fear(ctx, feared) })
	switch {
	case fearing != nil:
		return bus.Delivery{}, fearing
	case err != nil: // it is to end, and does not end of the message
		feared.Unopened--
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer cancel()
		_ = r.memory.fear(ending, feared)
	}
	return delivery, err
}

// attempt asks the machine, and has the memory tell how many instances have handed the event to it in vain.
func (r *runner) attempt(ctx context.Context, event events.Event, feared bool) ([]events.Event, error) {
	if !feared {
		return r.ask(ctx, event)
	}
	deaths := r.memory.known(r.memory.Deaths, event.Sequence)
	if deaths >= mostDeaths {
		return nil, errDeadly
	}
	if err := r.memory.fear(ctx, fears{Deaths: deaths + 1}); err != nil {
		return nil, err
	}
	outputs, asking := r.ask(ctx, event)
	if err := r.memory.fear(ctx, fears{}); err != nil {
		return nil, err
	}
	return outputs, asking
}
