package service_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/service"
)

// quiet is a mortal that says nothing of some nodes.
type quiet struct{ mortal }

func (q *quiet) Handle(event events.Event) ([]events.Event, error) {
	if strings.HasPrefix(event.Subject, "quiet") {
		return nil, nil
	}
	return q.mortal.Handle(event)
}

func TestMessagesOfWhichNothingIsSaidAreAcknowledgedTogether(t *testing.T) {
	f := newFixture(t)
	var acknowledgements atomic.Int32
	_, err := f.bus.Conn().Subscribe("$JS.ACK."+f.bus.Lane(events.EventStream.Name)+".>", func(*nats.Msg) { acknowledgements.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	machine := &quiet{}
	machine.waits = make(chan struct{})
	aborted := f.said(events.Aborted)
	f.run(service.Options{Machine: machine})
	f.lose("n1")
	f.until("it is at the first", machine.asked.Load)
	const many = 40
	for i := range many {
		f.lose(fmt.Sprint("quiet", i))
	}
	f.until("all are with it", func() bool { return f.unacknowledged() == 1+many })
	close(machine.waits)
	f.expect(aborted, "g1")
	f.untilAcknowledged()
	if err := f.bus.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	if count := acknowledgements.Load(); count > many/2 {
		t.Errorf("%d acknowledgements of %d messages", count, 1+many)
	}
}

func TestWhatWasSaidIsAcknowledgedAtOnceThoughMoreIsWaiting(t *testing.T) {
	f := newFixture(t)
	f.lose("n1")
	f.lose("n2")
	machine := &clerk{waits: make(chan struct{})}
	f.run(service.Options{Machine: machine})
	f.until("both are with it", func() bool { return f.unacknowledged() == 2 })
	time.Sleep(50 * time.Millisecond) // until n2 is read, too, of which no sign can be seen
	machine.waits <- struct{}{}       // n1
	began := time.Now()
	f.until("n1 is acknowledged while the machine is at n2", func() bool { return f.unacknowledged() == 1 })
	if took := time.Since(began); took > 4*time.Second { // after five it comes again, and is acknowledged then at the latest
		t.Errorf("acknowledged after %v", took)
	}
	close(machine.waits)
}

// Which event is the deadly one follows from what was acknowledged.
func TestADeadlyEventIsFoundBehindOthersOfWhichNothingIsSaid(t *testing.T) {
	f := newFixture(t)
	refused := f.said(events.EventRefused)
	for i := range 8 {
		f.lose(fmt.Sprint("quiet", i))
	}
	deadly := f.lose("deadly")
	for range 6 {
		running := f.run(service.Options{Machine: &quiet{}})
		dead := make(chan struct{})
		go func() {
			defer close(dead)
			_ = running.end()
		}()
		select {
		case <-dead:
		case record := <-refused:
			if record.Subject != fmt.Sprint(deadly.Sequence) {
				t.Errorf("refused %s, the deadly one is %d", record.Subject, deadly.Sequence)
			}
			return
		}
	}
	t.Error("six instances died, and the next would")
}
