package history

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

const watchHelp = `Shows changes as they happen, from the events of the log: each phase as it ends, and the bytes that were received of those
that are to move. It begins with what is under way, and ends when it is interrupted.`

// News is a moment of a change.
type News struct {
	At         time.Time `json:"at"` // by the log's clock
	Generation uint64    `json:"generation"`
	Says       string    `json:"says"`
	Seconds    float64   `json:"seconds"`         // since the negotiation was opened
	BytesMoved int64     `json:"bytesMoved"`      // received and verified so far
	Bytes      int64     `json:"bytes"`           // that are to move
	Kind       string    `json:"kind"`            // of the event that brings it
	Source     string    `json:"source"`          // who said that
	Ended      bool      `json:"ended,omitempty"` // all trainers work under the plan, or there will be none

	Names map[string]string `json:"names,omitempty"` // what people call the nodes of which it says something, by id, where ids are keys
}

// WatchCommand is `reknit watch`.
func WatchCommand() *cobra.Command {
	var o options
	command := tell.Command(&cobra.Command{
		Use: "watch", Short: "show changes as they happen: phases and bytes moved", Long: watchHelp,
		RunE: func(c *cobra.Command, _ []string) error {
			b, err := o.live.Open(c.Context())
			if err != nil {
				return err
			}
			defer b.Close()
			names, err := connect.Names(c.Context(), b)
			if err != nil {
				return err
			}
			tell, calm := Teller(c.OutOrStdout(), names, o.json), !o.json
			begin := func(generation uint64) error {
				if !calm {
					return nil
				}
				rest, err := connect.Resting(c.Context(), b)
				fmt.Fprintf(c.OutOrStdout(), "watching %s, generation %d; %s\n", b.Cluster(), generation,
					cmp.Or(names.Shown(rest.String()), "nothing is under way"))
				return err
			}
			return Watch(c.Context(), b, begin, func(news News, event events.Event) (enough bool) {
				calm = false
				names.Take(event)
				tell(news)
				return false
			})
		},
	})
	o.live.Add(command.Flags())
	command.Flags().BoolVar(&o.json, "json", false, "print a JSON document a line")
	return command
}

// Teller returns what writes news as a program wants them, or a person, who wants names.
func Teller(w io.Writer, names *overlay.Names, asJSON bool) func(News) {
	if asJSON {
		encoder := json.NewEncoder(w)
		return func(news News) {
			news.Names = names.In(news)
			_ = encoder.Encode(news) // who no longer reads ends the command by a signal
		}
	}
	write := lines(w)
	return func(news News) {
		news.Says = names.Shown(news.Says)
		write(news)
	}
}

// lines returns what writes news as lines; on a terminal with a bar under them while bytes move.
func lines(w io.Writer) func(News) {
	var bar *progressbar.ProgressBar
	terminal := tell.Terminal(w)
	return func(news News) {
		if bar != nil {
			bar.Clear()
			bar = nil
		}
		fmt.Fprintf(w, "%s  generation %d  %s\n", news.At.Local().Format("15:04:05.000"), news.Generation, news.Says)
		if moves := news.Bytes > 0 && news.BytesMoved < news.Bytes; terminal != nil && moves && !news.Ended {
			bar = progressbar.NewOptions64(news.Bytes, progressbar.OptionSetWriter(terminal), progressbar.OptionSetWidth(30),
				progressbar.OptionShowBytes(true), progressbar.OptionSetDescription("moving"))
			bar.Set64(news.BytesMoved)
		}
	}
}

// Watch tells the news of a cluster, with the events that bring them, until hear has heard enough, or ctx ends. It calls
// begin with the generation in force, once nothing that is said from then on would be missed. News of what was under way before have
// no event.
func Watch(ctx context.Context, b *bus.Bus, begin func(generation uint64) error, hear func(News, events.Event) (enough bool)) error {
	all, err := commits(ctx, b)
	if err != nil {
		return err
	}
	committed, last := uint64(0), uint64(0)
	if len(all) > 0 {
		committed = all[len(all)-1].generation
	}
	record := changes.NewRecord(committed)
	err = connect.Read(ctx, b, changes.Kinds(), spanOf(all, committed+1, 0), func(event events.Event) {
		record.Take(event)
		last = event.Sequence
	})
	if err != nil {
		return err
	}
	for _, change := range record.Changes(time.Now()) {
		news := News{At: time.Now(), Generation: change.Generation}
		switch {
		case change.State == changes.Negotiating:
			now := change.Attempts[len(change.Attempts)-1]
			news.Seconds, news.Says = now.Seconds, fmt.Sprintf("%s: %s, waiting for %s", change.What(), now.Phase, some(now.Awaits))
		case change.Held != nil:
			news.Says = "the cluster holds: " + change.Held.Reason
		default:
			continue
		}
		hear(news, events.Event{})
	}
	if err := begin(record.Committed()); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	_, err = b.Follow(ctx, events.EventStream, subjects(b), bus.AfterSequence(last), func(event events.Event) {
		event = connect.InLines(event)
		record.Take(event)
		if news, is := newsOf(record, event); is && ctx.Err() == nil && hear(news, event) {
			stop()
		}
	})
	if err != nil && ctx.Err() == nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func subjects(b *bus.Bus) (all []string) {
	for _, kind := range append(changes.Kinds(), events.StepDelayed) {
		all = append(all, events.AllOf(b.Cluster(), kind, b.Secured())...)
	}
	return all
}

// newsOf returns what an event that was taken says to a person; is tells whether it says anything. Events that each node says for itself
// are told once the last node has said its own.
func newsOf(record *changes.Record, event events.Event) (news News, is bool) {
	news = News{At: event.Logged, Kind: string(event.Kind), Source: event.Source, Generation: record.Committed() + 1}
	if event.Kind == events.PlanActivated {
		return worked(record, news, event)
	}
	change, attempt, found := record.About(event, event.Logged)
	if !found {
		news.Says = aside(event)
		return news, news.Says != ""
	}
	news.Generation, news.Seconds = change.Generation, since(attempt.Opened, event.Logged)
	news.Bytes, news.BytesMoved = change.BytesMoved, received(change)
	news.Ended = event.Kind == events.Aborted && !attempt.Superseded
	news.Says = says(change, attempt, event)
	return news, news.Says != ""
}

func since(from, to time.Time) float64 { return max(0, to.Sub(from).Seconds()) }

// worked is the news once all trainers of a plan completed a step.
func worked(record *changes.Record, news News, event events.Event) (News, bool) {
	activation, err := events.Open[events.Activation](event)
	if err != nil {
		return news, false
	}
	all := record.Since(activation.Generation, event.Logged)
	if len(all) == 0 || all[0].State != changes.Working || len(all[0].Attempts) == 0 {
		return news, false
	}
	change := all[0]
	news.Generation, news.Seconds, news.Ended = change.Generation, change.TotalSeconds, true
	news.Bytes, news.BytesMoved = change.BytesMoved, change.BytesMoved
	news.Says = fmt.Sprintf("all trainers work under it, %s after it began; they stood still for %s at most",
		tell.Seconds(change.TotalSeconds), tell.Seconds(change.StallSeconds))
	return news, true
}

// received sums what nodes verified.
func received(change changes.Change) (bytes int64) {
	for _, receipt := range change.Receipts {
		for _, unit := range receipt.Units {
			bytes += unit.Bytes
		}
	}
	return bytes
}

// says tells what an event that was taken changes in a negotiation; empty for what only others wait for.
func says(change changes.Change, attempt changes.Attempt, event events.Event) string {
	switch event.Kind {
	case events.NegotiationOpened:
		return "begins: " + change.What()
	case events.Consented:
		if attempt.Phase != changes.Consenting || len(attempt.Awaits) == 0 {
			return fmt.Sprintf("all %d consented", attempt.Members)
		}
	case events.ConsentDelayed, events.PlanRefused, events.RestorationRefused, events.RestorationFailed:
		return reasonOf(event)
	case events.RestorationPlanned:
		return fmt.Sprintf("planned: %s by %s, %s to move to %s", tell.Folded(change.Shape), change.Policy, tell.Bytes(change.BytesMoved),
			tell.Count(len(change.Fetches), "node", "nodes"))
	case events.Promised:
		if attempt.Phase == changes.Promising && len(attempt.Awaits) == 0 {
			return "all promised at which step they stop"
		}
	case events.ShardReceived:
		return fmt.Sprintf("%s has its layers: %s of %s", event.Subject, tell.Bytes(received(change)), tell.Bytes(change.BytesMoved))
	case events.Committed:
		return "committed"
	case events.Aborted:
		return "aborted: " + attempt.Ended
	case events.SnapshotRequested:
		asked, err := events.Open[events.SnapshotRequest](event)
		switch {
		case err == nil && asked.Unchanged:
			return "all agents end their scripts, which have 30 s to write their own checkpoints"
		case err == nil:
			return fmt.Sprintf("all stop after step %d, and write a snapshot of it", asked.Step)
		}
	case events.NegotiationOverdue:
		return fmt.Sprintf("%s takes long: waiting for %s", attempt.Phase, some(attempt.Awaits))
	}
	return ""
}

// aside says what an event outside of negotiations brings.
func aside(event events.Event) string {
	switch event.Kind {
	case events.NodeLost, events.LinkLost, events.LinkRestored, events.StepBroken, events.StepDelayed, events.ReplicaDiverged,
		events.JoinRequested, events.LeaveRequested, events.ConnectRequested, events.DisconnectRequested,
		events.LogAccepted:
		return reasonOf(event)
	case events.TrainingCompleted:
		if end := changes.EndOf(event); end != nil {
			return "the job is complete: " + end.String()
		}
	case events.TrainingStopped:
		if stop := changes.StopOf(event); stop != nil {
			return "training has " + stop.String()
		}
	case events.TrainingReset:
		return "training begins anew: " + reasonOf(event)
	case events.StopRequested, events.StopRefused, events.ResetRequested, events.ResetRefused,
		events.ReleaseRequested, events.ReleaseRefused:
		return reasonOf(event)
	case events.StepReleased:
		if release, err := events.Open[events.Release](event); err == nil {
			return release.String()
		}
	case events.ClusterHeld:
		return "the cluster holds: " + reason(event)
	case events.MembershipRefused:
		return reasonOf(event)
	}
	return ""
}

// reasonOf says the kind of an event, of whom it tells, and its reason where it has one.
func reasonOf(event events.Event) string {
	says := string(event.Kind) + " of " + event.Subject
	if reason := reason(event); reason != "" {
		says += ": " + reason
	}
	return says
}

func reason(event events.Event) string {
	var payload struct {
		Reason string `json:"reason"`
	}
	if json.Unmarshal(event.Data, &payload) != nil {
		return ""
	}
	return payload.Reason
}
