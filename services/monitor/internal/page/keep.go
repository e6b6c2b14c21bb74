package page

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/view"
	"github.com/reknit/reknit/shared/bus"
)

// again is after how long a log that could not be read is tried once more.
const again = time.Second

// keep keeps the view until ctx ends, on one goroutine.
func (p *Page) keep(ctx context.Context, b *bus.Bus) {
	for ctx.Err() == nil {
		heard := make(chan events.Event)
		v, err := follow(ctx, b, heard)
		if err == nil {
			p.look(ctx, v, heard)
			return
		}
		if ctx.Err() == nil {
			slog.WarnContext(ctx, "the page cannot read the log yet", "error", err)
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
		}
	}
}

// look takes what comes, and puts what is to be seen onto the board.
func (p *Page) look(ctx context.Context, v *view.View, heard <-chan events.Event) {
	ticker := time.NewTicker(lookEvery / 8) // the first event of many is shown at once
	defer ticker.Stop()
	looked, figured, isNews := time.Time{}, time.Time{}, true
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-heard:
			v.Take(event)
			isNews = true
		case pulse := <-p.pulses:
			v.Pulse(pulse, time.Now())
		case ask := <-p.asks:
			detail, found := v.Detail(ask.generation, time.Now())
			ask.answer <- answer{detail, found}
		case now := <-ticker.C:
			since := now.Sub(looked)
			if p.server != nil && (isNews && since >= lookEvery || since >= lookAgain) {
				p.board.put(encode(v.Parts(now)))
				looked, isNews = now, false
			}
			if now.Sub(figured) >= lookAgain {
				p.told.put(v.Figures(now))
				figured = now
			}
		}
	}
}

func encode(parts map[string]any) map[string][]byte {
	encoded := make(map[string][]byte, len(parts))
	for key, part := range parts {
		data, err := json.Marshal(part)
		if err != nil {
			slog.Error("a part of the page cannot be written", "part", key, "error", err)
			continue
		}
		encoded[key] = data
	}
	return encoded
}

// follow begins to hear the log from some changes ago on, and the plans from the one in force on. The caller takes what comes.
func follow(ctx context.Context, b *bus.Bus, heard chan<- events.Event) (*view.View, error) {
	if err := b.Provision(ctx); err != nil {
		return nil, err
	}
	hear := func(event events.Event) {
		select {
		case heard <- event:
		case <-ctx.Done():
		}
	}
	committed, after, err := begin(ctx, b)
	if err != nil {
		return nil, err
	}
	v := view.New(b.Cluster(), committed, time.Now())
	last, found, err := b.LastEvent(ctx, events.PlanStream, events.PlanSubject(b.Cluster(), "*"))
	if err != nil {
		return nil, err
	}
	if found {
		v.Take(last)
	}
	var subjects []string
	for _, kind := range view.Kinds() {
		subjects = append(subjects, events.EventSubject(b.Cluster(), kind, "*"))
	}
	plans := []string{events.PlanSubject(b.Cluster(), "*")}
	stop, err := b.Follow(ctx, events.PlanStream, plans, bus.AfterSequence(last.Sequence), hear)
	if err != nil {
		return nil, err
	}
	if _, err := b.Follow(ctx, events.EventStream, subjects, bus.AfterSequence(after), hear); err != nil {
		stop()
		return nil, err
	}
	return v, nil
}

// begin returns the commit behind which the log is to be read, and its place there. The cause of the oldest change shown may have waited
// for the commit before it. So begin goes back one commit more.
func begin(ctx context.Context, b *bus.Bus) (committed, sequence uint64, err error) {
	subject := events.EventSubject(b.Cluster(), events.Committed, "*")
	last, found, err := b.LastEvent(ctx, events.EventStream, subject)
	if err != nil || !found {
		return 0, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	heard := make(chan events.Event)
	stop, err := b.Follow(ctx, events.EventStream, []string{subject}, bus.All, func(event events.Event) {
		select {
		case heard <- event:
		case <-ctx.Done():
		}
	})
	if err != nil {
		return 0, 0, err
	}
	defer stop()
	newest := make([]events.Event, 0, view.MostChanges+2)
	for {
		select {
		case event := <-heard:
			if len(newest) == cap(newest) {
				newest = append(newest[:0], newest[1:]...)
			}
			newest = append(newest, event)
			if event.Sequence < last.Sequence {
				continue
			}
			if len(newest) < cap(newest) {
				return 0, 0, nil
			}
			said, err := events.Open[events.Commitment](newest[0])
			return said.Generation, newest[0].Sequence, err
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		}
	}
}

// readTimeout bounds the search for where to begin.
const readTimeout = time.Minute
