package room

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/shared/embedded"
)

const (
	cluster = "test"
	bound   = 16 << 20 // of the log, bytes
)

func TestMain(m *testing.M) {
	slog.SetLogLoggerLevel(slog.LevelError)
	os.Exit(m.Run())
}

// place is a log and a connection to it.
type place struct {
	*testing.T
	bus *bus.Bus
	log jetstream.Stream
}

func open(t *testing.T) *place {
	t.Helper()
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	b, err := bus.Connect(t.Context(), bus.Config{URL: server.URL(), Name: "test", Cluster: cluster})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	sort := events.EventStream
	log, err := b.JetStream().CreateStream(t.Context(), jetstream.StreamConfig{
		Name: b.Lane(sort.Name), Subjects: sort.Subjects(cluster), MaxBytes: bound, MaxAge: sort.MaxAge,
		MaxMsgsPerSubject: int64(sort.Newest), Duplicates: sort.Dedupe, DenyDelete: true, Discard: jetstream.DiscardNew,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &place{t, b, log}
}

// says fills the log with so many bytes of a node, each message on a subject of its own.
func (p *place) says(node string, bytes, each int) {
	p.Helper()
	data := []byte(strings.Repeat(" ", each))
	for i := range bytes / each {
		unit := events.Event{Kind: events.ShardOffered, Cluster: cluster, Subject: fmt.Sprint("unit-", i)}
		p.publish(unit.SubjectBy(node), data)
	}
	p.flush()
}

// services says so many MiB in their name.
func (p *place) services(megabytes int) {
	p.Helper()
	for i := range megabytes {
		p.publish(events.EventSubject(cluster, events.MembershipRefused, fmt.Sprint("x", i)), make([]byte, 1<<20-100))
	}
	p.flush()
}

func (p *place) publish(subject string, data []byte) {
	p.Helper()
	if err := p.bus.Conn().PublishMsg(&nats.Msg{Subject: subject, Data: data}); err != nil {
		p.Fatal(err)
	}
}

// flush returns when the log has taken or refused what was said before.
func (p *place) flush() {
	p.Helper()
	if _, err := p.bus.Conn().Request(events.EventSubject(cluster, events.MembershipRefused, "last"), nil, time.Minute); err != nil {
		p.Fatal(err)
	}
}

// holds returns how many bytes the log holds, and of which nodes.
func (p *place) holds() (bytes uint64, nodes map[string]uint64) {
	p.Helper()
	info, err := p.log.Info(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	nodes, err = takenBy(p.Context(), p.log, cluster)
	if err != nil {
		p.Fatal(err)
	}
	return info.State.Bytes, nodes
}

// TestWhoFillsTheLogLosesItsWordsAlone has a node fill a log with words of 300 bytes, beside twenty that say little.
func TestWhoFillsTheLogLosesItsWordsAlone(t *testing.T) {
	p := open(t)
	for i := range 20 {
		p.says(fmt.Sprint("honest-", i), 3000, 300)
	}
	p.says("liar", bound, 300)
	if err := look(t.Context(), p.bus); err != nil {
		t.Fatal(err)
	}
	bytes, nodes := p.holds()
	if len(nodes) != 20 || nodes["liar"] > 0 {
		t.Errorf("the log has words of %d nodes, expected those of the 20 that said little", len(nodes))
	}
	if bytes > bound/2 {
		t.Errorf("the log holds %d bytes of %d, expected room", bytes, bound)
	}
}

// TestRecordsOfRefusedMessagesGoFirst has services refuse what a node says until the log is all but full, a record of 3 KB for each.
func TestRecordsOfRefusedMessagesGoFirst(t *testing.T) {
	p := open(t)
	p.says("honest", bound/8, 32<<10)
	const records, bytes = 4500, 2900
	for sequence := range records {
		p.publish(events.EventSubject(cluster, events.EventRefused, fmt.Sprint(sequence)), make([]byte, bytes))
	}
	p.flush()
	_, said := p.holds()
	if err := look(t.Context(), p.bus); err != nil {
		t.Fatal(err)
	}
	held, left := p.holds()
	if most := uint64(bound/8 + refusalsKept*2*bytes); held > most {
		t.Errorf("the log holds %d bytes, expected the newest records alone, and at most %d", held, most)
	}
	if left["honest"] != said["honest"] {
		t.Errorf("of what a node said, which was no more than an eighth, %d bytes are left of %d", left["honest"], said["honest"])
	}
	newest := events.EventSubject(cluster, events.EventRefused, fmt.Sprint(records-1))
	if _, err := p.log.GetLastMsgForSubject(t.Context(), newest); err != nil {
		t.Errorf("the newest record is gone: %v", err)
	}
}

// TestACopyThatCountedBeforeRoomWasMadeDropsNothing has two nodes take most of the log, and two copies of the monitor count their words
// before one of them drops any.
func TestACopyThatCountedBeforeRoomWasMadeDropsNothing(t *testing.T) {
	p := open(t)
	p.says("first", bound/2, 32<<10)
	p.says("second", bound*7/16, 32<<10)
	_, counted := p.holds()
	for range 2 {
		if err := makeRoom(t.Context(), p.log, cluster, counted); err != nil {
			t.Fatal(err)
		}
	}
	if _, nodes := p.holds(); nodes["first"] > 0 || nodes["second"] != counted["second"] {
		t.Errorf("the log has %d bytes of the first and %d of the second, expected 0 and %d", nodes["first"], nodes["second"], counted["second"])
	}
}

// TestANodeThatTakesLessThanASixteenthLosesNoWord fills the log with what services say, and with what many nodes say.
func TestANodeThatTakesLessThanASixteenthLosesNoWord(t *testing.T) {
	for name, fill := range map[string]struct {
		with  func(p *place)
		tells string
	}{
		"services": {func(p *place) { p.services(15) }, "4 nodes said "},
		"many kits": {func(p *place) {
			for i := range 54 {
				p.says(fmt.Sprint("liar-", i), bound/64, 32<<10)
			}
		}, "honest-0 said most"},
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t)
			for i := range 4 {
				p.says(fmt.Sprint("honest-", i), bound/64+(64<<10), 32<<10)
			}
			fill.with(p)
			before, said := p.holds()
			if err := look(t.Context(), p.bus); !errors.Is(err, errNobody) || !strings.Contains(err.Error(), fill.tells) {
				t.Errorf("expected an error that tells %q, got %v", fill.tells, err)
			}
			if after, left := p.holds(); after != before || len(left) != len(said) {
				t.Errorf("the log holds %d bytes of %d nodes, expected %d of %d as before", after, len(left), before, len(said))
			}
		})
	}
}
