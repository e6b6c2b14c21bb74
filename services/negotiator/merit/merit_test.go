package merit

import (
	"slices"
	"testing"
)

func TestWhoFailsAgainAndAgainWaitsLongerEachTimeAndNeverForLongerThanFiveMinutes(t *testing.T) {
	var waits []float64
	failures := 0.0
	for range 13 {
		failures = After(failures, 0, 0, 1)
		waits = append(waits, Wait(failures))
	}
	if want := []float64{0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300}; !slices.Equal(waits, want) {
		t.Errorf("waits %v", waits)
	}
}

func TestTimeLivedWinsMeritBackAndTimeAwayDoesNot(t *testing.T) {
	for _, test := range []struct {
		what               string
		before, ago, lived float64
		want               float64
	}{
		{"it failed at once", 4, 5, 0, 8},
		{"it was away for an hour", 4, 3600, 0, 8},
		{"it lived for twenty minutes", 4, 1200, 1200, 4},
		{"it lived for an hour", 4, 3600, 3600, 2},
		{"it lived for longer than it takes", 1, 3700, 3700, 0},
		{"it was away for long", 11, 7201, 0, 0},
		{"it failed many times and lived for an hour", 11, 3600, 3600, 256},
	} {
		if got := Wait(After(test.before, test.ago, test.lived, 1)); got != test.want {
			t.Errorf("%s: waits %v s, expected %v", test.what, got, test.want)
		}
	}
}

// A node that lives for ten minutes each time was never made to wait: ten minutes without a restart were a clean slate.
func TestANodeThatLivesForTenMinutesEachTimeIsMadeToWaitInTheEnd(t *testing.T) {
	failures := 0.0
	for range 20 {
		failures = After(failures, 660, 660, 1)
	}
	if wait := Wait(failures); wait < 60 {
		t.Errorf("after 20 failures it waits %v s", wait)
	}
}

func TestANodeThatFailsOnceAnHourNeverWaits(t *testing.T) {
	failures := 0.0
	for range 100 {
		failures = After(failures, 3600, 3600, 1)
		if wait := Wait(failures); wait > 0 {
			t.Fatalf("it waits %v s", wait)
		}
	}
}
