package security

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

// bound is how many bytes the log takes here, where an attacker of a test fills it.
const bound = 48 << 20

// smallLog makes the log as a service does, with another bound.
func (p *place) smallLog() {
	p.Helper()
	sort := events.EventStream
	_, err := p.connect("negotiator").JetStream().CreateStream(p.Context(), jetstream.StreamConfig{
		Name: events.Lane(cluster, sort.Name), Subjects: sort.Subjects(cluster), MaxBytes: bound, MaxAge: sort.MaxAge,
		MaxMsgsPerSubject: int64(sort.Newest), Duplicates: sort.Dedupe, DenyDelete: true, Discard: jetstream.DiscardNew,
	})
	if err != nil {
		p.Fatal(err)
	}
}

// fill says so many bytes on subjects that are the attacker's, each once, 60 KiB at a time.
func (a *attacker) fill(from *int, bytes int) {
	a.Helper()
	data := []byte(strings.Repeat(" ", min(bytes, 60<<10)))
	for ; bytes > 0; bytes -= len(data) {
		*from++
		subject := events.Event{Kind: events.ShardOffered, Cluster: cluster, Subject: fmt.Sprint("unit-", *from)}.SubjectBy(a.key)
		if err := a.conn.PublishMsg(&nats.Msg{Subject: subject, Data: data}); err != nil {
			a.Fatal(err)
		}
	}
	if err := a.conn.FlushTimeout(30 * time.Second); err != nil {
		a.Fatal(err)
	}
}

// says reports whether the log takes what a node says within so long, and where it has it.
func (a *attacker) saysWithin(subject string, longest time.Duration) (sequence uint64, taken bool) {
	a.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		answer, _, err := a.publish(&nats.Msg{Subject: subject, Data: []byte("{}")})
		if err != nil {
			a.Fatal(err)
		}
		var ack struct {
			Seq   uint64
			Error *struct{ Description string }
		}
		if answer != nil && json.Unmarshal(answer.Data, &ack) == nil && ack.Error == nil {
			return ack.Seq, true
		}
		if time.Since(began) > longest {
			return 0, false
		}
	}
}

// isRefusedForRoom reports whether the log says that it has no room for what the attacker says.
func (a *attacker) isRefusedForRoom() bool {
	a.Helper()
	subject := events.EventSubject(cluster, events.NodeProfiled, a.key)
	answer, _, err := a.publish(&nats.Msg{Subject: subject, Data: []byte("{}")})
	if err != nil {
		a.Fatal(err)
	}
	return answer != nil && strings.Contains(string(answer.Data), "maximum bytes exceeded")
}

// fillUp says things until the log takes no more.
func (a *attacker) fillUp(from *int) {
	a.Helper()
	a.fill(from, bound+bound/8)
	for !a.isRefusedForRoom() { // what little is left
		for range 100 {
			a.fill(from, 1)
		}
	}
}

// TestWhoFillsTheLogLosesItsOwnWordsAndStopsNobody has a kit of one institution say thrice as much as the log takes, on subjects without an
// end. A node of another institution is heard all the while, and nothing that it or a service said is gone.
func TestWhoFillsTheLogLosesItsOwnWordsAndStopsNobody(t *testing.T) {
	p := open(t)
	p.smallLog()
	p.services()
	reader := p.connect("negotiator")
	if err := reader.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	liar, victim := p.attacker("n3"), p.attacker("n1")
	subject := events.EventSubject(cluster, events.NodeProfiled, victim.key)
	var said []uint64
	for from := 0; from*(60<<10) < 3*bound; liar.fill(&from, bound/16) {
		sequence, taken := victim.saysWithin(subject, 30*time.Second)
		if !taken {
			t.Fatalf("once another institution has said %d MiB, nothing that a node says is taken for 30 s", from*60>>10)
		}
		said = append(said, sequence)
	}
	log, err := reader.JetStream().Stream(t.Context(), reader.Lane(events.EventStream.Name))
	if err != nil {
		t.Fatal(err)
	}
	for _, sequence := range said {
		if _, err := log.GetMsg(t.Context(), sequence); errors.Is(err, jetstream.ErrMsgNotFound) {
			t.Errorf("sequence %d, which another node said, is gone", sequence)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []events.Kind{events.LeaseTaken, events.EventRefused} {
		_, found, err := reader.LastEvent(t.Context(), events.EventStream, events.EventSubject(cluster, kind, "*"))
		if err != nil || !found {
			t.Errorf("%s, which services said, is gone: %v", kind, err)
		}
	}
}

// TestServicesThatStartBesideALogThatOneFilledGoOn fills the log while no service runs. None can take its lease before there is room.
func TestServicesThatStartBesideALogThatOneFilledGoOn(t *testing.T) {
	p := open(t)
	p.smallLog()
	liar, victim, from := p.attacker("n3"), p.attacker("n1"), 0
	liar.fillUp(&from)
	p.services()
	if _, taken := victim.saysWithin(events.EventSubject(cluster, events.NodeProfiled, victim.key), 30*time.Second); !taken {
		t.Error("no room is made within 30 s of the start")
	}
}

// TestTheKeeperMendsAFullLog fills the log where no service makes room. With the kit of the keeper its bound is raised.
func TestTheKeeperMendsAFullLog(t *testing.T) {
	p := open(t)
	p.smallLog()
	liar, victim := p.attacker("n3"), p.attacker("n1")
	subject := events.EventSubject(cluster, events.NodeProfiled, victim.key)
	from := 0
	liar.fillUp(&from)
	if _, taken := victim.saysWithin(subject, time.Second); taken {
		t.Fatal("the log is not full")
	}
	kit := filepath.Join(p.dir, "operator", "keeper")
	keeper, err := bus.Connect(t.Context(), bus.Config{URL: p.url, Name: "keeper", Cluster: cluster, Kit: kit})
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Close()
	log, err := keeper.JetStream().Stream(t.Context(), events.Lane(cluster, events.EventStream.Name))
	if err != nil {
		t.Fatal(err)
	}
	larger := log.CachedInfo().Config
	larger.MaxBytes = 2 * bound
	if _, err := keeper.JetStream().UpdateStream(t.Context(), larger); err != nil {
		t.Fatal(err)
	}
	if _, taken := victim.saysWithin(subject, 5*time.Second); !taken {
		t.Error("nothing is taken in a log with a larger bound")
	}
}
