package window

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const mebibyte = 1 << 20

// giver does what a window asks for, after a while, and checks what must hold.
type giver struct {
	t       *testing.T
	window  Window
	now     time.Time
	seed    uint64
	store   map[string]int64            // what is in the store
	under   []Task                      // puts and removals that are under way
	told    map[string]Kind             // the answer to each reply
	readers map[Reader]map[string]int64 // what each was told is there, and still reads
	asked   map[string]Want             // by reply
	gone    map[Reader]bool             // once at least
}

func begin(t *testing.T, seed uint64) *giver {
	return &giver{
		t: t, now: time.Unix(0, 0), seed: seed, store: map[string]int64{}, told: map[string]Kind{},
		readers: map[Reader]map[string]int64{}, asked: map[string]Want{}, gone: map[Reader]bool{},
	}
}

// of is the connection of a node that reads over no other.
func of(node int) Reader { return Reader{Node: fmt.Sprint("n", node), Connection: uint64(node)} }

func (g *giver) want(reader Reader, digest string, bytes int64) (reply string) {
	reply = fmt.Sprint(len(g.asked))
	want := Want{Reader: reader, Digest: digest, Bytes: bytes, Answer: Answer{Reply: reply}}
	g.asked[reply] = want
	if !g.window.Want(want, g.now) {
		g.told[reply] = Later
	}
	g.step()
	return reply
}

func (g *giver) step() {
	for _, task := range g.window.Next(g.now) {
		switch task.Kind {
		case Put, Remove:
			g.under = append(g.under, task)
		default:
			g.hear(task)
		}
	}
	if bytes := g.window.Bytes(); bytes > TotalBytes {
		g.t.Fatalf("seed %d: the window is %d bytes", g.seed, bytes)
	}
}

func (g *giver) hear(task Task) {
	want := g.asked[task.Reply]
	if kind, twice := g.told[task.Reply]; twice {
		g.t.Fatalf("seed %d: reply %s was told %d, and is told %d", g.seed, task.Reply, kind, task.Kind)
	}
	g.told[task.Reply] = task.Kind
	if task.Kind != Tell {
		return
	}
	if g.store[task.Digest] == 0 {
		g.t.Fatalf("seed %d: a reader is told that %s is there, and it is not", g.seed, task.Digest)
	}
	if g.readers[want.Reader] == nil {
		g.readers[want.Reader] = map[string]int64{}
	}
	g.readers[want.Reader][task.Digest] = want.Bytes
	held := map[string]int64{} // by the node, what several connections read counting once
	for reader, reads := range g.readers {
		if reader.Node == want.Reader.Node {
			maps.Copy(held, reads)
		}
	}
	sum := int64(0)
	for _, bytes := range held {
		sum += bytes
	}
	if sum > ReaderBytes {
		g.t.Fatalf("seed %d: a node holds %d bytes", g.seed, sum)
	}
}

// finish ends the oldest put or removal. No reader may be reading a part that is removed, unless time took it.
func (g *giver) finish(fails, late bool) {
	if len(g.under) == 0 {
		return
	}
	task := g.under[0]
	g.under = g.under[1:]
	switch {
	case task.Kind == Remove:
		delete(g.store, task.Digest)
		g.window.Removed(task.Digest)
		for reader, reads := range g.readers {
			if reads[task.Digest] > 0 && !late {
				g.t.Fatalf("seed %d: %s is removed while %v reads it", g.seed, task.Digest, reader)
			}
			delete(reads, task.Digest)
		}
	case fails:
		g.store[task.Digest] = 1 // what came of it
		g.window.Failed(task.Digest)
	default:
		g.store[task.Digest] = 1
		g.window.Stored(task.Digest)
	}
	g.step()
}

func (g *giver) have(reader Reader, digest string) {
	delete(g.readers[reader], digest)
	g.window.Have(reader, digest)
	g.step()
}

func (g *giver) pass(duration time.Duration) {
	for passed := time.Duration(0); passed < duration; passed += AnswerWithin / 2 {
		g.now = g.now.Add(AnswerWithin / 2)
		g.step()
	}
}

func TestAChunkGoesOnceToEveryReaderThatHasRoomAndWaits(t *testing.T) {
	g := begin(t, 0)
	ask := func(reader Reader, digest string, chunks ...string) {
		g.window.Want(Want{reader, digest, mebibyte, Answer{digest, chunks}}, g.now)
	}
	ask(of(1), "a", "1.0", "1.1")
	ask(of(2), "a", "2.0")
	ask(of(1), "b", "1.2")
	g.window.Next(g.now)
	ask(of(3), "a", "3.0") // behind the last look: it has no room yet
	for number, expected := range [][]string{{"1.0", "2.0"}, {"1.1"}, nil} {
		if to := g.window.Chunk("a", number); !slices.Equal(to, expected) {
			t.Errorf("chunk %d goes to %v, expected %v", number, to, expected)
		}
	}
	if again := g.window.Chunk("a", 0); again != nil {
		t.Errorf("it goes to %v once more", again)
	}
	g.window.Stored("a")
	var told []string
	for _, task := range g.window.Next(g.now) {
		if task.Kind == Tell {
			told = append(told, task.Chunks...)
		}
	}
	slices.Sort(told)
	if expected := []string{"", "", "", "3.0"}; !slices.Equal(told, expected) {
		t.Errorf("with the records %q go, expected %q", told, expected)
	}
}

func TestAPartIsPutToldAndRemovedOnceItsReadersHaveIt(t *testing.T) {
	g := begin(t, 0)
	first, second := g.want(of(1), "a", 8*mebibyte), g.want(of(2), "a", 8*mebibyte)
	if len(g.under) != 1 || len(g.told) != 0 {
		t.Fatalf("%v are under way, %v told: expected one put for both", g.under, g.told)
	}
	g.finish(false, false)
	if g.told[first] != Tell || g.told[second] != Tell {
		t.Fatalf("told %v", g.told)
	}
	g.have(of(1), "a")
	if len(g.under) != 0 {
		t.Fatal("it is removed though a reader needs it")
	}
	g.have(of(2), "a")
	g.finish(false, false)
	if !g.window.Idle() || len(g.store) != 0 {
		t.Errorf("%v is left", g.store)
	}
}

func TestAReaderThatTakesNothingHasItsWindowAndNoMore(t *testing.T) {
	g := begin(t, 0)
	for i := range 20 {
		g.want(of(1), fmt.Sprint(i), 8*mebibyte)
	}
	for range 20 {
		g.finish(false, false)
	}
	if bytes := g.window.Bytes(); bytes != ReaderBytes {
		t.Errorf("%d bytes", bytes)
	}
	if reply := g.want(of(2), "other", 8*mebibyte); len(g.under) != 1 {
		t.Errorf("another waits: %v", g.told[reply])
	}
}

func TestWhoFillsTheStoreAndTakesNothingIsPutOutWhereOthersWait(t *testing.T) {
	g := begin(t, 0)
	for i := range 16 {
		g.want(of(1+i/8), fmt.Sprint(i), 8*mebibyte)
		g.finish(false, false)
	}
	g.pass(holdLasts)
	if len(g.under) != 0 {
		t.Fatal("parts are removed though nobody waits for room")
	}
	reply := g.want(of(3), "other", 8*mebibyte)
	g.pass(AnswerWithin)
	if g.told[reply] != Later {
		t.Fatalf("told %v: expected that it is to ask again", g.told[reply])
	}
	for len(g.under) > 0 {
		g.finish(false, true)
	}
	reply = g.want(of(3), "other", 8*mebibyte)
	if g.told[reply] != Tell {
		t.Errorf("told %v: expected that the part is there", g.told)
	}
}

func TestAReaderThatHangsForeverEndsAllTheSame(t *testing.T) {
	g := begin(t, 0)
	g.want(of(1), "a", 8*mebibyte)
	g.finish(false, false)
	g.pass(holdLongest + time.Second)
	g.finish(false, true)
	if !g.window.Idle() {
		t.Error("the part stays")
	}
}

func TestWhatIsWithdrawnIsRefusedAndRemoved(t *testing.T) {
	g := begin(t, 0)
	waits := g.want(of(1), "a", 8*mebibyte)
	g.window.Withdraw(func(digest string) bool { return digest == "a" })
	g.step()
	if g.told[waits] != Refuse {
		t.Errorf("told %v", g.told)
	}
	g.finish(false, false)
	g.finish(false, false)
	if !g.window.Idle() || len(g.store) != 0 {
		t.Errorf("%v is left", g.store)
	}
}

func TestWantsAreBounded(t *testing.T) {
	g := begin(t, 0)
	for i := range MostWants + 2 {
		g.want(of(1), fmt.Sprint(i), ReaderBytes)
	}
	if open := len(g.window.wants); open != MostWants {
		t.Errorf("%d wants are open", open)
	}
	if reply := g.want(of(2), "large", ReaderBytes+1); g.told[reply] != Later {
		t.Errorf("a part that no window holds: told %v", g.told[reply])
	}
}

func TestALargePartIsNotKeptOutBySmallOnes(t *testing.T) {
	g := begin(t, 0)
	for i := range 16 {
		g.want(of(1+i), fmt.Sprint(i), 8*mebibyte)
		g.finish(false, false)
	}
	large := g.want(of(100), "large", 16*mebibyte)
	g.want(of(101), "small", mebibyte)
	g.have(of(1), "0")
	g.finish(false, false)
	if len(g.under) != 0 {
		t.Fatalf("%v goes first", g.under)
	}
	g.have(of(2), "1")
	g.finish(false, false)
	g.finish(false, false)
	if g.told[large] != Tell {
		t.Errorf("told %v", g.told)
	}
}

// Readers that ask, read, forget, die and come back at random: bounds hold, nothing is removed under who reads it in time, and
// in the end everybody has been served and nothing is left.
func TestWhateverReadersDoTheWindowIsBoundedAndEmptiesItself(t *testing.T) {
	for seed := range uint64(100) {
		g, random := begin(t, seed), rand.New(rand.NewPCG(seed, 1))
		for range 300 {
			connection := random.IntN(8)
			reader, digest := Reader{fmt.Sprint("n", connection/2), uint64(connection)}, fmt.Sprint(random.IntN(30))
			switch random.IntN(6) {
			case 0, 1:
				g.want(reader, digest, int64(1+len(digest))*4*mebibyte)
			case 2:
				g.have(reader, digest)
			case 3:
				g.finish(random.IntN(5) == 0, false)
			case 4:
				if random.IntN(10) == 0 {
					delete(g.readers, reader)
					g.gone[reader] = true
					g.window.Gone(reader)
				}
			case 5:
				g.pass(time.Duration(random.IntN(20)) * time.Millisecond)
			}
		}
		g.pass(wantLasts)
		for reader := range g.readers {
			g.window.Gone(reader)
		}
		clear(g.readers)
		for range 1000 {
			g.finish(false, true)
		}
		g.pass(holdLongest + wantLasts)
		for range 100 {
			g.finish(false, true)
		}
		if !g.window.Idle() || len(g.store) > 0 {
			t.Fatalf("seed %d: %d wants, %v are left", seed, len(g.window.wants), g.store)
		}
		for reply := range g.asked {
			if _, told := g.told[reply]; !told && !g.gone[g.asked[reply].Reader] {
				t.Fatalf("seed %d: reply %s never came", seed, reply)
			}
		}
	}
}

// A message takes room beside its bytes: three thousand parts of 64 bytes are 2 MB of a bucket.
func TestSmallPartsCountForWhatTheyTake(t *testing.T) {
	g := begin(t, 0)
	for node := range TotalBytes/LeastBytes/MostParts + 1 {
		for i := range MostWants {
			g.want(of(node), fmt.Sprint(node, " ", i), 64)
			g.finish(false, false)
		}
	}
	if parts := int64(len(g.store)); parts > TotalBytes/LeastBytes || parts*LeastBytes != g.window.Bytes() {
		t.Errorf("%d parts, and the window counts %d bytes", parts, g.window.Bytes())
	}
}

func TestANodeHoldsSoManyPartsAndNoMore(t *testing.T) {
	g := begin(t, 0)
	for i := range 2 * MostParts {
		g.want(of(1), fmt.Sprint(i), 64)
		g.finish(false, false)
	}
	if len(g.store) != MostParts {
		t.Errorf("%d parts, expected %d", len(g.store), MostParts)
	}
}

func TestWhatCameOfAPutThatFailedTakesRoomUntilItIsRemoved(t *testing.T) {
	g := begin(t, 0)
	reply := g.want(of(1), "a", 8*mebibyte)
	g.finish(true, false)
	if g.told[reply] != Later || g.window.Bytes() == 0 || len(g.under) != 1 || g.under[0].Kind != Remove {
		t.Fatalf("told %v, %d bytes, under way %v", g.told, g.window.Bytes(), g.under)
	}
	again := g.want(of(1), "a", 8*mebibyte)
	if len(g.under) != 1 {
		t.Fatal("it is put before what came of it is removed")
	}
	g.finish(false, false)
	g.finish(false, false)
	if g.told[again] != Tell {
		t.Errorf("told %v", g.told)
	}
}
