package dev

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reknit/reknit/services/reknit/processes"
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

// verbs says how many names each verb takes.
var verbs = map[string]int{"kill": 1, "join": 1, "leave": 1, "connect": 2, "disconnect": 2}

// DefaultScript is what `reknit dev` does without --script, beginning with so many trainers: at least defaultTrainers.
func DefaultScript(trainers int) string { return fmt.Sprintf(defaultScript, trainers+1) }

const defaultTrainers = 4

const defaultScript = `
at 30  kill n2
at 70  join n%d
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
	latest := uint64(0)
	lines := bufio.NewScanner(reader)
	for number := 1; lines.Scan(); number++ {
		text, _, _ := strings.Cut(strings.TrimPrefix(lines.Text(), "\ufeff"), "#") // editors of Windows begin files with it
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		action, err := parseAction(words)
		if err != nil {
			return nil, fmt.Errorf("script line %d: %w", number, err)
		}
		if action.AtStep > 0 && action.AtStep < latest {
			return nil, fmt.Errorf("script line %d: at: expected a step from %d on, as before, got %d", number, latest,
				action.AtStep)
		}
		action.Line, latest = number, max(latest, action.AtStep)
		actions = append(actions, action)
	}
	return actions, lines.Err()
}

func parseAction(words []string) (Action, error) {
	if len(words) < 4 {
		return Action{}, fmt.Errorf("expected \"at STEP VERB NAME\" or \"after DURATION VERB NAME\", got %q",
			strings.Join(words, " "))
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
	for _, name := range a.Names {
		service := a.Verb == "kill" && isService(name)
		if name != Any && !service && !trainerName.MatchString(name) {
			return fmt.Errorf("%s: expected trainers such as n1%s, got %q", a.Verb, orServices(a.Verb), name)
		}
	}
	if len(a.Names) == 2 && a.Names[0] == a.Names[1] {
		return fmt.Errorf("%s: expected two trainers, got %s twice", a.Verb, a.Names[0])
	}
	return nil
}

var trainerName = regexp.MustCompile(`^n[1-9][0-9]{0,3}$`)

func orServices(verb string) string {
	if verb != "kill" {
		return ""
	}
	return ", or one of " + strings.Join(processes.Services, ", ")
}

func isService(name string) bool { return slices.Contains(processes.Services, name) }
