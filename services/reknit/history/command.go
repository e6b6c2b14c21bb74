// Package history tells what a cluster's log holds of changes, as they happened and as they happen.
package history

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
	"github.com/reknit/reknit/services/reknit/connect"
	"github.com/reknit/reknit/services/reknit/tell"
	"github.com/reknit/reknit/shared/bus"
)

const historyHelp = `Lists the last changes with what each phase took, from the events of the log. With a generation it tells of the
change that led to it why it took so long: phase by phase, who was waited for, what came from whom how fast, and which
attempts came to nothing.

Phases: noticed, until a failure or request was in the log (of a failure with the silence before it, or the wait for a trainer
that hangs); agreed, until all had consented, a plan was made and every trainer had named its last step; moved, until every
layer was verified where it belongs; next step, until every trainer completed one under the plan. In all is from the last heartbeat of
who failed, or from the request, to then. (reknit dev counts from what its script did, which is before that.) The stall is what
the trainer that stood longest saw by its own clock between two of its steps, less a usual one.
Where not all have, or nobody knows of steps (--unchanged), a - stands for that, for the whole and for the stall. A stop and a reset have
rows of their own behind the plan that they ended, with the step and the reason that was given; the time until training goes on counts
in no change. A request that was refused on the way to a generation has one, too; reknit history GENERATION tells why.`

// options are the flags of the commands.
type options struct {
	live connect.Flags
	json bool
	most int
}

// Command is `reknit history`.
func Command() *cobra.Command {
	var o options
	command := tell.Command(&cobra.Command{
		Use: "history [GENERATION]", Short: "list the last changes, or tell why one took so long", Long: historyHelp,
		Args: optionalGeneration,
		RunE: func(c *cobra.Command, given []string) error { return o.history(c.Context(), given, c.OutOrStdout()) },
	})
	o.live.Add(command.Flags())
	command.Flags().BoolVar(&o.json, "json", false, "print the changes as JSON")
	command.Flags().IntVar(&o.most, "last", 20, "so many changes")
	return command
}

// optionalGeneration is at most one argument, a generation.
func optionalGeneration(_ *cobra.Command, given []string) error {
	switch {
	case len(given) > 1:
		return fmt.Errorf("expected at most one generation, got %q", given)
	case len(given) == 1 && generationOf(given) == 0:
		return fmt.Errorf("expected a generation, a number from 1 on, got %q", given[0])
	}
	return nil
}

// generationOf returns what was given, zero for nothing.
func generationOf(given []string) uint64 {
	if len(given) == 0 {
		return 0
	}
	generation, err := strconv.ParseUint(given[0], 10, 64)
	if err != nil {
		return 0
	}
	return generation
}

func (o options) history(ctx context.Context, given []string, w io.Writer) error {
	if o.most < 1 {
		return tell.UsageError{Err: fmt.Errorf("--last: expected at least 1, got %d", o.most)}
	}
	b, err := o.live.Open(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	names, err := connect.Names(ctx, b)
	if err != nil {
		return err
	}
	if !o.json {
		w = tell.Showing(w, names.Shown)
	}
	if generation := generationOf(given); generation > 0 {
		return o.one(ctx, b, generation, names, w)
	}
	all, halts, err := lastOf(ctx, b, o.most)
	switch {
	case err != nil:
		return err
	case o.json:
		told := make([]Named, len(all))
		for i, change := range all {
			told[i] = Named{change, names.In(change)}
		}
		return tell.Document(w, told)
	case len(all)+len(halts) == 0:
		fmt.Fprintf(w, "Nothing has changed in %s in what the log holds, the last %v.\n", b.Cluster(), events.EventAge)
		return nil
	}
	list(w, all, halts)
	rest, err := connect.Resting(ctx, b)
	switch {
	case rest.End != nil:
		fmt.Fprintf(w, "The job is complete since %s: %v.\n", clock(rest.End.At), rest.End)
	case rest.String() != "":
		fmt.Fprintf(w, "%s.\n", capital(rest.String()))
	}
	return err
}

// Named is a change for programs, with what people call the nodes of which it tells.
type Named struct {
	changes.Change
	Names map[string]string `json:"names,omitempty"` // by id, where ids are keys
}

func (o options) one(ctx context.Context, b *bus.Bus, generation uint64, names *overlay.Names, w io.Writer) error {
	change, err := Of(ctx, b, generation)
	switch {
	case err != nil:
		return err
	case o.json:
		return tell.Document(w, Named{change, names.In(change)})
	}
	detail(w, change)
	return nil
}

// detail writes all that is known of a change.
func detail(w io.Writer, c changes.Change) {
	fmt.Fprintf(w, "Generation %d: %s\n", c.Generation, c.What())
	for _, reason := range c.Reasons {
		fmt.Fprintf(w, "  %s: %s\n", reason.Node, reason.Says)
		if noticed := reason.Noticed(); noticed != "" {
			fmt.Fprintf(w, "  %s: %s\n", reason.Node, noticed)
		}
	}
	if c.Released != nil {
		fmt.Fprintf(w, "  %v\n", c.Released)
	}
	if len(c.Attempts) > 0 {
		fmt.Fprintf(w, "  began %s; %s\n\n", clock(c.Began), told[c.State])
	}
	phases(w, c)
	waits(w, c)
	transfers(w, c.Receipts)
	attempts(w, c.Attempts, c.Held)
	refusals(w, c.Refusals)
}

// told says what a state means.
var told = map[string]string{
	changes.Pending: "nothing is negotiated now", changes.Negotiating: "it is negotiated",
	changes.Refused:   "what was asked for was refused",
	changes.Committed: "committed, and some trainers have not told a step under it (with --unchanged none does)",
	changes.Working:   "all trainers work under it",
	changes.Over:      "the job was complete before it was done",
	changes.Stopped:   "training has stopped by it, and a snapshot is complete",
	changes.Withdrawn: "who asked to join has left or is lost, and nothing else was to change",
}

func phases(w io.Writer, c changes.Change) {
	if len(c.Phases) == 0 {
		return
	}
	table := tell.Table(w)
	fmt.Fprintln(table, "phase\ttook\tof all\twaited for at its end")
	for _, phase := range c.Phases {
		mark := ""
		if phase == c.Slowest() {
			mark = "  <- slowest"
		}
		fmt.Fprintf(table, "%s\t%s\t%.0f%%\t%s%s\n", phase.Name, tell.Seconds(phase.Seconds), 100*phase.Seconds/c.TotalSeconds,
			phase.Last, mark)
	}
	fmt.Fprintf(table, "in all\t%s\n", tell.Seconds(c.TotalSeconds))
	table.Flush()
	switch {
	case c.BackTo != nil && c.LostSteps > 0:
		fmt.Fprintf(w, "\nTraining went back by %s %s to the snapshot of step %d%s.\n", roughly[c.AtMost],
			tell.Count(int(c.LostSteps), "step", "steps"), *c.BackTo, unheard[c.AtMost])
	case c.LostSteps > 0:
		fmt.Fprintf(w, "\nTraining went back by %s %s%s.\n", roughly[c.AtMost],
			tell.Count(int(c.LostSteps), "step", "steps"), unheard[c.AtMost])
	case c.BackTo != nil:
		fmt.Fprintf(w, "\nTraining went back to the snapshot of step %d.\n", *c.BackTo)
	}
	if c.StallNode != "" && (c.StallSeconds > 0 || c.BackTo == nil) { // who was started anew saw no stall
		fmt.Fprintf(w, "\nTraining stood still for %s (%.1f steps) at most, at %s.\n", tell.Seconds(c.StallSeconds), c.StallSteps, c.StallNode)
	}
	if c.NaiveBytes > 0 {
		fmt.Fprintf(w, "%s moved; a restart would move %s.\n", tell.Bytes(c.BytesMoved), tell.Bytes(c.NaiveBytes))
	}
}

// By whether it is at most so many: how the number of lost steps is told, and why.
var (
	roughly = map[bool]string{false: "about", true: "at most"}
	unheard = map[bool]string{true: " (no node that is here told how far training had come)"}
)

// transfers tells who received what from whom, and how fast, the quickest first. Nobody's link is known to be the slowest until the last
// one is seen beside the others.
func transfers(w io.Writer, receipts []events.Receipt) {
	if len(receipts) == 0 {
		return
	}
	fmt.Fprintln(w, "\nReceived, and how long it took by each node's own clock, from its last step to the last byte that it verified")
	table := tell.Table(w)
	fmt.Fprintln(table, "by\ttook\tbytes\tfrom")
	quickest := slices.SortedStableFunc(slices.Values(receipts),
		func(a, b events.Receipt) int { return cmp.Compare(a.Seconds, b.Seconds) })
	for _, receipt := range quickest {
		bytes, from := int64(0), []string{}
		for _, unit := range receipt.Units {
			bytes += unit.Bytes
		}
		for _, source := range receipt.Sources {
			name := source.From
			if name == "" {
				name = "the hub"
			}
			from = append(from, fmt.Sprintf("%s %s at %s/s", name, tell.Bytes(source.Bytes), tell.Bytes(int64(source.BytesPerSecond))))
		}
		tell.Row(table, strings.Join(from, ", "), 80, receipt.Node, tell.Seconds(receipt.Seconds), tell.Bytes(bytes))
	}
	table.Flush()
}

// attempts tells of negotiations that came to nothing, and what was objected in any. A hold whose reason was told already is not told
// again; nil: none was.
func attempts(w io.Writer, all []changes.Attempt, told *events.Hold) {
	for i, a := range all {
		if a.Ended == "" && len(a.Said) == 0 && a.Overdue == 0 {
			continue
		}
		fmt.Fprintf(w, "\nAttempt %d of %d, %s, took %s", i+1, len(all), clock(a.Opened), tell.Seconds(a.Seconds))
		switch {
		case told != nil && a.Ended == told.Reason:
			fmt.Fprintf(w, ", ended %s: the cluster holds", a.Phase)
		case a.Ended != "":
			fmt.Fprintf(w, ", ended %s: %s", a.Phase, a.Ended)
		}
		fmt.Fprintln(w)
		for _, said := range a.Said {
			fmt.Fprintln(w, "  "+said)
		}
		if a.Overdue > 0 {
			fmt.Fprintf(w, "  %s somebody was waited for too long\n", tell.Count(a.Overdue, "time", "times"))
		}
	}
}

// refusals tells what was refused meanwhile, and whose membership ended.
func refusals(w io.Writer, all []changes.Refusal) {
	for _, refusal := range all {
		if refusal.Refused == events.RefusedMembership {
			fmt.Fprintf(w, "\nGiven up %s: %s: %s\n", clock(refusal.At), refusal.Node, refusal.Reason)
			continue
		}
		fmt.Fprintf(w, "\nRefused %s: %s: %s\n", clock(refusal.At), refusal.What(), refusal.Reason)
	}
}

// waits tells for whom a change waits now, and why.
func waits(w io.Writer, c changes.Change) {
	if c.Held != nil {
		fmt.Fprintf(w, "\nThe cluster holds: %s\n", c.Held.Reason)
		if c.Held.Step != nil {
			fmt.Fprintf(w, "  %s\n", BeforeARetry(*c.Held.Step))
		}
		if len(c.Held.Awaits) > 0 {
			fmt.Fprintf(w, "  it needs what only these have: %s\n", strings.Join(c.Held.Awaits, ", "))
		}
	}
	if c.Waiting != nil {
		fmt.Fprintf(w, "\nIt waits, for at most %s: %s\n", tell.Seconds(c.Waiting.Seconds), c.Waiting.Reason)
	}
	if c.State != changes.Negotiating {
		return
	}
	a := c.Attempts[len(c.Attempts)-1]
	fmt.Fprintf(w, "\n%s for %s, waiting for %s\n", capital(a.Phase), tell.Seconds(a.Seconds), some(a.Awaits))
	for node, busy := range a.Delays {
		fmt.Fprintf(w, "  %s asked for time: %s\n", node, busy)
	}
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// some lists names, of many the first ones.
func some(names []string) string {
	const most = 12
	switch {
	case len(names) == 0:
		return "the negotiator"
	case len(names) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// clock writes a time of the log as the reader's clock shows it.
func clock(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Local().Format("01-02 15:04:05")
}
