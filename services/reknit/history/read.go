package history

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/shared/bus"
)

// commit is where in the log a generation was committed.
type commit struct{ generation, sequence uint64 }

// commits lists those that the log holds, the oldest first.
func commits(ctx context.Context, b *bus.Bus) (all []commit, err error) {
	err = connect.Read(ctx, b, []events.Kind{events.Committed}, connect.Span{}, func(event events.Event) {
		if said, err := events.Open[events.Commitment](event); err == nil {
			all = append(all, commit{said.Generation, event.Sequence})
		}
	})
	return all, err
}

// Last returns the last changes that were committed, at most so many, and those that are not yet.
func Last(ctx context.Context, b *bus.Bus, most int) ([]changes.Change, error) {
	last, _, err := lastOf(ctx, b, most)
	return last, err
}

// lastOf returns the last changes, and the stops and resets since the first of them.
func lastOf(ctx context.Context, b *bus.Bus, most int) ([]changes.Change, []changes.Halt, error) {
	all, err := commits(ctx, b)
	if err != nil {
		return nil, nil, err
	}
	newest := all[max(0, len(all)-most):]
	from := uint64(0)
	if len(newest) < len(all) {
		from = all[len(all)-most-1].generation + 1
	}
	record, err := read(ctx, b, spanOf(all, from, 0))
	if err != nil {
		return nil, nil, err
	}
	return record.Since(from, time.Now()), record.Halts(from), nil
}

// Of returns the change that led to a generation.
func Of(ctx context.Context, b *bus.Bus, generation uint64) (changes.Change, error) {
	all, err := commits(ctx, b)
	if err != nil {
		return changes.Change{}, err
	}
	record, err := read(ctx, b, spanOf(all, generation, generation+1))
	if err != nil {
		return changes.Change{}, err
	}
	found := record.Since(generation, time.Now())
	at := slices.IndexFunc(found, func(c changes.Change) bool { return c.Generation == generation })
	if at >= 0 {
		return found[at], nil
	}
	if len(all) == 0 {
		return changes.Change{}, fmt.Errorf("generation %d: no generation was committed in what the log holds", generation)
	}
	return changes.Change{}, fmt.Errorf("generation %d: expected %d to %d, or the next: events are kept for %v", generation,
		all[0].generation, all[len(all)-1].generation, events.EventAge)
}

// spanOf returns the part of the log that tells of the generations from one on, until another is committed. It begins a
// generation earlier: what brought a change about may have waited for the commit before.
func spanOf(all []commit, from, until uint64) (span connect.Span) {
	for _, commit := range all {
		if commit.generation+2 <= from {
			span.After = commit.sequence
		}
		if commit.generation == until {
			span.Until = commit.sequence
		}
	}
	return span
}

// read returns what a part of the log tells.
func read(ctx context.Context, b *bus.Bus, span connect.Span) (*changes.Record, error) {
	record := changes.NewRecord(0)
	return record, connect.Read(ctx, b, changes.Kinds(), span, record.Take)
}
