package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/reknit/reknit/tests/invariants"
)

// playTimeout is far beyond what a seed takes: a run that is stuck gives itself up before.
const playTimeout = 10 * time.Minute

// report is what the command writes, as far as it is judged here.
type report struct {
	Digest       string   `json:"digest"`
	OracleDigest string   `json:"oracleDigest"`
	Error        string   `json:"error"`
	Changes      []change `json:"changes"`
}

type change struct {
	Action          string   `json:"action"`
	Kind            string   `json:"kind"`
	Step            uint64   `json:"step"`
	UnderWay        []string `json:"underWay"`
	Healed          bool     `json:"healed"`
	Generation      uint64   `json:"generation"`
	NextStepSeconds float64  `json:"nextStepSeconds"`
	StallSeconds    float64  `json:"stallSeconds"`
	StallSteps      float64  `json:"stallSteps"`
}

// outcome is how a seed ended. Nothing is wrong with it when faults is empty.
type outcome struct {
	churn      churn
	report     report
	events     int
	plans      int
	violations int
	faults     []string
	elapsed    time.Duration
	directory  string
	replay     string
}

// play runs a seed and judges it. The directory stays when something is wrong.
func play(ctx context.Context, reknit string, churn churn) outcome {
	result := outcome{churn: churn}
	directory, err := os.MkdirTemp("", fmt.Sprintf("reknit-chaos-%d-", churn.Seed))
	if err != nil {
		result.fault("%v", err)
		return result
	}
	result.directory = directory
	if err := os.WriteFile(result.path("script"), []byte(churn.Script), 0o644); err != nil {
		result.fault("%v", err)
		return result
	}
	result.run(ctx, reknit)
	result.judgeReport()
	result.judgeLog()
	if len(result.faults) == 0 {
		if err := os.RemoveAll(directory); err != nil {
			result.fault("%v", err)
		}
	}
	return result
}

func (o *outcome) fault(format string, args ...any) {
	o.faults = append(o.faults, fmt.Sprintf(format, args...))
}

func (o *outcome) path(name string) string { return filepath.Join(o.directory, name) }

// run plays the script with the command under test.
func (o *outcome) run(ctx context.Context, reknit string) {
	ctx, cancel := context.WithTimeout(ctx, playTimeout)
	defer cancel()
	arguments := append([]string{"dev"}, o.churn.flags()...)
	command := exec.CommandContext(ctx, reknit, append(arguments,
		"--script", o.path("script"), "--report", o.path("report.json"), "--log", o.path("log.jsonl"), "--dir", o.path("cluster"))...)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = 20 * time.Second
	o.replay = strings.Join(command.Args, " ")
	if o.churn.Follows {
		const follow = "REKNIT_PRECOPY_STEPS=0"
		command.Env = append(os.Environ(), follow)
		o.replay = follow + " " + o.replay
	}
	began := time.Now()
	output, err := command.CombinedOutput()
	o.elapsed = time.Since(began)
	if err == nil {
		return
	}
	o.fault("%v: %s", err, lastLine(string(output)))
	if err := os.WriteFile(o.path("output"), output, 0o644); err != nil {
		o.fault("%v", err)
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// judgeReport checks that everything the script did was done and healed, and that the model is the right one.
func (o *outcome) judgeReport() {
	data, err := os.ReadFile(o.path("report.json"))
	if err == nil {
		err = json.Unmarshal(data, &o.report)
	}
	if err != nil {
		o.fault("report: %v", err)
		return
	}
	if o.report.Digest == "" || o.report.Digest != o.report.OracleDigest {
		o.fault("digest %q, the oracle's is %q", o.report.Digest, o.report.OracleDigest)
	}
	if len(o.report.Changes) != o.churn.Actions {
		o.fault("%d of %d actions were done", len(o.report.Changes), o.churn.Actions)
	}
	for _, change := range o.report.Changes {
		if !change.Healed {
			o.fault("not healed: %s", change.Action)
		}
		if change.Step >= o.churn.Steps {
			o.fault("training was complete before %s: the script needs more steps on this machine", change.Action)
		}
	}
}

// judgeLog checks the invariants on the recorded log.
func (o *outcome) judgeLog() {
	file, err := os.Open(o.path("log.jsonl"))
	if err != nil {
		o.fault("log: %v", err)
		return
	}
	defer file.Close()
	log, err := invariants.Read(file)
	if err != nil {
		o.fault("log: %v", err)
		return
	}
	o.events, o.plans = len(log.Events), len(log.Plans)
	for _, violation := range log.Check() {
		o.violations++
		o.fault("%v", violation)
	}
	for _, change := range o.report.Changes {
		if change.Generation > uint64(o.plans) {
			o.fault("log: %s healed with generation %d, the log has %d plans", change.Action, change.Generation, o.plans)
		}
	}
}

// String is the seed's line, and what is needed to look closer where something is wrong.
func (o outcome) String() string {
	verdict := "equal digests"
	if len(o.faults) > 0 {
		verdict = "FAILED"
	}
	line := fmt.Sprintf("seed %d: %s; %d trainers, %d steps, %d changes, %d plans, %d events, %d violations, %.0f s",
		o.churn.Seed, verdict, o.churn.Trainers, o.churn.Steps, len(o.report.Changes), o.plans, o.events, o.violations, o.elapsed.Seconds())
	if len(o.faults) == 0 {
		return line
	}
	return fmt.Sprintf("%s\n  %s\n  script, report, log and processes' logs: %s\n  replay: %s",
		line, strings.Join(o.faults, "\n  "), o.directory, o.replay)
}
