package dev

import (
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
