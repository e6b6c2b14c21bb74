package security

import (
	"encoding/json"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
)

// mostDialled is how often a node may have two others dial an address of its choice in asksFor, however often it asks: once each in
// the negotiations that its requests open, which come further and further apart, and each second as a member of one that falls silent.
const (
	mostDialled = 40
	asksFor     = 15 * time.Second
	leastAsked  = 80 // requests, however long they take
	asksLongest = 3 * time.Minute
)

// callers listens where nobody of the cluster does, and counts who calls.
func callers(t *testing.T) (address string, called *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	called = new(atomic.Int64)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			called.Add(1)
			connection.Close()
		}
	}()
	return listener.Addr().String(), called
}

// TestWhoAsksForAPlaceHasItsAddressDialledSeldom has a kit, whose process shows no life but to the hub, ask for a place six times a
// second with the address of somebody else. The monitor's own tests show which addresses nobody dials.
func TestWhoAsksForAPlaceHasItsAddressDialledSeldom(t *testing.T) {
	t.Parallel()
	p := open(t)
	w := p.trainTwo(nil)
	w.await(events.PlanActivated)
	joins := events.EventSubject(cluster, events.JoinRequested, p.key("n1"))
	asked, found, err := p.connect("user").LastEvent(w.ctx, events.EventStream, joins)
	var join events.Join
	if err == nil && found {
		err = json.Unmarshal(asked.Data, &join)
	}
	if err != nil || !found {
		t.Fatalf("nobody joined: %v", err)
	}
	attacker := p.attacker("n3")
	if _, err := attacker.conn.Subscribe(events.ProbeSubject(cluster, attacker.key), func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	address, called := callers(t)
	join.Node, join.Address, join.ShardAddress = attacker.key, address, ""
	speaker, b := events.Speaker{Source: events.NodeSource(attacker.key), Cluster: cluster}, p.connect("n3")
	said, began := 0, time.Now()
	for ; time.Since(began) < asksFor || said < leastAsked || called.Load() == 0; time.Sleep(166 * time.Millisecond) {
		if said%24 == 0 { // and then it shows no life for long enough to be suspected
			join.Incarnation = fmt.Sprint("i", said)
		}
		if _, err := b.Publish(w.ctx, speaker.First(time.Now(), fmt.Sprint(said), events.JoinRequested, attacker.key, &join)); err != nil {
			t.Fatal(err)
		}
		if said++; time.Since(began) > asksLongest {
			t.Fatalf("%d requests in %v had an address dialled %d times: expected %d requests, and one dial", said, asksLongest, called.Load(), leastAsked)
		}
	}
	took := time.Since(began)
	t.Logf("%d requests in %v had an address dialled %d times", said, took, called.Load())
	if most := mostDialled * took.Seconds() / asksFor.Seconds(); float64(called.Load()) > most {
		t.Errorf("%d requests in %v had an address dialled %d times, expected %.0f at most", said, took, called.Load(), most)
	}
	select {
	case err := <-w.ended:
		t.Errorf("a trainer ended: %v", err)
	default:
	}
}
