package fence

import (
	"testing"
	"time"
)

func TestANodeThatTheHubDoesNotHearIsCutOffOnceAndAgainAfterItWasHeard(t *testing.T) {
	began := time.Unix(0, 0)
	h := Hearing{Last: began}
	cuts := []int{}
	for second := 1; second <= 100; second++ {
		hears := second == 5 || second == 50
		if h.CutOff(began.Add(time.Duration(second)*time.Second), hears, UnheardFor) {
			cuts = append(cuts, second)
		}
	}
	if len(cuts) != 2 || cuts[0] != 25 || cuts[1] != 70 {
		t.Errorf("it is cut off at %v: expected 20 s after each time that it was heard", cuts)
	}
}

// The monitor gives a node up that others reach after 60 s of silence.
func TestAScriptThatIsCutOffHasEndedBeforeTheOthersMayStart(t *testing.T) {
	if Ended >= 60*time.Second {
		t.Errorf("it may run for %v", Ended)
	}
}
