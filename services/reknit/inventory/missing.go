package inventory

import (
	"fmt"
	"strings"
	"time"

	"github.com/reknit/reknit/services/monitor/machine/overlay"
)

// missing names who is missed: together those of one state that have one reason.
func missing(nodes []overlay.Node) (problems []string) {
	var order []string
	by := map[string][]string{}
	for _, node := range nodes {
		if node.State != overlay.Silent && node.State != overlay.Suspected && node.State != overlay.Lost {
			continue
		}
		how := missed(node, time.Now())
		if by[how] == nil {
			order = append(order, how)
		}
		by[how] = append(by[how], node.Node)
	}
	for _, how := range order {
		switch names := by[how]; {
		case len(names) == 1:
			problems = append(problems, names[0]+" is "+how)
		case len(names) > mostNamed:
			problems = append(problems, fmt.Sprintf("%s and %d more are %s", strings.Join(names[:mostNamed], ", "),
				len(names)-mostNamed, theirs(how)))
		default:
			problems = append(problems, strings.Join(names, ", ")+" are "+theirs(how))
		}
	}
	return problems
}

// missed says how a node is missed, and since when nothing was heard of it.
func missed(node overlay.Node, now time.Time) string {
	switch {
	case !node.Unheard.IsZero():
		return fmt.Sprintf("%s: %s since %s, %v ago", node.State, node.Reason, node.Unheard.Local().Format("15:04:05"),
			now.Sub(node.Unheard).Round(time.Second))
	case node.Reason != "":
		return node.State + ": " + node.Reason
	case node.State == overlay.Silent:
		return fmt.Sprintf("%s: no heartbeat came in %v", node.State, listening)
	}
	return node.State
}

// theirs tells of several what an agent tells of its one trainer.
func theirs(how string) string {
	return strings.Replace(how, ": its trainer is ", ": their trainers are ", 1)
}

// mostNamed is how many names a problem lists.
const mostNamed = 8

// itsTrainerIsGone is how the monitor begins to tell what an agent says of the end of its script.
const itsTrainerIsGone = "its trainer is gone: "

// mistake returns the error with which the scripts of all who had a place ended before a step was made; empty: they did not, or by signals.
func mistake(nodes []overlay.Node) (same string) {
	for _, node := range nodes {
		says, isGone := strings.CutPrefix(node.Reason, itsTrainerIsGone)
		switch {
		case node.Pipeline == nil:
		case node.State != overlay.Lost || !isGone || !node.Proven || node.Step > 0 || strings.HasPrefix(says, "signal: "),
			same != "" && same != says:
			return ""
		default:
			same = says
		}
	}
	return same
}
