package security

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// cut is the words of a user that a link is no longer to be used, as of some time.
func (p *place) cut(id string, at time.Time) words {
	return words{
		ID: id, Type: events.DisconnectRequested.Type(), Source: "/user", Subject: "link-admin1", Cluster: cluster,
		Time: at.UTC().Format(time.RFC3339Nano), Data: fmt.Appendf(nil, `{"from":"%s","to":"%s"}`, p.key("n1"), p.key("n2")),
	}
}

// hears returns what a service takes of the next messages behind a sequence: "" is an event, and else why it is refused.
func (p *place) hears(b *bus.Bus, name string, after uint64, messages int) (took []string) {
	p.Helper()
	consumer, err := b.Consume(p.Context(), name, after, []string{events.EventSubject(cluster, events.DisconnectRequested, "*")})
	if err != nil {
		p.Fatal(err)
	}
	defer consumer.Stop()
	for range messages {
		sealed, err := consumer.Next(p.Context())
		if err != nil {
			p.Fatal(err)
		}
		delivery, err := sealed.Open(p.Context(), nil)
		if err != nil {
			p.Fatal(err)
		}
		delivery.Done()
		took = append(took, reasonOf(delivery))
	}
	return took
}

// TestARequestCountsOnceAndOnlyFromWhoSignedIt has a kit that never joined repeat a user's signed request to cut a link of two others,
// under another message id; then whoever runs a server of a site does, who may say what anybody says, and says one that was held back.
func TestARequestCountsOnceAndOnlyFromWhoSignedIt(t *testing.T) {
	p := open(t)
	service := p.connect("negotiator")
	if err := service.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	user, stranger := p.attacker("user"), p.attacker("n3")
	subject := events.EventSubject(cluster, events.DisconnectRequested, "link-admin1")
	say := func(by *attacker, data []byte, id string) (refused bool) {
		t.Helper()
		_, refused, err := by.publish(&nats.Msg{Subject: subject, Data: data, Header: nats.Header{"Nats-Msg-Id": {id}}})
		if err != nil {
			t.Fatal(err)
		}
		return refused
	}
	once, late := user.sign(p.cut("once", time.Now())), user.sign(p.cut("late", time.Now().Add(-time.Hour)))
	if say(user, once, "a") {
		t.Fatal("a user may not ask for a change of links")
	}
	if !say(stranger, once, "b") {
		t.Error("a kit said a user's words again")
		t.Log(p.hears(service, "red", 0, 2))
		return
	}
	say(user, once, "c")
	say(user, late, "d")
	if took, want := p.hears(service, "first", 0, 3), []string{"", bus.Repeated, bus.Stale}; !slices.Equal(took, want) {
		t.Errorf("a service took %q, expected %q", took, want)
	}
	if took, want := p.hears(service, "next", 1, 2), []string{bus.Repeated, bus.Stale}; !slices.Equal(took, want) {
		t.Errorf("a service that starts behind the first took %q, expected %q", took, want)
	}
}

// TestARequestThatWaitedIsSignedAnew has a user publish a request that it made an hour ago.
func TestARequestThatWaitedIsSignedAnew(t *testing.T) {
	p := open(t)
	service := p.connect("negotiator")
	if err := service.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	speaker := events.Speaker{Source: "/user", Cluster: cluster}
	cut := speaker.First(time.Now().Add(-time.Hour), "cut", events.DisconnectRequested, "cut",
		&events.LinkRequest{From: p.key("n1"), To: p.key("n2")})
	user := p.connect("user")
	if _, err := user.Publish(t.Context(), cut); err != nil {
		t.Fatal(err)
	}
	if again, err := user.Publish(t.Context(), cut); err != nil || !again.Duplicate { // its acknowledgement was lost
		t.Errorf("signed anew once more, it is taken for other words: %+v, %v", again, err)
	}
	if took := p.hears(service, "service", 0, 1); took[0] != "" {
		t.Errorf("a service refused it: %s", took[0])
	}
}
