package dev

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Action is one thing a script does to the cluster.
type Action struct {
	Line   int
	AtStep uint64        // when that step is completed and every earlier change is healed...
	After  time.Duration // ...or, where AtStep is zero, so long after the action before, whatever is under way
	Verb   string
	Names  []string
}

func (a Action) String() string { return a.Verb + " " + strings.Join(a.Names, " ") }

// Any stands for a trainer that dev chooses: one whose loss leaves every layer a live holder.
const Any = "any"

// Services are the names that kill takes besides trainers.
var Services = []string{"monitor", "negotiator", "planner", "restorer"}

// verbs says how many names each verb takes.
var verbs = map[string]int{"kill": 1, "join": 1, "leave": 1, "connect": 2, "disconnect": 2}

// DefaultScript is what `reknit dev` does without --script.
const DefaultScript = `
at 30  kill n2
at 70  join n7
at 110 leave n3
at 150 disconnect n1 n5
at 190 connect n1 n5
at 230 kill monitor
at 250 kill negotiator
at 270 kill planner
at 290 kill restorer
`

// ParseScript reads a script: a line an action, "at STEP ACTION" or "after DURATION ACTION"; # begins a comment.
func ParseScript(reader io.Reader) ([]Action, error) {
	var actions []Action
	lines := bufio.NewScanner(reader)
	for number := 1; lines.Scan(); number++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		action, err := parseAction(words)
		if err != nil {
			return nil, fmt.Errorf("script line %d: %w", number, err)
		}
		action.Line = number
		actions = append(actions, action)
	}
	return actions, lines.Err()
}

func parseAction(words []string) (Action, error) {
	if len(words) < 4 {
		return Action{}, fmt.Errorf("expected \"at STEP VERB NAME\" or \"after DURATION VERB NAME\", got %q", strings.Join(words, " "))
	}
	action := Action{Verb: words[2], Names: words[3:]}
	var err error
	switch words[0] {
	case "at":
		if action.AtStep, err = strconv.ParseUint(words[1], 10, 64); err != nil || action.AtStep == 0 {
			return action, fmt.Errorf("at: expected a step from 1 on, got %q", words[1])
		}
	case "after":
		if action.After, err = time.ParseDuration(words[1]); err != nil || action.After < 0 {
			return action, fmt.Errorf("after: expected a duration such as 120ms, got %q", words[1])
		}
	default:
		return action, fmt.Errorf("expected at or after, got %q", words[0])
	}
	return action, action.check()
}

func (a Action) check() error {
	names, known := verbs[a.Verb]
	if !known {
		return fmt.Errorf("expected kill, join, leave, connect or disconnect, got %q", a.Verb)
	}
	if len(a.Names) != names && !(names == 2 && slices.Equal(a.Names, []string{Any})) {
		return fmt.Errorf("%s: expected %d name(s) or %q, got %q", a.Verb, names, Any, a.Names)
	}
	if a.Verb != "kill" && slices.ContainsFunc(a.Names, isService) {
		return fmt.Errorf("%s: expected trainers, got %q", a.Verb, a.Names)
	}
	return nil
}

func isService(name string) bool { return slices.Contains(Services, name) }
