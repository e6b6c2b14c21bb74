package links

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"testing"
	"time"
)

// patience is how long a test waits for what must happen; nothing takes that long.
const patience = 2 * time.Minute

type suspicion struct {
	by, node string
	refused  bool
}

// station is a watch and the end of its process.
type station struct {
	*Watch
	kill context.CancelFunc
}

// stations returns the watches of some nodes of one plan, and whom they suspect.
func stations(t *testing.T, names ...string) (map[string]*station, <-chan suspicion) {
	t.Helper()
	all, suspected := map[string]*station{}, make(chan suspicion, 1024)
	for _, name := range names {
		ctx, kill := context.WithCancel(t.Context())
		watch, err := Listen(ctx, Config{
			Cluster: "test", Node: name, Listen: "127.0.0.1:0",
			Suspect: func(node string, refused bool, _ string) { suspected <- suspicion{name, node, refused} },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { kill(); watch.Close() })
		all[name] = &station{watch, kill}
	}
	for name, station := range all {
		station.Switch("1", peersOf(all, name))
	}
	for _, station := range all {
		station.untilWatched(t, 2*min(watched, len(names)-1))
	}
	return all, suspected
}

func peersOf(all map[string]*station, self string) []Peer {
	var peers []Peer
	for name, station := range all {
		if name != self {
			peers = append(peers, Peer{Node: name, Incarnation: "1", Address: station.Address()})
		}
	}
	return peers
}

// untilWatched waits for connections: at least so many.
func (s *station) untilWatched(t *testing.T, connections int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		s.mutex.Lock()
		open := len(s.open)
		s.mutex.Unlock()
		if open >= connections {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections after %v: expected %d", open, patience, connections)
		}
	}
}

func TestAPeerWhoseProcessIsGoneIsSuspectedByAllWhoWatchIt(t *testing.T) {
	all, suspected := stations(t, "a", "b", "c")
	all["b"].kill()
	told := map[string]bool{}
	for deadline := time.After(patience); len(told) < 2; {
		select {
		case found := <-suspected:
			if found.node != "b" || !found.refused {
				t.Fatalf("suspected: %+v", found)
			}
			told[found.by] = true
		case <-deadline:
			t.Fatalf("only %v suspect it", told)
		}
	}
}

func TestWhoGoesOnPurposeIsNotSuspected(t *testing.T) {
	all, suspected := stations(t, "a", "b", "c")
	all["b"].Close()
	all["c"].kill()
	for found := range suspected {
		if found.node == "b" && found.by == "a" {
			t.Fatalf("suspected: %+v", found)
		}
		if found.node == "c" && found.by == "a" {
			return // and what was said of b before would have come first
		}
	}
}

func TestAPlanThatIsOverSuspectsNobody(t *testing.T) {
	all, suspected := stations(t, "a", "b", "c")
	all["a"].Switch("1", []Peer{{Node: "c", Incarnation: "1", Address: all["c"].Address()}})
	all["b"].kill()
	all["c"].kill()
	for found := range suspected {
		if found.by == "a" && found.node == "b" {
			t.Fatalf("suspected: %+v", found)
		}
		if found.by == "a" && found.node == "c" {
			return
		}
	}
}

func TestANodeWatchesTheNextThreeOfTheRingAndNoneThatMustNotBeReached(t *testing.T) {
	peers := func(names ...string) (peers []Peer) {
		for _, name := range names {
			peers = append(peers, Peer{Node: name[:1], Relayed: len(name) > 1})
		}
		return peers
	}
	for _, test := range []struct {
		node     string
		peers    []Peer
		expected string
	}{
		{"c", peers("a", "b", "d", "e", "f"), "def"},
		{"e", peers("d", "f", "c", "b", "a"), "fab"},
		{"f", peers("a", "b", "c", "d", "e"), "abc"},
		{"a", peers("b"), "b"},
		{"a", nil, ""},
		{"a", peers("b!", "c", "d", "e"), "cde"},
	} {
		got := ""
		for _, peer := range next(test.node, test.peers) {
			got += peer.Node
		}
		if got != test.expected {
			t.Errorf("%s among %v: expected %q, got %q", test.node, test.peers, test.expected, got)
		}
	}
}

func TestEachNodeIsWatchedBySixOthersHoweverManyThereAre(t *testing.T) {
	var all []Peer
	for i := range 50 {
		all = append(all, Peer{Node: fmt.Sprintf("n%02d", i)})
	}
	watchers := map[string]int{}
	for i, self := range all {
		for _, peer := range next(self.Node, slices.Delete(slices.Clone(all), i, i+1)) {
			watchers[peer.Node]++ // the other end of a connection listens, too
			watchers[self.Node]++
		}
	}
	for node, count := range watchers {
		if count != 2*watched {
			t.Errorf("%s is watched by %d", node, count)
		}
	}
}

func TestALinkIsMeasured(t *testing.T) {
	all, _ := stations(t, "a", "b")
	roundTrip, bandwidth, err := all["a"].Measure(t.Context(), "b", all["b"].Address(), 1<<20)
	if err != nil || roundTrip <= 0 || bandwidth <= 0 {
		t.Errorf("%g s, %g bytes/s, %v", roundTrip, bandwidth, err)
	}
	if _, bandwidth, err := all["a"].Measure(t.Context(), "b", all["b"].Address(), 0); err != nil || bandwidth != 0 {
		t.Errorf("without bytes: %g bytes/s, %v", bandwidth, err)
	}
	if _, _, err := all["a"].Measure(t.Context(), "b", all["b"].Address(), -1); err == nil {
		t.Error("a probe of -1 bytes was made")
	}
}

func TestASpeakerOfAnotherClusterIsNotListenedTo(t *testing.T) {
	all, _ := stations(t, "a", "b")
	if _, _, err := Measure(t.Context(), nil, Hello{Cluster: "other", Node: "b"}, "a", all["a"].Address(), 0); err == nil {
		t.Error("its probe was answered")
	}
	connection, err := net.Dial("tcp", all["a"].Address())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := connection.Write([]byte{255, 255, '{'}); err != nil {
		t.Fatal(err)
	}
	if _, err := connection.Read(make([]byte, 1)); err == nil {
		t.Error("a hello of 65,535 bytes was answered")
	}
}

func TestAConnectionThatSaysNothingDoesNotHoldUpTheEnd(t *testing.T) {
	usual := helloTimeout
	helloTimeout = time.Hour // and an end that waits for it does not come
	t.Cleanup(func() { helloTimeout = usual })
	all, _ := stations(t, "a")
	silent, err := net.Dial("tcp", all["a"].Address())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if _, _, err := Measure(t.Context(), nil, Hello{Cluster: "test", Node: "b"}, "a", all["a"].Address(), 0); err != nil { // accepted after it
		t.Fatal(err)
	}
	all["a"].Close()
}

// An agent that was started at a dead one's port, or by its name, counted as the dead one: scripts waited for its script.
func TestWhoTookAPortDoesNotAnswerForTheProcessBefore(t *testing.T) {
	all, _ := stations(t, "n1", "n2")
	n1, n2 := all["n1"], all["n2"]
	ask := func(incarnation string) error { return n2.Ask(t.Context(), "n1", incarnation, n1.Address()) }
	for incarnation, isIts := range map[string]bool{"1": true, "2": false} {
		if err := ask(incarnation); err == nil != isIts {
			t.Errorf("asked for the process of %s it says %v", incarnation, err)
		}
	}
	n1.Switch("a-process-2", nil)
	for incarnation, isIts := range map[string]bool{"a-process-1": true, "a-process-2": true, "another-1": false} {
		if err := ask(incarnation); err == nil != isIts {
			t.Errorf("asked for the process of %s it says %v", incarnation, err)
		}
	}
	if _, _, err := n2.Measure(t.Context(), "n1", n1.Address(), 0); err != nil {
		t.Errorf("a link is measured whoever answers: %v", err)
	}
}

// asks opens a connection that asks for the process of station n1, and says whether it answers a probe.
func (s *station) asks(t *testing.T) (connection net.Conn, answers bool) {
	t.Helper()
	who := Hello{Cluster: "test", Node: "n2", Probe: true, Asks: "1"}
	connection, err := Dial(t.Context(), nil, net.Dialer{}, who, "n1", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	_, err = probe(connection, 0)
	return connection, err == nil
}

// A kit in no plan had a node serve five hundred such connections for as long as it liked.
func TestANodeAsksSoOftenAtATimeAndNoMore(t *testing.T) {
	usual := askTime
	askTime = time.Hour
	t.Cleanup(func() { askTime = usual })
	all, _ := stations(t, "n1")
	first, answers := all["n1"].asks(t)
	for more := 1; answers && more < mostAsking; more++ {
		_, answers = all["n1"].asks(t)
	}
	if !answers {
		t.Fatalf("fewer than %d connections at a time are answered", mostAsking)
	}
	if _, answers := all["n1"].asks(t); answers {
		t.Errorf("more than %d connections at a time are answered", mostAsking)
	}
	for range roundTrips - 1 {
		if _, err := probe(first, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := probe(first, 0); err == nil {
		t.Errorf("more than %d probes on a connection are answered", roundTrips)
	}
	if _, answers := all["n1"].asks(t); !answers {
		t.Error("one that has ended counts for ever")
	}
}

func TestWhoAsksAndSaysNoMoreIsCutOff(t *testing.T) {
	usual := askTime
	askTime = 100 * time.Millisecond
	t.Cleanup(func() { askTime = usual })
	all, _ := stations(t, "n1")
	silent, _ := all["n1"].asks(t)
	silent.SetReadDeadline(time.Now().Add(patience))
	if _, err := silent.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("it is not")
	}
}
