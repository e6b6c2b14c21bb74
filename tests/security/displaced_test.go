package security

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// TestNobodysWordsDisplaceAnothers has a kit that never joined say more on each subject of a node's words than the log keeps of one. Offers
// of a unit had one subject for all who hold it: a restorer that was started anew found none, and the giver was taken for silent.
func TestNobodysWordsDisplaceAnothers(t *testing.T) {
	m := newMatrix(t)
	stranger, victim := m.attacker("n3"), m.attacker("n2")
	log, err := m.reader.JetStream().Stream(t.Context(), events.Lane(cluster, events.EventStream.Name))
	if err != nil {
		t.Fatal(err)
	}
	rows, said := m.said(victim)
	for i, message := range said {
		answer, refused, err := victim.publish(message)
		if err != nil || refused || answer == nil {
			t.Fatalf("%s: a node may not say it: %v", rows[i].Kind, err)
		}
		its, err := log.GetLastMsgForSubject(t.Context(), message.Subject)
		if err != nil {
			t.Fatal(err)
		}
		for range events.EventStream.Newest - 1 {
			if err := stranger.conn.PublishMsg(&nats.Msg{Subject: message.Subject, Data: []byte("{}")}); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := stranger.publish(&nats.Msg{Subject: message.Subject, Data: []byte("{}")}); err != nil { // behind those
			t.Fatal(err)
		}
		if _, err := log.GetMsg(t.Context(), its.Sequence); errors.Is(err, jetstream.ErrMsgNotFound) {
			t.Errorf("%s: what a node said is gone from the log for what another said on %s", rows[i].Kind, message.Subject)
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
