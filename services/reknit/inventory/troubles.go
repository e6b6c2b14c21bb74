package inventory

import (
	"fmt"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
	"github.com/reknit/reknit/services/reknit/history"
)

// Trouble is what keeps training from going on, or spoils it, and what to do; empty for nothing that is not said already.
type Trouble struct{ Says, Do string }

func (t Trouble) String() string {
	if t.Do == "" {
		return t.Says
	}
	return t.Says + ". " + strings.ToUpper(t.Do[:1]) + t.Do[1:]
}

const theClusterHolds = "the cluster holds: "

// judge adds what is wrong beside nodes.
func (o *Overview) judge() {
	for _, service := range o.Services {
		if !service.Works {
			o.Problems = append(o.Problems, fmt.Sprintf("no %s answers: start one, or see its log", service.Service))
		}
	}
	if o.End != nil && len(o.End.Differ) > 0 {
		o.Problems = append(o.Problems,
			"the job is complete, and its nodes ended with different models: reknit history names the units")
	}
	for _, tier := range o.Snapshots {
		if says := o.saysTier(tier, time.Now()); says != "" && o.End == nil && o.Stop == nil && o.Diverged == 0 {
			o.Problems = append(o.Problems, says)
		}
	}
	if o.isDeserted() && o.Nodes[overlay.Silent] > 0 && o.Change != nil && o.Change.Held != nil { // before that nobody knows yet
		o.Problems = append(o.Problems,
			"the log does not say how the silent ones ended: with NATS and the services at once, or they do not reach NATS")
	}
	for _, trouble := range o.Troubles() {
		o.Problems = append(o.Problems, trouble.String())
	}
	if o.Generation == 0 && (o.Change == nil || o.Change.Held == nil) {
		o.Problems = append(o.Problems, "there is no plan: reknit explain says for whom the first one waits")
	}
}

// saysTier tells what is wrong with the snapshots of a tier, and what helps; empty for nothing.
func (o *Overview) saysTier(tier overlay.Snapshot, now time.Time) string {
	failing, todo := tier.SaysFailing(now)
	switch {
	case failing != "":
		return Trouble{failing, todo}.String()
	case tier.Late(o.Step):
		return tier.Says(now) + ": the agents' logs say why (snapshot not written)"
	}
	return ""
}

// row tells of a tier of snapshots in a line.
func row(tier overlay.Snapshot, now time.Time) string {
	says := tier.Tier + ": " + tier.Newest(now)
	if in := tier.In(); in != "" {
		says += ", in " + in
	}
	return says
}

// Troubles are those of training.
func (o *Overview) Troubles() (all []Trouble) {
	if o.Diverged > 0 && o.End == nil {
		says, todo := overlay.Diverged(o.Diverged, o.Snapshots)
		all = append(all, Trouble{says, todo})
	}
	if says := overlay.SaysDelays(o.Delayed, time.Now()); says != "" && !o.waits() {
		all = append(all, Trouble{says, o.hangs("its script evaluates, saves or hangs there: look at its log, and kill the script if it " +
			"hangs: its agent starts it again")})
	}
	if says, todo := overlay.SaysRests(o.Delayed); says != "" && !o.waits() {
		all = append(all, Trouble{says, todo})
	}
	if says := o.late(); says != "" {
		all = append(all, Trouble{says, o.hangs("look at the log of the script that computes, and kill the script if it hangs: its agent " +
			"starts it again")})
	}
	switch change := o.Change; {
	case o.isDeserted() && o.mistake != "":
		all = append(all, Trouble{"nobody trains any more: all scripts ended before a step was made, by " + o.mistake,
			"mend the script: agents start it again by themselves while they run. Start it only where its agent has ended: nothing is lost, " +
				"and training begins"})
	case o.isDeserted():
		all = append(all, Trouble{"nobody trains any more", o.goesOn()})
	case change != nil && change.Held != nil:
		all = append(all, Trouble{theClusterHolds + change.Held.Reason, o.mends(*change)})
	}
	return all
}

// firstStep is for how long the first step under a plan may take: agents wait as long for a trainer in it.
const firstStep = 10 * time.Minute

// hangs says what to do where no step is made. Nobody is told to end a script while a change is negotiated or state moves, nor in the first
// step under a plan.
func (o *Overview) hangs(kill string) string {
	switch change := o.Change; {
	case change != nil && (change.State == changes.Negotiating || change.State == changes.Pending && change.Abandoned):
		return "end no script now, for a change is under way (" + stands(*change, o.Stepless) + "): reknit explain says what it is at"
	case change != nil && change.State == changes.Committed && o.Committed != nil && time.Since(*o.Committed) < firstStep:
		return "end no script now: the first step under a plan takes longer, for connections are built and some compile. Look at the " +
			"logs of those who have not made one"
	}
	return kill
}

// goesOn says how a deserted job goes on: from a snapshot that is known, else as the negotiator says, where it knows how all have ended.
func (o *Overview) goesOn() string {
	const nobody = "no node is left"
	newest := overlay.NewestOf(o.Snapshots)
	if change := o.Change; change != nil && change.Held != nil && len(change.Held.Awaits) == 0 && change.Held.Reason != nobody {
		if newest.Step > 0 && change.Held.Step == nil {
			return newest.GoOn()
		}
		return strings.TrimSpace(change.Held.Reason + ". " + o.mends(*change))
	}
	return o.remains.Do(o.Change != nil && o.Change.Held != nil)
}

// mends says what ends a hold, beside what its reason says.
func (o *Overview) mends(change changes.Change) string {
	switch held := change.Held; {
	case held.Step != nil:
		return history.BeforeARetry(*held.Step)
	case strings.HasPrefix(held.Reason, events.OlderLog):
		return "put the newer store of NATS back, with NATS stopped; where there is none any more: reknit log accept"
	case !change.Stops():
		return "training goes on as it is, and the change is tried again now and then: reknit explain says what was in its way"
	case len(held.Awaits) > 0:
		return o.remains.Do(true)
	}
	return ""
}
