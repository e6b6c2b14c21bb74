package shards

import (
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/services/agent/window"
)

// words is how often readers said something of each part, or of pieces of it, to a store.
type words struct {
	mutex sync.Mutex
	said  map[string]int
}

func (w *words) of(subject, digest string) int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	times := 0
	for word, said := range w.said {
		if strings.HasPrefix(word, subject+" "+digest) {
			times += said
		}
	}
	return times
}

// listens returns what readers say to a store from now on.
func listens(t *testing.T, store *Store) *words {
	t.Helper()
	heard := &words{said: map[string]int{}}
	conn := ownersConn(t, store)
	for _, subject := range []string{wantSubject(store.bucket), haveSubject(store.bucket)} {
		if _, err := conn.Subscribe(subject, func(message *nats.Msg) {
			heard.mutex.Lock()
			defer heard.mutex.Unlock()
			heard.said[message.Subject+" "+string(message.Data)]++
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	return heard
}

// fill has two nodes hold all that a store has room for.
func fill(t *testing.T, store *Store, with layer) (first *nats.Conn) {
	t.Helper()
	readers := []*nats.Conn{reads(t, store, from(2)), reads(t, store, from(3))}
	for i, reader := range readers {
		wantAll(t, reader, store, layer{with.data, with.parts[16*i : 16*i+16]})
	}
	until(t, "the store's window is full", func() bool { return bytesIn(t, store) >= window.TotalBytes })
	return readers[0]
}

func TestWhoIsToAskAgainKeepsItsTurn(t *testing.T) {
	fills, want := cut(content(54, 32*testPart)), cut(content(55, testPart))
	store := serve(t, StoreConfig{Bucket: "shards-n1"})
	fills.offerTo(store)
	want.offerTo(store)
	holder, heard, digest := fill(t, store, fills), listens(t, store), want.parts[0].Digest
	ended := make(chan Progress)
	go func() { ended <- fetch(t, transferFrom(t, store.source()), want) }()
	until(t, "it was told to ask again, twice", func() bool { return heard.of(wantSubject(store.bucket), digest) > 2 })
	if said := heard.of(haveSubject(store.bucket), digest); said > 0 {
		t.Errorf("a reader that waits gave its turn up %d times", said)
	}
	if err := holder.Publish(haveSubject(store.bucket), []byte(fills.parts[0].Digest)); err != nil {
		t.Fatal(err)
	}
	<-ended
	until(t, "the part is needed no more", func() bool { return bytesIn(t, store) < window.TotalBytes })
}

// The want of who waits ends when the part comes from another source: the giver would put it for nobody.
func TestAWantThatKeepsItsTurnEndsWhenAnotherSourceGivesThePart(t *testing.T) {
	fills, want, more := cut(content(56, 32*testPart)), cut(content(57, testPart)), cut(content(58, testPart))
	full, other := serve(t, StoreConfig{Bucket: "shards-n1"}), serve(t, StoreConfig{Bucket: "shards-n2"})
	fills.offerTo(full)
	want.offerTo(full)
	fill(t, full, fills)
	heard, digest := listens(t, full), want.parts[0].Digest
	into := make([]byte, len(want.data)+len(more.data))
	transfer := transferFrom(t, full.source(), other.source())
	parts := []Part{want.parts[0], {Digest: more.parts[0].Digest, First: testPart, End: 2 * testPart, Sources: []string{"shards-n2"}}}
	if err := transfer.Add(Layer{Into: into, Parts: parts}); err != nil {
		t.Fatal(err)
	}
	go transfer.Run(within(t)) // it waits for the second part until the test ends
	until(t, "it was told to ask again, twice", func() bool { return heard.of(wantSubject(full.bucket), digest) > 2 })
	want.offerTo(other)
	until(t, "the part is needed no more", func() bool { return heard.of(haveSubject(full.bucket), digest) > 0 })
}
