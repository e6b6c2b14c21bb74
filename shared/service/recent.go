package service

import (
	"context"
	"fmt"
	"time"

	"github.com/reknit/reknit/events"
)

// The memory is written so long after the first message that it does not know, and after so many or so many bytes of
// them at most: the next instance hears as much again. A change of 1,000 nodes is 2,000 messages to the negotiator: every
// 256 of them it cost half of its processor time.
var (
	rememberAfter   = time.Second
	mostRecent      = 4096
	mostRecentBytes = 16 << 20
)

// recent is what was handled since the memory was written. With it the machine goes on after a panic.
type recent struct {
	last     position
	events   []events.Event
	messages int
	bytes    int              // of their payloads
	due      <-chan time.Time // when the memory is to be written; nil while it knows all
}

// note keeps a message that was handled. One that the machine could not bear has left no trace in it.
func (r *recent) note(event events.Event, borne bool) {
	r.last = position{event.Sequence, event.ID}
	r.messages++
	r.bytes += len(event.Data)
	if borne {
		r.events = append(r.events, event)
	}
	if r.due == nil {
		r.due = time.After(rememberAfter)
	}
}

// remember writes the machine's memory.
func (r *runner) remember(ctx context.Context) error {
	said := r.said
	if said <= r.recent.last.Sequence {
		said = 0
	}
	if err := r.memory.remember(ctx, r.Machine, r.recent.last, said); err != nil {
		return err
	}
	r.recent = recent{last: r.recent.last}
	return nil
}

// goBack makes the machine what it was before the call at which it panicked.
func (r *runner) goBack() (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the machine panicked again: %v", cause)
		}
	}()
	if err := r.Machine.Restore(r.memory.Machine); err != nil {
		return err
	}
	for _, event := range r.recent.events {
		_, _ = r.Machine.Handle(event) // its outputs are said, or never will be
	}
	return nil
}
