package security

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/permission"
)

// TestNoConsumerOfANodeReachesAService has a kit make consumers that deliver what it says to where services are asked whether they work.
// The server delivers in the account of the services, where the kit may publish nothing, and as quickly as it reads: a
// service's connection was ended as that of a slow consumer.
func TestNoConsumerOfANodeReachesAService(t *testing.T) {
	m := newMatrix(t)
	attacker := m.attacker("n3")
	asked := map[string]*nats.Subscription{}
	for n, service := range permission.Services {
		b := m.connect(service)
		heard, err := b.Conn().SubscribeSync(events.LeaseSubject(cluster, service, events.AnySpeaker(b.Secured())))
		if err == nil {
			err = b.Conn().Flush()
		}
		if err != nil {
			t.Fatal(err)
		}
		asked[service] = heard
		for _, speaker := range []string{"", "*", attacker.key, m.key("user")} {
			attacker.deliver(events.Readers(attacker.key)[n], events.LeaseSubject(cluster, service, speaker))
			_, said := m.said(attacker)
			if answer, refused, err := attacker.publish(said[0]); err != nil || refused || answer == nil {
				t.Fatalf("nothing is said: refused %v, %v", refused, err)
			}
		}
	}
	time.Sleep(time.Second) // nothing comes where nobody delivers
	for service, heard := range asked {
		if pending, _, err := heard.Pending(); pending > 0 || err != nil {
			t.Errorf("the %s heard %d messages of a node: %v", service, pending, err)
		}
	}
}

// deliver has the log deliver what the attacker said to a subject, by a consumer that the attacker may make.
func (a *attacker) deliver(name, subject string) {
	a.Helper()
	lane := events.Lane(cluster, events.EventStream.Name)
	_, _, _ = a.publish(&nats.Msg{Subject: fmt.Sprintf("%s.CONSUMER.DELETE.%s.%s", a.api, lane, name)})
	answer, refused, err := a.publish(a.creates(lane, name, subject))
	if err != nil || refused || answer == nil {
		a.Fatalf("no consumer: refused %v, %v", refused, err)
	}
}

// creates is a request for a consumer, which delivers to a subject where that is not empty.
func (a *attacker) creates(stream, name, subject string) *nats.Msg {
	config := fmt.Sprintf(`{"stream_name":%q,"config":{"name":%q,"deliver_subject":%q,"ack_policy":"none","mem_storage":true}}`,
		stream, name, subject)
	return &nats.Msg{Subject: fmt.Sprintf("%s.CONSUMER.CREATE.%s.%s", a.api, stream, name), Data: []byte(config)}
}

// TestAnInstitutionKeepsNoServiceFromReadingTheLog has an institution enrol 256 nodes, each of which makes all the consumers of the log
// that it may. A service that starts behind them reads the log. A server takes 1,000 consumers of a stream by default.
func TestAnInstitutionKeepsNoServiceFromReadingTheLog(t *testing.T) {
	p := open(t)
	service := p.connect("negotiator")
	if err := service.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	var names []string
	for n := range 256 {
		names = append(names, fmt.Sprint("x", n))
	}
	p.provision(optionsOf("beta", names...))
	lane := events.Lane(cluster, events.EventStream.Name)
	for _, name := range names {
		attacker := p.attacker(name)
		for _, consumer := range events.Readers(attacker.key) {
			if err := attacker.conn.PublishMsg(attacker.creates(lane, consumer, "")); err != nil {
				t.Fatal(err)
			}
		}
		if err := attacker.conn.FlushTimeout(10 * time.Second); err != nil {
			t.Fatal(err)
		}
		attacker.conn.Close()
	}
	consumer, err := service.Consume(t.Context(), "service", 0, []string{events.EventSubject(cluster, "*.*", "*")})
	if err != nil {
		t.Fatalf("a service that starts: %v", err)
	}
	consumer.Stop()
}

// TestANodeReadsByAHandfulOfConsumers has a kit make consumers of every stream, under names of its own, the library's and others'. A
// thousand of them on the rendezvous kept all trainers of others from meeting, and outlived their maker's revocation.
func TestANodeReadsByAHandfulOfConsumers(t *testing.T) {
	m := newMatrix(t)
	for _, attacker := range []*attacker{m.attacker("n3"), m.attacker("user")} {
		made := map[string]int{}
		for _, stream := range streams {
			names := append(events.Readers(attacker.key), attacker.key+"-5", m.key("n1"), "x", "y.$KV."+stream[3:]+"."+cluster+".1.x")
			for _, name := range names {
				answer, _, err := attacker.publish(attacker.creates(stream, name, ""))
				if err != nil {
					t.Fatal(err)
				}
				if answer != nil {
					made[stream]++
				}
			}
		}
		for stream, count := range made {
			if most := events.MostReaders; !strings.HasPrefix(stream, "REKNIT_") || count > most {
				t.Errorf("%s may ask for %d consumers of %s, expected at most %d of the log and of plans",
					attacker.name, count, stream, most)
			}
		}
	}
}
