package bus

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
)

func TestALiarHasNobodyWaitForLongerThanAFewSecondsOfAMinute(t *testing.T) {
	var a allowance
	start := time.Unix(1000, 0)
	waited := time.Duration(0)
	for i := range 100 {
		waited += a.take(start.Add(time.Duration(i)*time.Second/2), missingAfter)
	}
	if waited != mostMissing {
		t.Errorf("waited for %v of a minute, expected %v", waited, mostMissing)
	}
	if again := a.take(start.Add(time.Minute), missingAfter); again != missingAfter {
		t.Errorf("a minute later %v are allowed, expected %v", again, missingAfter)
	}
}

func TestAWaitThatEndsEarlyCostsWhatItTook(t *testing.T) {
	var a allowance
	now := time.Unix(1000, 0)
	for range 100 { // of honest nodes, whose payloads come within a moment
		if allowed := a.take(now, missingAfter); allowed != missingAfter {
			t.Fatalf("%v are allowed, expected %v", allowed, missingAfter)
		}
		a.giveBack(missingAfter - time.Millisecond)
	}
}

func TestWhatANodeNamesAndSoonStoresLeavesTheWholePatienceToTheNext(t *testing.T) {
	b := &Bus{conn: new(nats.Conn)}
	for range 100 {
		w := b.waitFor(events.Event{Source: events.NodeSource("n1")}, reading{patience: unreadableAfter})
		if w.over(true) || w.patience != missingAfter {
			t.Fatalf("%v are allowed, expected %v", w.patience, missingAfter)
		}
		w.end() // it was there a moment later
	}
}
