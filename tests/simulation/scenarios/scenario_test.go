// Package scenarios plays the text files of this folder in the simulated world: commands, and what comes of them.
package scenarios

import (
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
			case *rewrite:
				err = os.WriteFile(file, []byte(got), 0o644)
			case got != string(data):
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

// command does what a line says and returns what happened meanwhile.
func command(w **world.World, line string) (string, error) {
	words := strings.Fields(line)
	if words[0] == "world" {
		c := world.Cluster{Seed: 1}
		_, err := fmt.Sscanf(line, "world nodes=%d layers=%d partitions=%d stages=%d", &c.Nodes, &c.Layers, &c.Partitions, &c.Stages)
		if err != nil {
			return "", err
		}
		*w = world.New(c, true)
		return "ok", nil
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
	" membership.refused ", " replica.diverged ", " restoration.failed ", " precopy.started ", " link.lost ",
	" link.restored ", " are lost", "  starts", "  dies ", "  ends", "  joins again", "VIOLATION",
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
