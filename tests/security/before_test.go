package security

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// distant forwards connections to a server of which each message takes some time to come.
func distant(t *testing.T, server string, delay time.Duration) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", server)
			if err != nil {
				near.Close()
				continue
			}
			go forward(near, far, delay)
			go forward(far, near, delay)
		}
	}()
	return "nats://" + listener.Addr().String()
}

// forward writes what it reads as much later, until one of both connections is closed.
func forward(from, to net.Conn, delay time.Duration) {
	type piece struct {
		due  time.Time
		data []byte
	}
	pieces := make(chan piece, 1<<16)
	defer close(pieces)
	go func() {
		defer to.Close()
		for piece := range pieces {
			time.Sleep(time.Until(piece.due))
			_, _ = to.Write(piece.data) // the reader sees the end
		}
	}()
	for {
		data := make([]byte, 32<<10)
		n, err := from.Read(data)
		if err != nil {
			return
		}
		pieces <- piece{time.Now().Add(delay), data[:n]}
	}
}

// TestAServiceStartsHoweverMuchWasAskedForBefore has a user ask for 1,000 cuts and a kit fill the subjects of what it may ask for with
// messages of 60 KB. A service that starts behind them, 6 ms away, hears the next request at once, and knows what it heard before of the
// kit.
func TestAServiceStartsHoweverMuchWasAskedForBefore(t *testing.T) {
	p := open(t)
	service := p.connect("negotiator")
	if err := service.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	user, liar := p.attacker("user"), p.attacker("n3")
	ask := func(by *attacker, kind events.Kind, w words) {
		t.Helper()
		w.Type = kind.Type()
		if _, _, err := by.publish(&nats.Msg{Subject: events.EventSubject(cluster, kind, w.Subject), Data: by.sign(w)}); err != nil {
			t.Fatal(err)
		}
	}
	lie := func(kind events.Kind, n int) {
		w := p.cut(fmt.Sprint("lie", n), time.Now())
		w.Source, w.Subject, w.Data = events.NodeSource(liar.key), liar.key, []byte(`{"x":[`+strings.Repeat("1,", 30_000)+`1]}`)
		ask(liar, kind, w)
	}
	for n := range 1000 {
		w := p.cut(fmt.Sprint("cut", n), time.Now())
		w.Subject = fmt.Sprint("link", n)
		ask(user, events.DisconnectRequested, w)
	}
	for _, kind := range []events.Kind{events.JoinRequested, events.LeaveRequested} {
		for n := range events.EventStream.Newest {
			lie(kind, n)
		}
	}
	after := p.end(service)
	ask(user, events.DisconnectRequested, p.cut("next", time.Now()))
	lie(events.LeaveRequested, 1)

	server, err := url.Parse(p.url)
	if err != nil {
		t.Fatal(err)
	}
	p.url = distant(t, server.Host, 3*time.Millisecond)
	service = p.connect("negotiator")
	consumer, err := service.Consume(t.Context(), "next", after, []string{events.EventSubject(cluster, "*.*", "*")})
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Stop()
	for _, row := range []struct {
		within time.Duration
		reason string
	}{{2 * time.Second, ""}, {20 * time.Second, bus.Repeated}} {
		ctx, cancel := context.WithTimeout(t.Context(), row.within)
		defer cancel()
		sealed, err := consumer.Next(ctx)
		if err != nil {
			t.Fatalf("a service that starts hears nothing within %v: %v", row.within, err)
		}
		delivery, err := sealed.Open(ctx, nil)
		if err != nil {
			t.Fatalf("a service that starts opens nothing within %v: %v", row.within, err)
		}
		if reason := reasonOf(delivery); reason != row.reason {
			t.Errorf("a service takes message %d as %q, expected %q", delivery.Event.Sequence, reason, row.reason)
		}
		delivery.Done()
	}
}

func reasonOf(delivery bus.Delivery) string {
	if delivery.Refusal == nil {
		return ""
	}
	return delivery.Refusal.Reason
}

// end is the last sequence of the log.
func (p *place) end(b *bus.Bus) uint64 {
	p.Helper()
	stream, err := b.JetStream().Stream(p.Context(), b.Lane(events.EventStream.Name))
	if err != nil {
		p.Fatal(err)
	}
	return stream.CachedInfo().State.LastSeq
}
