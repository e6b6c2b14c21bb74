package local

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// turns pass between an agent and its trainer: the agent gives an order, the trainer does it and comes back with a
// report. The agent's side is one goroutine; the trainer's may be any number of calls, of which one is let in at a
// time.
type turns struct {
	reports chan Report
	ended   context.Context // when there are no more turns; its cause says why
	done    uint64          // completed steps at the start
	owed    bool            // a report on the last order, which the agent did not wait for; the agent's side alone

	mutex   sync.Mutex
	last    Order         // given
	given   chan struct{} // closed when another one is
	came    bool          // the report on the last order
	calling bool          // the trainer waits for an order
}

func newTurns(ended context.Context) *turns {
	return &turns{reports: make(chan Report, 1), given: make(chan struct{}), ended: ended}
}

// errOrder says that a call was not the one expected.
type errOrder struct{ what, fix string }

func (e errOrder) Error() string { return e.what }

// next is the trainer's side: it hands in the report and waits for an order. A trainer that never got the last order,
// because its call broke off, is given it again.
func (t *turns) next(ctx context.Context, report Report) (Order, error) {
	given, err := t.enter(report)
	if err != nil {
		return Order{}, err
	}
	defer func() {
		t.mutex.Lock()
		t.calling = false
		t.mutex.Unlock()
	}()
	select {
	case <-given:
		t.mutex.Lock()
		defer t.mutex.Unlock()
		return t.last, nil
	case <-t.ended.Done():
		return Order{}, context.Cause(t.ended)
	case <-ctx.Done():
		return Order{}, ctx.Err()
	}
}

// enter takes a report. It returns what is closed when there is an order after the one reported on.
func (t *turns) enter(report Report) (given <-chan struct{}, err error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.calling {
		return nil, errOrder{"next is called twice at a time", "call next once, and wait for its answer"}
	}
	if t.last.ID > 0 && report.Order == t.last.ID-1 {
		t.calling = true
		there := make(chan struct{})
		close(there)
		return there, nil
	}
	if err := check(t.last, report, t.done); err != nil {
		return nil, err
	}
	t.calling = true
	if !t.came {
		t.came = true
		t.reports <- report
	}
	return t.given, nil
}

// check compares a report with the order that it is about; before the first, with the steps completed at the start.
func check(order Order, report Report, start uint64) error {
	expected := func(call string) error {
		return errOrder{fmt.Sprintf("next of order %d with done %d", report.Order, report.Done), "call next with " + call}
	}
	if report.Order != order.ID {
		return expected(fmt.Sprintf("order %d, the one under way", order.ID))
	}
	switch order.Order {
	case "":
		if report.Done != start {
			return expected(fmt.Sprintf("done %d: nothing was trained in this session", start))
		}
	case orderStep:
		completed := report.Done == order.Index+1
		if !completed && report.Done != order.Index {
			return expected(fmt.Sprintf("done %d where the step was completed, else %d", order.Index+1, order.Index))
		}
		if completed && (report.Ready || report.Broken != "") {
			return expected("ready and broken only where the step was given up")
		}
	case orderApply, orderGive, orderAdopt:
		if report.Error == "" && report.Done != order.Step {
			return expected(fmt.Sprintf("done %d", order.Step))
		}
	}
	return nil
}

// give gives the trainer an order, once it has reported on the one before, and returns its id.
func (t *turns) give(order Order) (id uint64, err error) {
	if t.owed {
		if _, err := t.report(); err != nil {
			return 0, err
		}
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	order.ID = t.last.ID + 1
	t.last, t.came, t.owed = order, false, true
	close(t.given)
	t.given = make(chan struct{})
	return order.ID, nil
}

// report waits for the report on the last order, until the trainer ends.
func (t *turns) report() (Report, error) {
	select {
	case report := <-t.reports:
		t.owed = false
		return report, nil
	case <-t.ended.Done():
		return Report{}, context.Cause(t.ended)
	}
}

// do has the trainer do an order.
func (t *turns) do(order Order) error {
	if _, err := t.give(order); err != nil {
		return err
	}
	report, err := t.report()
	if err == nil && report.Error != "" {
		err = errors.New(report.Error)
	}
	return err
}

const mostSeconds = 1e9 // more would be no Duration

func seconds(number float64) time.Duration {
	return time.Duration(min(number, mostSeconds) * float64(time.Second))
}
