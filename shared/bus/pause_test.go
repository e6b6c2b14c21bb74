package bus

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The clock is the test's own.
func TestARepeatFollowsAReconnectionAtOnceAndPausesAreShortAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Bus{}
		connect := func() context.CancelFunc {
			lasts, end := context.WithCancel(t.Context())
			b.connection.Store(&connection{lasts: lasts, end: end})
			return end
		}
		end, began, tries := connect(), time.Now(), 0
		var pauses []time.Duration
		err := b.Repeat(t.Context(), "write down", func(context.Context) error {
			if tries++; tries > 1 {
				pauses = append(pauses, time.Since(began))
			}
			began = time.Now()
			switch tries {
			case 8: // by now pauses are as long as they get
				time.AfterFunc(100*time.Millisecond, func() { before := end; end = connect(); before() })
			case 10:
				return nil
			}
			return errors.New("the pen is empty")
		})
		if err != nil || len(pauses) != 9 {
			t.Fatalf("%v after the pauses %v", err, pauses)
		}
		if longest := pauses[6]; longest < lastRepeatWait/2 {
			t.Errorf("pauses are %v, expected that the seventh is a second at least", pauses)
		}
		if at := pauses[7]; at != 100*time.Millisecond {
			t.Errorf("it is repeated %v after the failure, expected with the reconnection after 100 ms", at)
		}
		if next := pauses[8]; next > 2*firstRepeatWait {
			t.Errorf("behind the reconnection the pause is %v, expected at most %v", next, 2*firstRepeatWait)
		}
		end()
	})
}
