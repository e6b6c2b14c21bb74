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
	Since time.Time `json:"since,omitzero"` // left out of a script that rests, as its agent tells

	Pid     int  `json:"pid,omitempty"`     // of a script that rests
	Stopped bool `json:"stopped,omitempty"` // that process is, by a signal or a debugger
}

// Rests reports whether it is of a script that knows nothing of its agent, which sees that it does nothing.
func (d Delay) Rests() bool { return d.By == d.Node }

// does says what a node does while others wait for it, behind its name.
var does = map[string]string{events.PhaseBetween: " (between steps)", events.PhaseComputing: " (computes)"}

// takeDelay notes that others wait for a node. Only the last of a node counts. Heartbeats tell for how long a script rests.
func (o *Overlay) takeDelay(event events.Event) {
	told, err := events.Open[events.StepDelay](event)
	if err == nil && told.By != told.Node && (o.plan == nil || told.Generation >= o.plan.Generation) {
		o.delays[told.Node] = Delay{StepDelay: told, Since: event.Logged.Add(-time.Duration(told.WaitedSeconds * float64(time.Second)))}
	}
}

// forgetDelays ends those under plans before the one in force.
func (o *Overlay) forgetDelays() {
	maps.DeleteFunc(o.delays, func(_ string, told Delay) bool { return told.Generation < o.plan.Generation })
}

// Delays returns for whom others still wait, the longest first: those who take part, as the same process, and whose heartbeats tell
// neither that they wait themselves nor that they are past the step. Behind them come those whose agents tell that their scripts rest.
func (o *Overlay) Delays(nodes []Node) (delays []Delay) {
	for _, node := range nodes {
		if rests, is := node.rests(); is {
			delays = append(delays, rests)
			continue
		}
		told, is := o.delays[node.Node]
		if !is || node.Pulse == nil || node.Incarnation != told.Incarnation || node.State == Lost || node.State == Ended {
			continue
		}
		if node.Pulse.Phase != events.PhaseWaiting && node.Pulse.Step <= told.Step && node.Pulse.Generation == told.Generation {
			delays = append(delays, told)
		}
	}
	slices.SortStableFunc(delays, func(a, b Delay) int {
		switch {
		case a.Rests() && !b.Rests():
			return 1
		case b.Rests() && !a.Rests():
			return -1
		case a.Stopped && !b.Stopped:
			return -1
		case b.Stopped && !a.Stopped:
			return 1
		}
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(b.WaitedSeconds, a.WaitedSeconds), cmp.Compare(a.Node, b.Node))
	})
	return delays
}

// rests returns what the agent of a node that trains tells of a script that rests.
func (n Node) rests() (told Delay, is bool) {
	trains := n.Pipeline != nil && slices.Contains([]string{Training, Leaving, Suspected}, n.State)
	if !trains || n.Pulse == nil || n.Pulse.Script == nil || n.Pulse.Script.RestsSeconds == 0 {
		return Delay{}, false
	}
	script := *n.Pulse.Script
	return Delay{Pid: script.Pid, Stopped: script.Stopped, StepDelay: events.StepDelay{
		Node: n.Node, Incarnation: n.Incarnation, Generation: n.Pulse.Generation, Step: n.Pulse.Step, By: n.Node,
		WaitedSeconds: script.RestsSeconds, UsualSeconds: script.UsualSeconds, Reason: saysScript(script),
	}}, true
}

// saysScript tells why a script that knows nothing of its agent does not get on; empty where nothing tells against it.
func saysScript(script events.Script) string {
	switch {
	case len(script.Awaits) > 0:
		return fmt.Sprintf("its script starts once those of %s have ended, whose agents answer: within %.0f s", listed(script.Awaits),
			script.UntilSeconds)
	case script.Stopped:
		return fmt.Sprintf("its script is stopped, by SIGSTOP or a debugger, for %.0f s", script.RestsSeconds)
	case script.RestsSeconds > 0:
		return fmt.Sprintf("its script has neither used a processor nor written for %.0f s", script.RestsSeconds)
	}
	return ""
}

// listed names some nodes, and how many there are beside.
func listed(nodes []string) string {
	says := strings.Join(nodes[:min(mostNamed, len(nodes))], ", ")
	if more := len(nodes) - mostNamed; more > 0 {
		says += fmt.Sprintf(" and %d more", more)
	}
	return says
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

// SaysDelays tells in a line for how long no step was made, and for whom the others wait, scripts that rest aside; empty for nobody.
func SaysDelays(delays []Delay, now time.Time) string {
	var names []string
	for _, delay := range delays {
		if !delay.Rests() {
			names = append(names, delay.Node+does[delay.Phase])
		}
	}
	if len(names) == 0 {
		return ""
	}
	usual := time.Duration(delays[0].UsualSeconds * float64(time.Second)).Round(time.Millisecond)
	return fmt.Sprintf("no step for %v, %v is usual: %s waits for %s", now.Sub(delays[0].Since).Round(time.Second), usual,
		delays[0].By, listed(names))
}

// SaysRests tells in a line whose scripts rest, for how long, and what to do; empty for nobody's. One that is stopped hangs for certain,
// and the others wait for it. Nobody can tell which of several hangs that are not stopped.
func SaysRests(delays []Delay) (says, todo string) {
	first := slices.IndexFunc(delays, Delay.Rests)
	if first < 0 {
		return "", ""
	}
	rest := delays[first:]
	const again = "all are started again, and go on from their checkpoint"
	if rest[0].Stopped {
		rest = slices.DeleteFunc(slices.Clone(rest), func(delay Delay) bool { return !delay.Stopped })
		return fmt.Sprintf("the script of %s is stopped, by SIGSTOP or a debugger, for %.0f s, and the others wait for it", scripts(rest),
			rest[0].WaitedSeconds), "kill -CONT PID on its machine has it go on; kill -9 PID ends it: " + again
	}
	if len(rest) == 1 {
		return fmt.Sprintf("the script of %s does nothing: it has neither used a processor nor written for %.0f s", scripts(rest),
				rest[0].WaitedSeconds),
			"it hangs, or waits for a script at another node: look at their logs, and kill the one that hangs: " + again
	}
	return fmt.Sprintf("one of the scripts of %s hangs, and the others wait for it: none of them has used a processor or written for %.0f s",
			scripts(rest), rest[len(rest)-1].WaitedSeconds),
		"look at their logs, and kill the one that hangs (kill -9 PID on its machine): " + again
}

// scripts names some nodes, with the processes of their scripts.
func scripts(delays []Delay) string {
	var names []string
	for _, delay := range delays {
		name := delay.Node
		if delay.Pid > 0 {
			name = fmt.Sprintf("%s (pid %d)", delay.Node, delay.Pid)
		}
		names = append(names, name)
	}
	return listed(names)
}

const mostNamed = 3 // in a line
