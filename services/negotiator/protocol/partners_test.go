package protocol_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/reknit/reknit/services/negotiator/protocol"
)

// peers are so many nodes, dealt to so many sites; no sites: nobody named one.
func peers(nodes, sites int) (peers []protocol.Peer) {
	for i := range nodes {
		peer := protocol.Peer{Node: fmt.Sprintf("n%d", i)}
		if sites > 0 {
			peer.Site = fmt.Sprintf("s%d", i%sites)
		}
		peers = append(peers, peer)
	}
	return peers
}

func TestAJoinerOfAFewMeasuresItsLinksToAll(t *testing.T) {
	if got := protocol.Partners(protocol.Peer{Node: "new"}, peers(16, 3)); len(got) != 16 {
		t.Errorf("of 16 it measures %v", got)
	}
}

func TestAJoinerOfManyMeasuresItsLinksToEightOfThem(t *testing.T) {
	for _, nodes := range []int{17, 100, 2048} {
		got := protocol.Partners(protocol.Peer{Node: "new"}, peers(nodes, 0))
		if slices.Sort(got); len(slices.Compact(got)) != 8 {
			t.Errorf("of %d it measures %v", nodes, got)
		}
	}
}

func TestAJoinerMeasuresALinkToEachOtherSiteAndThenToItsOwn(t *testing.T) {
	at := map[string]string{}
	for _, peer := range peers(100, 3) {
		at[peer.Node] = peer.Site
	}
	counts := map[string]int{}
	for _, partner := range protocol.Partners(protocol.Peer{Node: "new", Site: "s1"}, peers(100, 3)) {
		counts[at[partner]]++
	}
	if counts["s0"] != 1 || counts["s2"] != 1 || counts["s1"] != 6 {
		t.Errorf("links by site: %v", counts)
	}
}

// 1,000 joiners choose eight of 100: 80 for each in the mean, with a deviation of 8.6.
func TestOverManyJoinsAllAreChosenAsOften(t *testing.T) {
	chosen := map[string]int{}
	for i := range 1000 {
		for _, partner := range protocol.Partners(protocol.Peer{Node: fmt.Sprintf("new%d", i)}, peers(100, 0)) {
			chosen[partner]++
		}
	}
	for partner, times := range chosen {
		if times < 40 || times > 120 {
			t.Errorf("%s was chosen %d times of 1,000", partner, times)
		}
	}
	if len(chosen) != 100 {
		t.Errorf("%d of 100 were ever chosen", len(chosen))
	}
}

func TestWhoIsChosenDoesNotHangOnTheOrder(t *testing.T) {
	there := peers(64, 5)
	first := protocol.Partners(protocol.Peer{Node: "new", Site: "s2"}, there)
	slices.Reverse(there)
	if again := protocol.Partners(protocol.Peer{Node: "new", Site: "s2"}, there); !slices.Equal(first, again) {
		t.Errorf("%v, and the other way round %v", first, again)
	}
}
