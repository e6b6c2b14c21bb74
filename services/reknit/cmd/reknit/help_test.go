package main

import (
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/reknit/reknit/shared/service"
)

// It printed the name of the command and nothing else.
func TestHelpOfAPartIsWhatThePartPrintsOfItself(t *testing.T) {
	for name, says := range map[string][]string{
		"agent":   {"reknit agent run [--restarts N]", "--unchanged    the command knows nothing of Reknit", "REKNIT_AGENT_NODE"},
		"monitor": {"REKNIT_CLUSTER", "REKNIT_NATS_URL"},
	} {
		printed := printedBy(t, func() {
			if exit, _, err := run(t, "help", name); exit != 0 {
				t.Errorf("reknit help %s: status %d, %v", name, exit, err)
			}
		})
		for _, text := range says {
			if !strings.Contains(printed, text) {
				t.Errorf("reknit help %s: expected %q in\n%s", name, text, printed)
			}
		}
	}
}

func TestEachProgramTellsItsVersion(t *testing.T) {
	if _, printed, err := run(t, "--version"); err != nil || printed != "reknit version "+service.Version()+"\n" {
		t.Errorf("reknit --version: %v, and %q", err, printed)
	}
	printed := printedBy(t, func() {
		if exit, _, err := run(t, "planner", "--version"); exit != 0 {
			t.Errorf("reknit planner --version: status %d, %v", exit, err)
		}
	})
	if printed != "planner "+service.Version()+"\n" {
		t.Errorf("reknit planner --version: %q", printed)
	}
}

// deploy/features.md tells for whom each command is. tests/contract holds its other rows to the code.
func TestThePageOfFeaturesNamesEachCommand(t *testing.T) {
	page, err := os.ReadFile("../../../../deploy/features.md")
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for _, command := range root().Commands() {
		if command.HasSubCommands() && command.Name() != "completion" {
			for _, below := range command.Commands() {
				commands = append(commands, below.CommandPath())
			}
		} else {
			commands = append(commands, command.CommandPath())
		}
	}
	commands = append(commands, "reknit agent run", "reknit agent serve") // of no parser of cobra's
	for _, command := range commands {
		if command != "reknit agent" && !strings.Contains(string(page), "`"+command+"`") {
			t.Errorf("%s: expected a row of deploy/features.md that tells for whom it is", command)
		}
	}
	for _, match := range regexp.MustCompile("`(reknit [a-z][a-z ]*)`").FindAllSubmatch(page, -1) {
		if !slices.Contains(commands, string(match[1])) {
			t.Errorf("deploy/features.md names %s, which is no command", match[1])
		}
	}
}

// printedBy returns what is written to standard output meanwhile.
func printedBy(t *testing.T, do func()) string {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	output, arguments := os.Stdout, os.Args
	os.Stdout = writer
	read := make(chan string)
	go func() {
		text, _ := io.ReadAll(reader)
		read <- string(text)
	}()
	do()
	os.Stdout, os.Args = output, arguments
	writer.Close()
	return <-read
}
