package window

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// liar is the connections of a node, which want so many parts each, ask again before they are forgotten, and never take one.
func (g *giver) liar(node, connections, parts int) {
	for c := range connections {
		for i := range parts {
			reader := Reader{fmt.Sprint("liar", node), uint64(1000*node + c)}
			g.window.Want(Want{Reader: reader, Digest: fmt.Sprint("l", node, " ", c*7+i), Bytes: 8 * mebibyte}, g.now)
		}
	}
	g.step()
}

// finishAll ends all puts and removals, and those that follow.
func (g *giver) finishAll() {
	for len(g.under) > 0 {
		g.finish(false, true)
	}
}

func TestManyConnectionsOfANodeHaveItsWindowAndNoMore(t *testing.T) {
	g := begin(t, 0)
	g.liar(1, 32, MostWants)
	g.finishAll()
	if bytes := g.window.Bytes(); bytes != ReaderBytes {
		t.Errorf("%d bytes, expected %d", bytes, ReaderBytes)
	}
	if open := len(g.window.wants); open > MostWants {
		t.Errorf("%d wants are open, expected %d at most", open, MostWants)
	}
}

// A reader that asks for one part after the other, and is a quarter of a second late with each, is always served at once, but for
// when it begins: the window is full then. It waits each time if there are more nodes than parts that fit in.
func TestWhoeverTakesIsServedThoughOthersFillTheWindowAndTakeNothing(t *testing.T) {
	for _, liars := range []int{1, 2, 7, 20} {
		g := begin(t, 0)
		honest, served, waited := Reader{"honest", 1}, 0, time.Duration(0)
		for half := range 250 {
			if half%10 == 0 {
				for liar := range liars {
					g.liar(1+liar, 32/liars+1, 16)
				}
			}
			g.finishAll()
			if half < 100 {
				g.pass(500 * time.Millisecond) // the liars have all there is
				continue
			}
			digest := fmt.Sprint(served)
			reply := g.want(honest, digest, 8*mebibyte)
			g.finishAll()
			g.pass(250 * time.Millisecond)
			g.finishAll()
			if g.told[reply] == Tell {
				served++
				g.have(honest, digest)
				g.finishAll()
			} else {
				waited += 500 * time.Millisecond
			}
			g.pass(250 * time.Millisecond)
		}
		most := holdLasts + time.Second
		if liars > TotalBytes/(8*mebibyte) {
			most *= time.Duration(served + 1)
		}
		if waited > most || served == 0 {
			t.Errorf("%d liars: %d parts, and %v without one: expected %v at most", liars, served, waited, most)
		}
	}
}

func TestANodeWaitsBehindOneWantOfEachOther(t *testing.T) {
	g := begin(t, 0)
	for i := range 20 {
		g.want(of(1), fmt.Sprint("a", i), mebibyte)
	}
	g.want(of(2), "b", mebibyte)
	g.want(of(3), "c", mebibyte)
	var puts []string
	for range 6 {
		puts = append(puts, g.under[0].Digest)
		g.finish(false, false)
	}
	if expected := []string{"a0", "a1", "b", "c", "a2", "a3"}; !slices.Equal(puts, expected) { // a0 and a1 came before anything else
		t.Errorf("%v, expected %v", puts, expected)
	}
}

// One connection of a node hangs and holds all that the node may: the others of that node do not wait for five minutes.
func TestAConnectionThatHangsDoesNotHoldUpTheOthersOfItsNode(t *testing.T) {
	g := begin(t, 0)
	hangs, other := Reader{"n1", 1}, Reader{"n1", 2}
	for i := range 8 {
		g.want(hangs, fmt.Sprint(i), 8*mebibyte)
	}
	g.finishAll()
	var reply string
	for range holdLasts/time.Second + 2 {
		reply = g.want(other, "other", 8*mebibyte)
		g.pass(time.Second)
		g.finishAll()
	}
	if g.told[reply] != Tell && g.store["other"] == 0 {
		t.Error("the part is not put")
	}
}

func TestWhereAllWantsAreOpenWhoHasFewestIsHeard(t *testing.T) {
	g := begin(t, 0)
	for node := range AllWants / MostWants {
		g.liar(1+node, 1, MostWants)
	}
	if refused := g.want(of(1), "a", mebibyte); g.told[refused] == Later && len(g.window.wants) >= AllWants {
		t.Errorf("refused, with %d wants open", len(g.window.wants))
	}
	if len(g.window.wants) > AllWants {
		t.Errorf("%d wants are open", len(g.window.wants))
	}
}

func TestWhoAsksAgainKeepsItsTurnHoweverLongItWaits(t *testing.T) {
	g := begin(t, 0)
	for node := range 2 {
		for i := range ReaderBytes / (8 * mebibyte) {
			g.want(of(node), fmt.Sprint(node, "-", i), 8*mebibyte)
			g.finish(false, false)
		}
	}
	asks := func(node int) { g.want(of(node), fmt.Sprint("of ", node), 8*mebibyte) }
	for second := range 12 {
		asks(8)
		if second >= 5 {
			asks(9)
		}
		g.pass(time.Second)
	}
	g.have(of(0), "0-0")
	g.finish(false, false) // its removal makes room for one
	if len(g.under) != 1 || g.under[0].Digest != "of 8" {
		t.Errorf("%v is under way, expected the part of whoever asked first", g.under)
	}
}
