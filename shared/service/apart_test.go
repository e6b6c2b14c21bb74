package service_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/service"
)

func TestWhatWasReadApartIsHeardAgainThoughItsStoreHasDroppedIt(t *testing.T) {
	service.SetRememberAfter(t, time.Hour)
	service.SetEndsWithin(t, 0)
	f := newFixture(t)
	aborted := f.said(events.Aborted)
	first := f.run(service.Options{Machine: &clerk{}})
	f.lose("n1")
	f.loseApart("n2")
	f.lose("n3")
	f.expect(aborted, "g1", "g2", "g3")
	f.untilAcknowledged()
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	f.dropPayloads()
	for range 2 { // the second of them reads what the first left of it
		machine := &clerk{}
		again := f.run(service.Options{Machine: machine})
		f.until("all is heard again", func() bool { return machine.hearings() == 3 })
		if err := again.stop(); err != nil {
			t.Fatal(err)
		}
	}
	f.run(service.Options{Machine: &clerk{}})
	f.lose("n4")
	f.expect(aborted, "g4")
}

func TestWhatIsReadApartIsKeptBeforeAnythingComesOfIt(t *testing.T) {
	service.SetRememberAfter(t, time.Hour)
	f := newFixture(t)
	machine := &clerk{waits: make(chan struct{})}
	f.run(service.Options{Machine: machine})
	f.untilRemembered(1)
	f.loseApart("n1")
	f.until("the machine is asked", machine.asked.Load)
	if f.writes() != 2 {
		t.Errorf("the memory was written %d times, expected its signature and what was read apart", f.writes())
	}
	close(machine.waits)
}

func TestWhatWasReadApartGoesWithTheNextMemory(t *testing.T) {
	f := newFixture(t)
	aborted := f.said(events.Aborted)
	f.run(service.Options{Machine: &clerk{}})
	f.untilRemembered(1)
	for i := range 3 {
		f.loseApart(fmt.Sprint("n", i))
		f.expect(aborted, fmt.Sprint("g", i+1))
		f.untilRemembered(uint64(3 + 2*i)) // with it, and with what the machine became
	}
	entry, err := f.memory()
	if err != nil || len(entry) > 400 {
		t.Errorf("%d bytes, %v", len(entry), err)
	}
}
