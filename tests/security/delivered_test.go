package security

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/permission"
)

// TestNoConsumerOfANodeReachesAService has a kit make consumers that deliver what it puts into the rendezvous bucket to where services are
// asked whether they work. The server delivers in the account of the services, where the kit may publish nothing, and as quickly
// as it reads: a service's connection was ended as that of a slow consumer.
func TestNoConsumerOfANodeReachesAService(t *testing.T) {
	p := open(t)
	if err := p.connect("negotiator").Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	attacker, lane := p.attacker("n3"), events.Lane(cluster, events.RendezvousBucket)
	asked := map[string]*nats.Subscription{}
	for _, service := range permission.Services {
		b := p.connect(service)
		heard, err := b.Conn().SubscribeSync(events.LeaseSubject(cluster, service, events.AnySpeaker(b.Secured())))
		if err == nil {
			err = b.Conn().Flush()
		}
		if err != nil {
			t.Fatal(err)
		}
		asked[service] = heard
		for _, speaker := range []string{"", "*", attacker.key, p.key("user")} {
			attacker.deliver(lane, "to-"+service+"-"+speaker, events.LeaseSubject(cluster, service, speaker))
		}
	}
	for range 5 {
		put := &nats.Msg{Subject: fmt.Sprintf("%s.$KV.%s.%s.1.x", attacker.api, lane, cluster), Data: []byte("{}")}
		answer, refused, err := attacker.publish(put)
		if err != nil || refused || answer == nil {
			t.Fatalf("nothing is put: refused %v, %v", refused, err)
		}
	}
	time.Sleep(time.Second) // nothing comes where nobody delivers
	for service, heard := range asked {
		if pending, _, err := heard.Pending(); pending > 0 || err != nil {
			t.Errorf("the %s heard %d messages of a node: %v", service, pending, err)
		}
	}
}

// deliver has a bucket deliver a key of the attacker's to a subject.
func (a *attacker) deliver(lane, name, subject string) {
	a.Helper()
	name, filter := a.key[:8]+events.Digest([]byte(name))[7:15], fmt.Sprintf("$KV.%s.%s.1.x", lane, cluster)
	config := fmt.Sprintf(`{"stream_name":"KV_%s","config":{"name":%q,"deliver_subject":%q,"ack_policy":"none","mem_storage":true,`+
		`"filter_subject":%q}}`, lane, name, subject, filter)
	create := &nats.Msg{Subject: fmt.Sprintf("%s.CONSUMER.CREATE.KV_%s.%s.%s", a.api, lane, name, filter), Data: []byte(config)}
	if answer, refused, err := a.publish(create); err != nil || !refused && answer == nil {
		a.Fatalf("no consumer, and no refusal: %v", err)
	}
}
