package inventory

import (
	"fmt"
	"strings"
	"time"

	"github.com/reknit/reknit/services/monitor/machine/changes"
	"github.com/reknit/reknit/services/monitor/machine/overlay"
	"github.com/reknit/reknit/services/reknit/tell"
)

// late says for how long no step was made, where nothing else says why: a script that hangs alone has nobody wait for it.
func (o *Overview) late() string {
	if len(o.Delayed) > 0 || o.waits() || o.End != nil || o.Stop != nil {
		return ""
	}
	return overlay.SaysLate(time.Duration(o.Still*float64(time.Second)), o.StepTime)
}

// negotiates says for how long a change is negotiated, and who is waited for.
func negotiates(c changes.Change, took string) string {
	var awaits []string
	if last := len(c.Attempts) - 1; last >= 0 {
		awaits = c.Attempts[last].Awaits
	}
	if len(awaits) == 0 {
		return "negotiated for " + took
	}
	says := fmt.Sprintf("negotiated for %s, waiting for %s", took, strings.Join(awaits[:min(mostNamed, len(awaits))], ", "))
	if more := len(awaits) - mostNamed; more > 0 {
		says += fmt.Sprintf(" and %d more", more)
	}
	return says
}

// says tells of a job that is complete.
func (o Overview) says() string {
	if o.Stepless {
		return tell.Count(len(o.End.Nodes), "script has", "scripts have") + " ended well"
	}
	return o.End.String()
}

// longer says how a job that is complete trains longer.
func (o Overview) longer() string {
	const scripts = "start all scripts again with more steps"
	newest := overlay.NewestOf(o.Snapshots)
	if o.Stepless {
		return "to run the scripts again: reknit cluster reset, and start them: they begin with their own checkpoints"
	}
	if newest.Step == 0 {
		return "to train it longer: reknit cluster reset, and " + scripts + ", in each of which the model that was saved is loaded: " +
			"no snapshot is known to go on from"
	}
	return fmt.Sprintf("to train it longer: reknit cluster reset --from-snapshot, and %s: they go on from step %d (%s)", scripts,
		newest.Step, newest.Tier)
}

// takePulse takes what a node's heartbeat tells of its training.
func (o *Overview) takePulse(node overlay.Node) {
	o.Heard++
	if node.Pulse.Step >= o.Step && (node.Pulse.Loss > 0 || node.Pulse.LossNotFinite) { // told by those that know it
		since := overlay.DivergedSince(*node.Pulse)
		if since > 0 && o.Diverged > 0 {
			since = min(since, o.Diverged) // that of the one that trained longest
		}
		o.Loss, o.Diverged = node.Pulse.Loss, since
	}
	if still := node.Pulse.StillSeconds; node.State == overlay.Training && still > 0 && (o.Still == 0 || still < o.Still) {
		o.Still = still
	}
}
