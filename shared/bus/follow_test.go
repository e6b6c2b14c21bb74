package bus_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
)

func TestAFollowerSeesEachEventOnceInOrderFromWhereItAsks(t *testing.T) {
	ctx, b := newBus(t)
	var acks []bus.Ack
	for i := range 4 {
		if i == 2 {
			if _, err := b.JetStream().Publish(ctx, events.EventSubject(cluster, events.NodeLost, "n9"), []byte("nonsense")); err != nil {
				t.Fatal(err)
			}
		}
		acks = append(acks, publish(t, ctx, b, lost(fmt.Sprintf("n%d", i), "")))
	}
	follow := func(from bus.Position) <-chan string {
		heard := make(chan string, 16)
		stop, err := b.Follow(ctx, events.EventStream, allOfTest, from, func(event events.Event) { heard <- event.Subject })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
		return heard
	}
	all, some, none := follow(bus.All), follow(bus.AfterSequence(acks[1].Sequence)), follow(bus.New)
	publish(t, ctx, b, lost("late", ""))
	for want, heard := range map[string]<-chan string{"n0 n1 n2 n3 late": all, "n2 n3 late": some, "late": none} {
		for _, node := range strings.Fields(want) {
			select {
			case got := <-heard:
				if got != node {
					t.Errorf("expected %s of %s, got %s", node, want, got)
				}
			case <-ctx.Done():
				t.Fatalf("nothing heard, expected %s of %s", node, want)
			}
		}
	}
}

// A thousand nodes come back at once, and each request more makes all of them later.
func TestAFollowerWhoseConsumerNobodyElseCanNameAsksNothingAboutIt(t *testing.T) {
	ctx, b := newBus(t)
	asked, err := b.Conn().SubscribeSync("$JS.API.CONSUMER.INFO.>")
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan string, 1)
	stop, err := b.Follow(ctx, events.EventStream, allOfTest, bus.All, func(event events.Event) { heard <- event.Subject })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	publish(t, ctx, b, lost("n1", ""))
	<-heard
	if request, err := asked.NextMsg(1500 * time.Millisecond); err == nil {
		t.Errorf("it asked %s", request.Subject)
	}
}

// A newcomer that has heard nothing yet loses its consumer with the server, and the first event comes before it is
// back.
func TestAFollowerOfNewEventsHearsWhatCameWhileItWasAway(t *testing.T) {
	config := embedded.Config{StoreDir: t.TempDir()}
	server, err := embedded.Start(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(server.URL(), "nats://127.0.0.1:%d", &config.Port); err != nil {
		t.Fatal(err)
	}
	ctx, b := connect(t, server.URL(), cluster)
	if err := b.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	publish(t, ctx, b, lost("before", ""))
	heard := make(chan string, 1)
	stop, err := b.Follow(ctx, events.EventStream, allOfTest, bus.New, func(event events.Event) { heard <- event.Subject })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	server.Shutdown()
	if server, err = embedded.Start(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Shutdown() })
	_, other := connect(t, server.URL(), cluster)
	publish(t, ctx, other, lost("meanwhile", ""))
	select {
	case node := <-heard:
		if node != "meanwhile" {
			t.Errorf("heard %s", node)
		}
	case <-ctx.Done():
		t.Error("heard nothing")
	}
}

// One malformed message at the end of its log, and each command took five seconds.
func TestAReaderEndsBehindALastMessageThatIsRefused(t *testing.T) {
	ctx, b := newBus(t)
	publish(t, ctx, b, lost("n1", ""))
	refused, err := b.JetStream().Publish(ctx, events.EventSubject(cluster, events.NodeLost, "n9"), []byte("nonsense"))
	if err != nil {
		t.Fatal(err)
	}
	later := publish(t, ctx, b, lost("later", ""))
	read := func(after, end uint64, subjects []string) (heard string) {
		err := b.Read(ctx, events.EventStream, subjects, after, end, func(event events.Event) { heard += event.Subject + " " })
		if err != nil {
			t.Error(err)
		}
		return heard
	}
	if heard := read(later.Sequence, later.Sequence+1, allOfTest); heard != "" {
		t.Errorf("its last message is gone: read %q, expected nothing", heard)
	}
	bus.SetLostAfter(t, time.Hour) // who waits does not end
	if heard := read(0, refused.Sequence, allOfTest); heard != "n1 " {
		t.Errorf("read %q: expected n1 alone", heard)
	}
	others := []string{events.EventSubject(cluster, events.NodeLost, "n1"), events.EventSubject(cluster, events.NodeLost, "later")}
	if heard := read(0, refused.Sequence, others); heard != "n1 " {
		t.Errorf("its last message is none of these: read %q, expected n1 and nothing behind that", heard)
	}
}

// What a reader has not fetched yet may be dropped while it handles what it has.
func TestAReaderEndsWhereWhatWasPendingIsDropped(t *testing.T) {
	ctx, b := newBus(t)
	var last bus.Ack
	for n := range 600 {
		last = publish(t, ctx, b, lost(fmt.Sprint("n", n), ""))
	}
	drop := func() {
		stream, err := b.JetStream().Stream(ctx, b.Lane(events.EventStream.Name))
		if err != nil {
			t.Fatal(err)
		}
		config := stream.CachedInfo().Config
		config.MaxAge, config.Duplicates = time.Second, time.Second
		if _, err := b.JetStream().UpdateStream(ctx, config); err != nil {
			t.Fatal(err)
		}
		for state := stream.CachedInfo().State; state.Msgs > 0; state = stream.CachedInfo().State {
			time.Sleep(50 * time.Millisecond)
			if _, err := stream.Info(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	heard := 0
	err := b.Read(ctx, events.EventStream, allOfTest, 0, last.Sequence, func(events.Event) {
		if heard++; heard == 1 {
			drop()
		}
	})
	if err != nil || heard == 0 || heard == 600 {
		t.Errorf("heard %d of 600 events, %v: expected those that it had, and an end", heard, err)
	}
}

// The record of an audit may wait for the server for longer than a reader waits for a message.
func TestAReaderWaitsForWhoHandlesAnEvent(t *testing.T) {
	ctx, b := newBus(t)
	publish(t, ctx, b, lost("n1", ""))
	last := publish(t, ctx, b, lost("n2", ""))
	heard := 0
	err := b.Read(ctx, events.EventStream, allOfTest, 0, last.Sequence, func(events.Event) {
		heard++
		time.Sleep(2500 * time.Millisecond)
	})
	if err != nil || heard != 2 {
		t.Errorf("heard %d events, %v: expected both", heard, err)
	}
}
