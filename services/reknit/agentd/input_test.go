package agentd

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// reads has trainers read from a file or, where it is none, from a pipe into which the text is written.
func reads(t *testing.T, text string, fromFile bool) {
	before := os.Stdin
	t.Cleanup(func() { os.Stdin = before })
	if !fromFile {
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer writer.Close()
			_, _ = writer.WriteString(text) // who reads tells what came
		}()
		os.Stdin = reader
		return
	}
	path := filepath.Join(t.TempDir(), "input")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	os.Stdin = file
}

func TestATrainerThatIsStartedAgainReadsTheSameInput(t *testing.T) {
	for name, fromFile := range map[string]bool{"a file": true, "a pipe": false} {
		t.Run(name, func(t *testing.T) {
			reads(t, "exit 7\n", fromFile)
			r := newRan(t)
			if status := r.run(`read -r line; echo "$line" >> "$1"; eval "$line"`, 1); status != 7 {
				t.Errorf("status %d: expected that of the script on standard input", status)
			}
			if lines := r.lines(); !slices.Equal(lines, []string{"exit 7", "exit 7"}) {
				t.Errorf("it read %q: expected the same twice", lines)
			}
		})
	}
}

func TestATrainerThatHasReadMoreThanIsRememberedIsNotStartedAgain(t *testing.T) {
	before := mostInput
	mostInput = 100
	t.Cleanup(func() { mostInput = before })
	reads(t, strings.Repeat("line\n", 40_000), false)
	log, r := hearLog(t), newRan(t)
	if status := r.run(`wc -l >> "$1"; exit 7`, 1); status != 7 {
		t.Errorf("status %d", status)
	}
	if lines := r.lines(); len(lines) != 1 || strings.TrimSpace(lines[0]) != "40000" {
		t.Errorf("it read %q: expected all 40000 lines, once", lines)
	}
	if !strings.Contains(log.String(), "standard input: expected at most 100 bytes") {
		t.Errorf("it is told %s", log)
	}
}

func TestAScriptThatReadsNothingIsStartedAgain(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close() // open for as long as scripts run, as under many supervisors
	before := os.Stdin
	os.Stdin = reader
	t.Cleanup(func() { os.Stdin = before })
	r := newRan(t)
	if status := r.run(`echo ran >> "$1"; exit 7`, 1); status != 7 || len(r.lines()) != 2 {
		t.Errorf("status %d, it ran %d times: expected twice", status, len(r.lines()))
	}
}
