package overlay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
)

// Delay is that others wait for a node in their step, and since when.
type Delay struct {
	events.StepDelay
	Since time.Time `json:"since"`
}

// does says what a node does while others wait for it, behind its name.
var does = map[string]string{events.PhaseBetween: " (between steps)", events.PhaseComputing: " (computes)"}

// takeDelay notes that others wait for a node. Only the last of a node counts.
func (o *Overlay) takeDelay(event events.Event) {
	if told, err := events.Open[events.StepDelay](event); err == nil && (o.plan == nil || told.Generation >= o.plan.Generation) {
		o.delays[told.Node] = Delay{told, event.Logged.Add(-time.Duration(told.WaitedSeconds * float64(time.Second)))}
	}
}

// forgetDelays ends those under plans before the one in force.
func (o *Overlay) forgetDelays() {
	maps.DeleteFunc(o.delays, func(_ string, told Delay) bool { return told.Generation < o.plan.Generation })
}

// Delays returns for whom others still wait, the longest first: those who take part, as the same process, and whose heartbeats tell
// neither that they wait themselves nor that they are past the step.
func (o *Overlay) Delays(nodes []Node) (delays []Delay) {
	for _, node := range nodes {
		told, is := o.delays[node.Node]
		if !is || node.Pulse == nil || node.Incarnation != told.Incarnation || node.State == Lost || node.State == Ended {
			continue
		}
		if node.Pulse.Phase != events.PhaseWaiting && node.Pulse.Step <= told.Step && node.Pulse.Generation == told.Generation {
			delays = append(delays, told)
		}
	}
	slices.SortStableFunc(delays, func(a, b Delay) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Node, b.Node)) })
	return delays
}

// A step counts as late after several usual ones: some evaluate or save in between.
const (
	lateSteps = 10
	lateAtAll = 30 * time.Second
)

// SaysLate tells for how long no step was made, where that is longer than usual; empty where it is not, or nobody knows what is: a first
// step may compile for minutes.
func SaysLate(since time.Duration, usualSeconds float64) string {
	usual := time.Duration(usualSeconds * float64(time.Second))
	if usual <= 0 || since < max(lateAtAll, lateSteps*usual) {
		return ""
	}
	return fmt.Sprintf("no step for %v, %v is usual: reknit nodes tells who computes and who waits",
		since.Round(time.Second), usual.Round(time.Millisecond))
}

// SaysDelays tells in a line for how long no step was made, and for whom the others wait; empty for nobody.
func SaysDelays(delays []Delay, now time.Time) string {
	if len(delays) == 0 {
		return ""
	}
	var names []string
	for _, delay := range delays[:min(mostNamed, len(delays))] {
		names = append(names, delay.Node+does[delay.Phase])
	}
	more := ""
	if others := len(delays) - mostNamed; others > 0 {
		more = fmt.Sprintf(" and %d more", others)
	}
	usual := time.Duration(delays[0].UsualSeconds * float64(time.Second)).Round(time.Millisecond)
	return fmt.Sprintf("no step for %v, %v is usual: %s waits for %s%s", now.Sub(delays[0].Since).Round(time.Second), usual,
		delays[0].By, strings.Join(names, ", "), more)
}

const mostNamed = 3 // in a line
