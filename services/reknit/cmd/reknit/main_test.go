package main

import (
	"io"
	"strings"
	"testing"
)

// run runs a command line and returns the status with which the process would end, and what it prints.
func run(t *testing.T, line ...string) (exit int, output string, err error) {
	t.Helper()
	var printed strings.Builder
	command := root()
	command.SetOut(&printed)
	command.SetErr(io.Discard)
	err = execute(t.Context(), command, append([]string{}, line...)) // none is none, rather than the test's
	return status(err), printed.String(), err
}

func TestAWrongLineEndsWithTheStatusOfWrongUsage(t *testing.T) {
	for line, says := range map[string]string{
		"plann":             "did you mean plan?",
		"plan --nosuch":     "--nosuch",
		"plan x":            "expected flags only",
		"restore --help":    "did you mean restorer?",
		"nosuch --help":     `no command "nosuch"; reknit --help lists them`,
		"-h nosuch":         `no command "nosuch"`,
		"help plann":        "did you mean plan?",
		"audit verfy -h":    "did you mean verify?",
		"up --port a":       "--port",
		"up --port 70000":   "--port: expected",
		"dev --trainers 1":  "--trainers: expected",
		"agent walk":        "expected run, serve or help",
		"plan --file x.yml": "x.yml",
	} {
		exit, _, err := run(t, strings.Fields(line)...)
		if exit != exitUsage || !strings.Contains(err.Error(), says) {
			t.Errorf("reknit %s: status %d and %v, expected %d and something of %s", line, exit, err, exitUsage, says)
		}
	}
}

func TestWithoutACommandAllAreListed(t *testing.T) {
	for _, line := range [][]string{nil, {"help"}, {"--help"}, {"-h"}} {
		exit, printed, err := run(t, line...)
		if exit != 0 || !strings.Contains(printed, "Exit status: 0 done") || !strings.Contains(printed, "\n  negotiator ") {
			t.Errorf("reknit %v: status %d, %v, and\n%s", line, exit, err, printed)
		}
	}
}

func TestAShellCompletesCommandsAndFlags(t *testing.T) {
	for line, completes := range map[string]string{"pla": "planner\t", "plan --fi": "--file\t", "monitor h": "healthcheck\n"} {
		_, printed, err := run(t, append([]string{"__complete"}, strings.Fields(line)...)...)
		if err != nil || !strings.Contains(printed, completes) {
			t.Errorf("reknit %s: completes to %q, %v, expected %q among them", line, printed, err, completes)
		}
	}
}

func TestAShellOffersFilesWhereFilesAreExpectedAndNowhereElse(t *testing.T) {
	for line, isFile := range map[string]bool{
		"audit verify": true, "audit record": true, "plan --file": true, "drain": false, "history": false, "cluster remove": false, "status": false,
	} {
		_, printed, err := run(t, append(append([]string{"__complete"}, strings.Fields(line)...), "")...)
		if directive := map[bool]string{true: ":0\n", false: ":4\n"}[isFile]; err != nil || !strings.HasSuffix(printed, directive) {
			t.Errorf("reknit %s: completes to %q, %v, expected files: %v", line, printed, err, isFile)
		}
	}
}
