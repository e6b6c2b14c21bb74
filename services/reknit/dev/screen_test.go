package dev

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestWhoWaitsForTheJudgementSeesHowFarItIs(t *testing.T) {
	var out strings.Builder
	screen := newScreen(&out, false, 330)
	screen.judge(330)
	screen.judged(1) // of a run that has only begun nothing is said
	screen.lastLine = time.Now().Add(-lineEvery)
	screen.judged(40)
	if got := out.String(); got != "judging: step 40 of 330\n" {
		t.Errorf("it says %q", got)
	}
}

func TestWhoIsInterruptedWhileTheModelIsJudgedEndsAtOnce(t *testing.T) {
	interrupted, interrupt := context.WithCancel(t.Context())
	options := Options{Trainers: 6, Pipelines: 2, Steps: 1 << 20, Seed: 1, Cluster: "dev", Page: "none", Dir: t.TempDir()}
	if err := options.completeText(); err != nil {
		t.Fatal(err)
	}
	judged := uint64(0)
	_, err := oracleDigest(interrupted, options, func(steps uint64) { judged = steps; interrupt() })
	if !errors.Is(err, context.Canceled) || judged != 1 {
		t.Errorf("it ends with %v after %d steps", err, judged)
	}
}
