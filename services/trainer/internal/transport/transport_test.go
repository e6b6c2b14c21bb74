package transport

import (
	"bytes"
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/reknit/reknit/services/agent/links"
)

// patience is how long a test waits for what must happen; nothing takes that long.
const patience = 2 * time.Minute

type suspicion struct {
	node    string
	refused bool
}

// station is a transport under test and what it suspects.
type station struct {
	*Transport
	suspected chan suspicion
	kill      context.CancelFunc
	relay     func(node string, frame []byte) error
}

func listen(t *testing.T, node string) *station {
	t.Helper()
	return listenIn(t, "test", node)
}

func listenIn(t *testing.T, cluster, node string) *station {
	t.Helper()
	ctx, kill := context.WithCancel(t.Context())
	s := &station{suspected: make(chan suspicion, 1024), kill: kill}
	transport, err := Listen(ctx, Config{
		Cluster: cluster, Node: node, Listen: "127.0.0.1:0",
		Suspect: func(node string, refused bool, _ string) { s.suspected <- suspicion{node, refused} },
		Relay:   func(node string, frame []byte) error { return s.relay(node, frame) },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Transport = transport
	t.Cleanup(func() {
		kill()
		transport.sending.Wait()
		transport.receiving.Wait()
		transport.work.Wait()
	})
	return s
}

func (s *station) peer() Peer {
	return Peer{Node: s.config.Node, Incarnation: "1", Address: s.Address()}
}

// connect puts two stations into a generation, at a step.
func connect(a, b *station, generation, step uint64) {
	a.Switch(generation, "1", []Peer{b.peer()})
	b.Switch(generation, "1", []Peer{a.peer()})
	a.Begin(step)
	b.Begin(step)
}

func (s *station) send(t *testing.T, to string, phase uint32, item uint64, payload string) {
	t.Helper()
	if err := s.Send(to, phase, item, []byte(payload)); err != nil {
		t.Fatal(err)
	}
}

func (s *station) expect(t *testing.T, phase uint32, payload string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	message, err := s.Receive(ctx, phase)
	if err != nil {
		t.Fatalf("waiting for %.40q in phase %d: %v", payload, phase, err)
	}
	if string(message.Payload) != payload {
		t.Fatalf("received %.40q in phase %d: expected %.40q", message.Payload, phase, payload)
	}
}

func (s *station) expectSuspicion(t *testing.T, want suspicion) {
	t.Helper()
	select {
	case got := <-s.suspected:
		if got != want {
			t.Fatalf("suspected %+v: expected %+v", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("nobody was suspected: expected %+v", want)
	}
}

func TestMessagesArriveInTheirPhase(t *testing.T) {
	a, b := listen(t, "a"), listen(t, "b")
	connect(a, b, 1, 0)
	a.send(t, "b", 2, 0, "second phase")
	a.send(t, "b", 1, 0, "first phase")
	b.expect(t, 1, "first phase")
	b.expect(t, 2, "second phase")
	b.send(t, "a", 1, 0, "")
	a.expect(t, 1, "")
}

func TestALongMessageTravelsInPieces(t *testing.T) {
	a, b := listen(t, "a"), listen(t, "b")
	connect(a, b, 1, 0)
	long := string(bytes.Repeat([]byte("0123456789abcde\n"), 3*PieceBytes/16+1))
	a.send(t, "b", 1, 0, long)
	b.expect(t, 1, long)
}

func TestMessagesOfAComingGenerationWaitForTheSwitch(t *testing.T) {
	a, b := listen(t, "a"), listen(t, "b")
	connect(a, b, 1, 7)
	a.send(t, "b", 1, 0, "this generation")
	a.Switch(2, "1", []Peer{b.peer()})
	a.Begin(7)
	a.send(t, "b", 1, 0, "next generation")
	b.expect(t, 1, "this generation")
	if message, ok := b.Take(1); ok {
		t.Fatalf("took %q before the switch", message.Payload)
	}
	b.Switch(2, "1", []Peer{a.peer()})
	b.Begin(7)
	b.expect(t, 1, "next generation")
}

func TestMessagesOfAnOlderStepAreDropped(t *testing.T) {
	a, b := listen(t, "a"), listen(t, "b")
	connect(a, b, 1, 5)
	b.Begin(6)
	a.send(t, "b", 1, 0, "step 5")
	a.Begin(6)
	a.send(t, "b", 1, 1, "step 6")
	b.expect(t, 1, "step 6")
	if message, ok := b.Take(1); ok {
		t.Fatalf("took %q", message.Payload)
	}
}

func TestANodeThatIsNoPeerCannotBeSentTo(t *testing.T) {
	a, b := listen(t, "a"), listen(t, "b")
	connect(a, b, 1, 0)
	if err := a.Send("c", 1, 0, nil); err == nil {
		t.Error("a message to a stranger was taken")
	}
}

// says has an incarnation of node a say something in phase 1 of step 0 of generation 1.
func (s *station) says(incarnation, payload string) {
	who := links.Hello{Cluster: "test", Node: "a", Incarnation: incarnation}
	message := Message{Phase: 1, Payload: []byte(payload), position: position{generation: 1}}
	for _, f := range message.pieces() {
		s.Relayed("", slices.Concat(who.Bytes(), f.header(), f.piece))
	}
}

func TestAnotherIncarnationOfAPeerIsNotHeard(t *testing.T) {
	a, b := listen(t, "a"), listen(t, "b")
	connect(a, b, 1, 0)
	b.says("2", "from a process that was restarted")
	if message, ok := b.Take(1); ok {
		t.Errorf("took %q", message.Payload)
	}
	b.says("1", "from the process of the plan")
	b.expect(t, 1, "from the process of the plan")
}

func TestAKilledPeerIsSuspectedAtOnce(t *testing.T) {
	a, b := listen(t, "a"), listen(t, "b")
	connect(a, b, 1, 0)
	a.send(t, "b", 1, 0, "hello")
	b.expect(t, 1, "hello")
	b.kill()
	a.expectSuspicion(t, suspicion{"b", true})
}

func TestAPeerThatWasNeverThereIsSuspected(t *testing.T) {
	a := listen(t, "a")
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := closed.Addr().String()
	closed.Close()
	a.Switch(1, "1", []Peer{{Node: "b", Address: address}})
	a.expectSuspicion(t, suspicion{"b", true})
}

func TestAPeerThatGoesOnPurposeIsNotSuspected(t *testing.T) {
	a, b, c := listen(t, "a"), listen(t, "b"), listen(t, "c")
	a.Switch(1, "1", []Peer{b.peer(), c.peer()})
	b.Switch(1, "1", []Peer{a.peer()})
	c.Switch(1, "1", []Peer{a.peer()})
	for _, s := range []*station{a, b, c} {
		s.Begin(0)
	}
	b.send(t, "a", 1, 0, "last words")
	b.Close()
	a.expect(t, 1, "last words")
	c.kill()
	a.expectSuspicion(t, suspicion{"c", true}) // and not b, which ended before
	a.send(t, "b", 1, 0, "nobody needs this")
}

func TestALinkLeftBehindDeliversWhatItHolds(t *testing.T) {
	a, b := listen(t, "a"), listen(t, "b")
	connect(a, b, 1, 3)
	a.send(t, "b", 1, 0, "the end of step 3")
	a.Switch(2, "1", nil)
	b.expect(t, 1, "the end of step 3")
}

func TestARelayedPairUsesNoConnection(t *testing.T) {
	a, b := listen(t, "a"), listen(t, "b")
	a.relay = func(node string, frame []byte) error { b.Relayed("", frame); return nil }
	b.relay = func(node string, frame []byte) error { a.Relayed("", frame); return nil }
	a.Switch(1, "1", []Peer{{Node: "b", Incarnation: "1", Address: "192.0.2.1:1", Relayed: true}})
	b.Switch(1, "1", []Peer{{Node: "a", Incarnation: "1", Address: "192.0.2.1:1", Relayed: true}})
	a.Begin(0)
	b.Begin(0)
	long := string(make([]byte, PieceBytes+1))
	a.send(t, "b", 1, 0, long)
	b.expect(t, 1, long)
	b.send(t, "a", 1, 0, "back")
	a.expect(t, 1, "back")
}

func TestWhatTheHubLosesIsAskedForAgain(t *testing.T) {
	a, b := listen(t, "a"), listen(t, "b")
	lost := make(chan struct{})
	a.relay = func(node string, frame []byte) error {
		select {
		case <-lost:
			b.Relayed("", frame)
		default:
			close(lost)
		}
		return nil
	}
	b.relay = func(node string, frame []byte) error { a.Relayed("", frame); return nil }
	a.Switch(1, "1", []Peer{{Node: "b", Incarnation: "1", Relayed: true}})
	b.Switch(1, "1", []Peer{{Node: "a", Incarnation: "1", Relayed: true}})
	a.Begin(0)
	b.Begin(0)
	a.send(t, "b", 1, 0, "lost at first")
	<-lost
	received := make(chan struct{})
	go func() {
		b.expect(t, 1, "lost at first")
		close(received)
	}()
	for asked := false; !asked; { // until the receiver waits
		b.inbox.mutex.Lock()
		asked = !b.inbox.hungry.IsZero()
		b.inbox.mutex.Unlock()
	}
	b.silences(time.Now().Add(silenceLimit+time.Second), watchEvery)
	<-received
}

func TestASilentPeerIsFoundWithinSecondsHoweverLongAStepTakes(t *testing.T) {
	a, b := listen(t, "a"), listen(t, "b")
	connect(a, b, 1, 0)
	a.SetHungerLimit(10 * time.Minute)
	now := time.Now()
	if found := a.silences(now.Add(4*time.Second), watchEvery); len(found) > 0 {
		t.Errorf("%+v found silent after four heartbeats", found)
	}
	if found := a.silences(now.Add(7*time.Second), watchEvery); len(found) != 1 || found[0].node != "b" {
		t.Errorf("silent are %+v: expected b", found)
	}
}

func TestNobodyIsSilentAfterThisProcessStoodStill(t *testing.T) {
	a, b := listen(t, "a"), listen(t, "b")
	connect(a, b, 1, 0)
	if found := a.silences(time.Now().Add(time.Minute), time.Minute); len(found) > 0 {
		t.Errorf("%+v found silent by a process that was stopped itself", found)
	}
}

func TestASpeakerOfAnotherClusterIsRefused(t *testing.T) {
	a, b := listenIn(t, "theirs", "a"), listen(t, "b")
	connect(a, b, 1, 0)
	a.expectSuspicion(t, suspicion{"b", true}) // which closed the connection
}

func TestALinkIsMeasured(t *testing.T) {
	a, b := listen(t, "a"), listen(t, "b")
	roundTrip, bandwidth, err := a.Measure(t.Context(), "b", b.Address(), 1<<20)
	if err != nil || !(roundTrip > 0 && roundTrip < 1) || !(bandwidth > 1e6) {
		t.Errorf("measured a round trip of %v s and %v B/s, %v: expected a loopback link", roundTrip, bandwidth, err)
	}
	if _, bandwidth, err := a.Measure(t.Context(), "b", b.Address(), 0); err != nil || bandwidth != 0 {
		t.Errorf("measured %v B/s, %v: expected no bandwidth from no bytes", bandwidth, err)
	}
	if _, _, err := a.Measure(t.Context(), "b", b.Address(), -1); err == nil {
		t.Error("a probe of -1 bytes was made")
	}
}
