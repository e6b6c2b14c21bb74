package world

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/reknit/reknit/events"
)

// tell adds a line to the story of the run, and to its trace.
func (w *World) tell(who, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	w.remember([]byte(what))
	w.write(who, what)
}

func (w *World) write(who, what string) {
	if w.verbose {
		w.Story = append(w.Story, fmt.Sprintf("%9.3f  %-10s  %s", w.now.Seconds(), who, what))
	}
}

// remember makes something a part of the trace, by which two runs are known to be equal.
func (w *World) remember(what []byte) {
	hash := fnv.New64a()
	hash.Write(what)
	w.trace = mix(mix(w.trace, uint64(w.now)), hash.Sum64())
}

// stored sees what a stream has stored.
func (w *World) stored(event events.Event) {
	w.remember([]byte(event.ID))
	w.remember(event.Data)
	w.checkStored(event)
	w.noteMade(event)
	w.noteSaid(event)
	if event.Kind == events.JoinRequested {
		w.noteAsked(event)
	}
	if event.Kind == events.ClusterHeld && w.accepts {
		w.acceptOlder(event)
	}
	if w.Heard != nil {
		w.Heard(event)
	}
	if w.verbose {
		who := strings.TrimPrefix(strings.TrimPrefix(event.Source, "/"), "node/")
		w.write(who, strings.TrimSpace(fmt.Sprintf("%s %s", event.Kind, told(event))))
	}
}

// told says what is in an event, for people.
func told(event events.Event) string {
	if tell := tellers[event.Kind]; tell != nil {
		return tell(event)
	}
	return event.Subject
}

// tellers say what is worth knowing of each kind of event.
var tellers = map[events.Kind]func(events.Event) string{
	events.JoinRequested: teller(func(j events.Join) string { return "as " + j.Incarnation }),
	events.LeaveRequested: teller(func(l events.Leave) string {
		return fmt.Sprintf("%s within %v s", l.Reason, l.DeadlineSeconds)
	}),
	events.JoinDelayed: teller(func(d events.JoinDelay) string {
		return fmt.Sprintf("of %s for %.0f s: %s", d.Node, d.Seconds, d.Reason)
	}),
	events.LeaveDelayed: teller(func(d events.LeaveDelay) string {
		return fmt.Sprintf("of %s: %s", d.Node, d.Reason)
	}),
	events.MembershipRefused: teller(func(r events.Refusal) string {
		astray := ""
		if r.Astray {
			astray = ", astray"
		}
		return fmt.Sprintf("to %s %s: %s%s: %s", r.Node, r.Incarnation, r.Refused, astray, r.Reason)
	}),
	events.NegotiationOpened: teller(func(o events.Opening) string {
		how := "while training goes on"
		if o.Abandon {
			how = "all stop"
		}
		var changes, members []string
		for _, change := range o.Changes {
			changes = append(changes, strings.TrimSpace(change.Kind+" "+change.Node+" "+change.Peer))
		}
		for _, member := range o.Members {
			members = append(members, member.Node)
		}
		return fmt.Sprintf("%s of generation %d, %s: %s; members %s",
			o.Negotiation, o.Generation, how, strings.Join(changes, ", "), strings.Join(members, " "))
	}),
	events.Consented: teller(func(c events.Consent) string {
		if !c.Accepted {
			return c.Negotiation + " not accepted: " + c.Reason
		}
		return fmt.Sprintf("%s at step %d, holds%s%s", c.Negotiation, c.Step, held(c.Holdings), claimed(c))
	}),
	events.PlanRequested:    teller(func(r events.PlanRequest) string { return r.Negotiation }),
	events.PlanProposed:     teller(func(p events.Proposal) string { return p.Negotiation + " " + layout(&p.Plan) }),
	events.PlanRefused:      teller(func(f events.Failure) string { return f.Negotiation + ": " + f.Reason }),
	events.RestorationAsked: teller(func(r events.RestorationRequest) string { return r.Negotiation }),
	events.RestorationPlanned: teller(func(r events.Restoration) string {
		return fmt.Sprintf("%s moves%s", r.Negotiation, moves(&r.Plan))
	}),
	events.RestorationFailed: teller(func(f events.Failure) string { return f.Negotiation + " by " + f.Node + ": " + f.Reason }),
	events.PreCopyStarted:    teller(func(p events.PreCopyStart) string { return p.Negotiation + " moves" + moves(&p.Plan) }),
	events.Promised: teller(func(p events.Promise) string {
		return fmt.Sprintf("%s to stop at step %d", p.Negotiation, p.StopStep)
	}),
	events.Scheduled: teller(func(s events.Schedule) string {
		return fmt.Sprintf("%s: all stop at step %d, and move%s", s.Negotiation, s.StopStep, moves(&s.Plan))
	}),
	events.ShardOffered: teller(func(o events.Offer) string {
		return fmt.Sprintf("unit %d at step %d, %s", o.Unit, o.Step, short(o.Digest))
	}),
	events.Aborted: teller(func(a events.Abort) string { return a.Negotiation + ": " + a.Reason }),
	events.PlanCommitted: teller(func(p events.Plan) string {
		from := fmt.Sprint("step ", p.ResumeStep)
		if p.Snapshot != "" {
			from += " of a snapshot"
		}
		return fmt.Sprintf("generation %d, %s from %s: %s", p.Generation, p.Policy, from, layout(&p))
	}),
	events.Committed: teller(func(c events.Commitment) string {
		if c.LostSteps == 0 {
			return c.Negotiation
		}
		about := map[bool]string{false: "about", true: "at most"}[c.AtMost]
		return fmt.Sprintf("%s: %s %d steps are lost", c.Negotiation, about, c.LostSteps)
	}),
	events.NegotiationOverdue: teller(func(o events.Overdue) string {
		return strings.TrimSpace(fmt.Sprintf("%s %s, round %d %s", o.Negotiation, o.Phase, o.Round, o.Node))
	}),
	events.TrainingCompleted: teller(func(e events.JobEnd) string {
		what := short(e.Digest)
		if len(e.Differ) > 0 {
			what = fmt.Sprintf("units differ: %v", e.Differ)
		}
		return fmt.Sprintf("at step %d under generation %d by %s, %s", e.Step, e.Generation, strings.Join(e.Nodes, " "), what)
	}),
	events.ClusterHeld: teller(func(h events.Hold) string {
		return strings.TrimSpace(h.Reason + " " + strings.Join(h.Awaits, " "))
	}),
	events.NodeLost:      teller(func(n events.NodeState) string { return n.Node + " " + n.Incarnation + ": " + n.Reason }),
	events.SiteSuspected: teller(func(s events.SiteState) string { return fmt.Sprintf("%s: %d of %d", s.Site, s.Silent, s.Nodes) }),
	events.SiteCleared:   teller(func(s events.SiteState) string { return fmt.Sprintf("%s: %d of %d", s.Site, s.Silent, s.Nodes) }),
	events.NodeExited:    teller(func(e events.Exit) string { return e.Incarnation + ": " + e.Reason }),
	events.StepBroken: teller(func(b events.BrokenStep) string {
		return fmt.Sprintf("step %d of generation %d: %s", b.Step, b.Generation, b.Reason)
	}),
	events.StepDelayed: teller(func(d events.StepDelay) string {
		return fmt.Sprintf("step %d of generation %d: %s", d.Step, d.Generation, d.Reason)
	}),
	events.ConsentDelayed: teller(func(d events.Delay) string {
		return fmt.Sprintf("%s by %v s: %s", d.Negotiation, d.Seconds, d.Reason)
	}),
	events.ReleaseRequested: teller(func(r events.ReleaseRequest) string { return toldRelease(r.Step, r.Skip) }),
	events.ReleaseRefused:   teller(func(r events.ReleaseRefusal) string { return r.Reason }),
	events.StepReleased:     teller(func(r events.Release) string { return toldRelease(r.Step, r.Skip) + ", " + r.Samples.String() }),
	events.StopRefused:      teller(func(s events.StopRefusal) string { return s.Reason }),
	events.ResetRefused:     teller(func(r events.ResetRefusal) string { return r.Reason }),
	events.TrainingReset: teller(func(r events.JobReset) string {
		says := fmt.Sprintf("after generation %d, to step %d: %s", r.Generation, r.Step, r.Reason)
		if r.Snapshots {
			says += "; from snapshots"
		}
		if len(r.Silent) > 0 {
			says += "; silent are " + strings.Join(r.Silent, " ")
		}
		return says
	}),
	events.SnapshotRequested: teller(func(s events.SnapshotRequest) string { return fmt.Sprintf("of step %d", s.Step) }),
	events.TrainingStopped:   teller(func(s events.JobStop) string { return toldStop(s) }),
	events.SnapshotWritten:   teller(toldPart),
	events.SnapshotResumed:   teller(toldPart),
	events.SnapshotFailed: teller(func(f events.SnapshotFailure) string {
		return fmt.Sprintf("step %d to %s: %s: %s", f.Step, f.Tier, f.Finding, f.Reason)
	}),
	events.WithdrawalRequested: teller(toldPart),
	events.SnapshotWithdrawn:   teller(toldPart),
	events.SnapshotCompleted:   teller(func(s events.CompleteSnapshot) string { return fmt.Sprintf("step %d", s.Step) }),
	events.SnapshotOverdue:     teller(func(s events.OverdueSnapshot) string { return fmt.Sprintf("step %d: nobody wrote %v", s.Step, s.Units) }),
	events.ReplicaDiverged: teller(func(d events.Divergence) string {
		return fmt.Sprintf("unit %d at step %d: %v", d.Unit, d.Step, d.Minority)
	}),
}

func toldStop(s events.JobStop) string {
	says := fmt.Sprintf("after step %d, on %s", s.Step, s.Tier)
	if len(s.Behind) > 0 {
		says += "; behind are " + strings.Join(s.Behind, " ")
	}
	return says
}

func toldPart(s events.SnapshotPart) string {
	return fmt.Sprintf("step %d to %s: %v", s.Step, s.Tier, s.Units)
}

func teller[T any, P interface {
	*T
	events.Payload
}](tell func(T) string) func(events.Event) string {
	return func(event events.Event) string {
		payload, err := events.Open[T, P](event)
		if err != nil {
			return err.Error()
		}
		return tell(payload)
	}
}

func held(holdings []events.Holding) string {
	if len(holdings) == 0 {
		return " nothing"
	}
	var list string
	for _, holding := range holdings {
		list += fmt.Sprintf(" %d-%d at %v", holding.Units.First, holding.Units.End-1, holding.Steps)
	}
	return list
}

func claimed(c events.Consent) string {
	if len(c.Claims) == 0 {
		return ""
	}
	var list string
	for _, claim := range c.Claims {
		list += fmt.Sprintf(" %d at %d", claim.Unit, claim.Step)
	}
	return fmt.Sprintf(", claims from generation %d%s", c.Trained, list)
}

// layout tells a plan's pipelines, as "n1:0-1 n2:2-3 | n3:0-3".
func layout(plan *events.Plan) string {
	var pipelines []string
	for _, pipeline := range plan.Pipelines {
		var stages []string
		for _, stage := range pipeline.Stages {
			stages = append(stages, fmt.Sprintf("%s:%d-%d", stage.Node, stage.Layers.First, stage.Layers.End-1))
		}
		pipelines = append(pipelines, strings.Join(stages, " "))
	}
	return strings.Join(pipelines, " | ")
}

func moves(plan *events.Plan) string {
	if len(plan.Migration.Transfers) == 0 {
		return " nothing"
	}
	var list string
	for _, transfer := range plan.Migration.Transfers {
		var from []string
		for _, source := range transfer.Sources {
			if !slices.Contains(from, source.Node) {
				from = append(from, source.Node)
			}
		}
		list += fmt.Sprintf(" %d %s>%s", transfer.Unit, strings.Join(from, "+"), transfer.To)
	}
	return list
}

// short is the end of a digest: the model's begin with zeros.
func short(digest string) string { return digest[max(0, len(digest)-6):] }
