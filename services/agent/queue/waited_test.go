package queue

import (
	"math"
	"testing"
	"time"
)

func TestHowLongASourceIsWaitedForIsKnownWithoutWhatItsFirstBytesTook(t *testing.T) {
	s, at := NewSource("n1", 0), time.Unix(1000, 0)
	after := func(d time.Duration) time.Time { return at.Add(d) }
	if s.Waited(at) != 0 {
		t.Error("a source that was not asked was waited for")
	}
	s.meter.start(at)
	s.meter.add(1e6, after(400*time.Millisecond)) // 0.3 s for nothing, then 10 MB/s
	s.meter.add(9e6, after(1300*time.Millisecond))
	s.meter.stop(after(1300 * time.Millisecond))
	s.meter.start(after(5 * time.Second)) // what it is asked for later tells nothing more
	s.meter.add(1e6, after(5100*time.Millisecond))
	if waited := s.Waited(after(5100 * time.Millisecond)); math.Abs(waited-0.3) > 0.03 {
		t.Errorf("waited for %v s, expected 0.3", waited)
	}
}
