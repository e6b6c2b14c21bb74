// Package scenarios plays the text files of this folder in the simulated world: commands, and what comes of them.
package scenarios

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/tests/simulation/world"
)

var rewrite = flag.Bool("rewrite", false, "write what happens into the files, in place of what was expected")

// earlier is made by tests/simulation/builds/make. Scenarios are judged beside it, and not compared with what is expected.
var earlier = flag.String("earlier", "", "the `program` of an earlier build, which downgrades lead to; without it they lead to this one")

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenario: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(file, ".txt"), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := play(string(data))
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case strings.Contains(got, "VIOLATION") || strings.Contains(got, "not within"):
				t.Error(got)
			case *rewrite && *earlier == "":
				err = os.WriteFile(file, []byte(got), 0o644)
			case got != string(data) && *earlier == "":
				t.Errorf("%s; go test ./tests/simulation/scenarios -rewrite shows what happens", difference(string(data), got))
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// play returns the scenario with what happens after each command. A paragraph is comments, a command, and behind four
// dashes what came of it.
func play(text string) (string, error) {
	var w *world.World
	var paragraphs []string
	for _, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		head, _, found := strings.Cut(paragraph, "\n----")
		if !found {
			paragraphs = append(paragraphs, paragraph)
			continue
		}
		lines := strings.Split(head, "\n")
		told, err := command(&w, lines[len(lines)-1])
		if err != nil {
			return "", fmt.Errorf("%s: %w", lines[len(lines)-1], err)
		}
		paragraphs = append(paragraphs, head+"\n----\n"+told)
	}
	return strings.Join(paragraphs, "\n\n") + "\n", nil
}

// argument is what a command needs behind its verb.
var argument = map[string]string{"run": "TIME", "until": "KIND"}

// command does what a line says and returns what happened meanwhile.
func command(w **world.World, line string) (string, error) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return "", errors.New("expected a command above the dashes")
	}
	if needs := argument[words[0]]; needs != "" && len(words) != 2 {
		return "", fmt.Errorf("expected \"%s %s\"", words[0], needs)
	}
	if words[0] == "world" {
		c, err := world.ReadCluster(line)
		if err != nil {
			return "", err
		}
		c.Earlier = *earlier
		*w = world.New(c, true)
		return "ok", nil
	}
	if *w == nil {
		return "", errors.New("expected \"world nodes=...\" first")
	}
	told := len((*w).Story)
	end := "ok"
	switch words[0] {
	case "run":
		long, err := time.ParseDuration(words[1])
		if err != nil {
			return "", err
		}
		(*w).Run(long)
	case "until":
		if _, known := events.Kind(words[1]).Row(); !known {
			return "", fmt.Errorf("expected a kind of event, got %q", words[1])
		}
		if !(*w).Until(events.Kind(words[1])) {
			end = "not within a minute"
		}
	case "settle":
		end = (*w).Settle()
	default:
		if err := (*w).Do(line); err != nil {
			return "", err
		}
	}
	return strings.Join(append(news((*w).Story[told:]), end), "\n"), nil
}

// worthTelling is what a scenario shows; the rest follows from it.
var worthTelling = []string{
	" negotiation.opened ", " negotiation.aborted ", " plan.committed ", " plan.refused ", " cluster.held ", " node.lost ",
	" site.suspected ", " site.cleared ",
	" node.exited ", " step.broken ", " negotiation.delayed ",
	" membership.refused ", " training.completed ", " training.stopped ",
	" training.reset ", " training.reset-refused ", " training.stop-refused ",
	" membership.join-delayed ", " membership.leave-delayed ", " replica.diverged ", " restoration.failed ", " precopy.started ", " link.lost ",
	" link.restored ", " are lost", "  starts", "  dies ", "  ends", "  joins again", "cannot leave in time", "VIOLATION",
}

// negotiation is the id of one, of which only the generation says something.
var negotiation = regexp.MustCompile(`\b(g\d+)-[0-9a-f]{12}\b`)

// news returns the lines worth telling, without their times.
func news(story []string) []string {
	var lines []string
	for _, line := range story {
		if slices.ContainsFunc(worthTelling, func(part string) bool { return strings.Contains(line, part) }) {
			lines = append(lines, negotiation.ReplaceAllString(strings.Join(strings.Fields(line)[1:], " "), "$1"))
		}
	}
	return lines
}

// difference tells the first line that is not as expected.
func difference(want, got string) string {
	expected, lines := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i, line := range lines {
		if i >= len(expected) || line != expected[i] {
			return fmt.Sprintf("line %d: got %q", i+1, line)
		}
	}
	return fmt.Sprintf("%d lines fewer than expected", len(expected)-len(lines))
}

func TestACommandThatIsNoneIsNamed(t *testing.T) {
	const begin = "world nodes=3 layers=3 partitions=0 stages=1\n----\n\n"
	for text, want := range map[string]string{
		begin + "run\n----\n":           `run: expected "run TIME"`,
		begin + "run far\n----\n":       `run far: time: invalid duration "far"`,
		begin + "until\n----\n":         `until: expected "until KIND"`,
		begin + "until noon\n----\n":    `until noon: expected a kind of event, got "noon"`,
		begin + " \n----\n":             ` : expected a command`,
		begin + "fly n1\n----\n":        `fly n1: fault "fly n1": expected one of`,
		begin + "kill n1 n2 n3\n----\n": `kill n1 n2 n3: fault`,
		"run 5s\n----\n":                `run 5s: expected "world nodes=..." first`,
		"world nodes=many\n----\n":      `world nodes=many: expected "world nodes=%d layers=%d partitions=%d stages=%d"`,
	} {
		if _, err := play(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, expected %s", text, err, want)
		}
	}
}
