// Package window decides which parts a giver has in its object store, for whom, and for how long: parts are put just
// ahead of their readers and removed when these have them, so that giving never doubles a state. It touches neither
// network nor clock: the caller passes the time in, does what Next says, and tells what came of it. Nothing in it is
// safe for use by several goroutines.
package window

import (
	"maps"
	"slices"
	"time"
)

// Bounds of a window. Eight parts of 8 MiB keep a link busy for a round trip and more; two receivers fill it. They are of nodes,
// over however many connections they read.
const (
	ReaderBytes = 64 << 20  // that one node may hold
	TotalBytes  = 128 << 20 // of all parts that are in the store, are being put or are being removed
	MostWants   = 64        // that one node may have open
	MostParts   = 64        // that one node may hold
	AllWants    = 4096      // that all nodes may have open
	LeastBytes  = 64 << 10  // that a part counts: each message takes up to 2 KiB beside its bytes, and there are two at least
	PutsAtOnce  = 2         // they hide the server's round trips; more of them are each done later
)

// How long things last. A reader that died is told of by Gone; these end what one that lives leaves undone.
const (
	AnswerWithin = 500 * time.Millisecond // who waits longer hears that it is to ask again: a reader gives up after 1.5 s
	wantLasts    = 10 * time.Second       // of a reader that does not ask again
	holdLasts    = 30 * time.Second       // where others wait for room
	holdLongest  = 5 * time.Minute        // then a reader asks for the part again
	readsLasts   = time.Second            // from when a node wants and holds nothing: it may be about to ask for the next part
)

// Reader is a connection of a node that receives.
type Reader struct {
	Node       string // who it is, as its connection proves
	Connection uint64
}

// Want is that a reader wants a part. A reader that asks for the same again replaces the want, which keeps its turn.
type Want struct {
	Reader Reader
	Digest string
	Bytes  int64
	Answer
}

// Answer is where it is said that a part is there, and that its first chunks are to be sent behind that at once.
type Answer struct {
	Reply  string
	Chunks []string // where each of them goes; empty for one that went
}

// Kind is what is to be done.
type Kind int

// Next asks for one of these. Put is followed by Stored or Failed, Remove by Removed.
const (
	Put    Kind = iota // the part into the store
	Remove             // the part from the store
	Tell               // Reply that the part is there
	Later              // Reply that it is to ask again
	Refuse             // Reply that there is no such part
)

// Task is something to be done.
type Task struct {
	Kind   Kind
	Digest string
	Answer
}

// Window is what is in the store, and who wants and holds it. The zero value is empty.
type Window struct {
	wants   []*want // the longest asked for come first
	parts   map[string]*part
	nodes   map[string]*node // that read
	grants  int64            // so far
	blocked bool             // some want does not fit into the store
	tasks   []Task
}

type want struct {
	Want
	asked time.Time // last
}

// part is one that is in the store, or on its way there or out.
type part struct {
	bytes   int64
	state   state
	holders map[Reader]time.Time // since when
}

type state int

const (
	putting state = iota
	there
	removing
)

// Want adds a want. It reports false where the reader's node, or all of them, want too much already. O(wants).
func (w *Window) Want(wanted Want, now time.Time) bool {
	wanted.Bytes = max(wanted.Bytes, LeastBytes)
	open := 0
	for _, other := range w.wants {
		if other.Reader.Node == wanted.Reader.Node {
			open++
		}
		if other.Reader == wanted.Reader && other.Digest == wanted.Digest {
			w.answer(Later, other)
			other.Want, other.asked = wanted, now
			return true
		}
	}
	if open >= MostWants || wanted.Bytes > ReaderBytes || len(w.wants) >= AllWants && !w.yield(open) {
		return false
	}
	w.wants = append(w.wants, &want{wanted, now})
	return true
}

// yield ends the last want of the node with the most, if that is more than another would have with one beside so many. O(wants).
func (w *Window) yield(open int) bool {
	count, most := map[string]int{}, ""
	for _, want := range w.wants {
		node := want.Reader.Node
		if count[node]++; count[node] > count[most] {
			most = node
		}
	}
	if count[most] <= open+1 {
		return false
	}
	for i, want := range slices.Backward(w.wants) {
		if want.Reader.Node == most {
			w.answer(Later, want)
			w.wants = slices.Delete(w.wants, i, i+1)
			break
		}
	}
	return true
}

// Have says that a reader needs a part no more, whether it has it or not. It returns how many bytes were there for this reader.
// O(wants).
func (w *Window) Have(reader Reader, digest string) (bytes int64) {
	w.drop(Later, func(want *want) bool { return want.Reader == reader && want.Digest == digest })
	p := w.parts[digest]
	if p == nil {
		return 0
	}
	if _, held := p.holders[reader]; held {
		bytes = p.bytes
	}
	delete(p.holders, reader)
	return bytes
}

// Gone says that a reader is no more. O(wants + parts).
func (w *Window) Gone(reader Reader) {
	w.forget(func(want *want) bool { return want.Reader == reader })
	for _, p := range w.parts {
		delete(p.holders, reader)
	}
}

// Withdraw says that the giver does not give some parts any more. O(wants + parts).
func (w *Window) Withdraw(which func(digest string) bool) {
	w.drop(Refuse, func(want *want) bool { return which(want.Digest) })
	for digest, p := range w.parts {
		if which(digest) {
			clear(p.holders)
		}
	}
}

// Chunk says that a chunk of a part that is being put is in the store. It returns where that goes: to those who have room for the part
// and wait for it. Tell names the others alone. O(wants).
func (w *Window) Chunk(digest string, number int) (to []string) {
	p := w.parts[digest]
	for _, want := range w.wants {
		if want.Digest != digest || p == nil || p.holders[want.Reader].IsZero() || number >= len(want.Chunks) || want.Chunks[number] == "" {
			continue
		}
		to = append(to, want.Chunks[number])
		want.Chunks[number] = ""
	}
	return to
}

// drop ends wants with an answer.
func (w *Window) drop(answer Kind, which func(*want) bool) {
	for _, want := range w.wants {
		if which(want) {
			w.answer(answer, want)
		}
	}
	w.forget(which)
}

func (w *Window) answer(kind Kind, want *want) {
	if want.Reply != "" {
		w.tasks = append(w.tasks, Task{kind, want.Digest, want.Answer})
	}
}

func (w *Window) forget(which func(*want) bool) { w.wants = slices.DeleteFunc(w.wants, which) }

// Stored says that a part that was to be put is there.
func (w *Window) Stored(digest string) { w.parts[digest].state = there }

// Failed says that a part could not be put. Its chunks that reached the store are removed, and readers that want it hear that they are
// to ask again.
func (w *Window) Failed(digest string) {
	p := w.parts[digest]
	p.state = removing
	clear(p.holders)
	w.tasks = append(w.tasks, Task{Kind: Remove, Digest: digest})
	w.drop(Later, func(want *want) bool { return want.Digest == digest })
}

// Removed says that a part that was to be removed is in the store no more.
func (w *Window) Removed(digest string) { delete(w.parts, digest) }

// Idle reports whether there is nothing to wait for.
func (w *Window) Idle() bool { return len(w.wants) == 0 && len(w.parts) == 0 }

// Readers returns who wants or holds something, in no order.
func (w *Window) Readers() []Reader {
	readers := map[Reader]bool{}
	for _, want := range w.wants {
		readers[want.Reader] = true
	}
	for _, p := range w.parts {
		for reader := range p.holders {
			readers[reader] = true
		}
	}
	return slices.Collect(maps.Keys(readers))
}

// Bytes is how much the window takes of the store.
func (w *Window) Bytes() (bytes int64) {
	for _, p := range w.parts {
		bytes += p.bytes
	}
	return bytes
}

// Next returns what is to be done now. It is called after whatever was said, and every AnswerWithin/2 where nothing is.
// O(wants * parts), of which there are few: a window of 8 MiB parts holds 16.
func (w *Window) Next(now time.Time) []Task {
	w.note(now)
	w.expire(now)
	w.grant(now)
	for _, digest := range w.unheld() {
		w.parts[digest].state = removing
		w.tasks = append(w.tasks, Task{Kind: Remove, Digest: digest})
	}
	for _, want := range w.wants {
		if now.Sub(want.asked) >= AnswerWithin {
			w.answer(Later, want)
			want.Answer = Answer{}
		}
	}
	tasks := w.tasks
	w.tasks = nil
	return tasks
}

// unheld returns the parts that are in the store for nobody.
func (w *Window) unheld() (digests []string) {
	for digest, p := range w.parts {
		if p.state == there && len(p.holders) == 0 {
			digests = append(digests, digest)
		}
	}
	slices.Sort(digests)
	return digests
}

// expire ends what readers left undone.
func (w *Window) expire(now time.Time) {
	w.forget(func(want *want) bool { return now.Sub(want.asked) >= wantLasts })
	blocked := w.blocked && len(w.wants) > 0
	for _, p := range w.parts {
		for reader, since := range p.holders {
			if age := now.Sub(since); age >= holdLongest || age >= holdLasts && (blocked || w.nodes[reader.Node].crowded) {
				delete(p.holders, reader)
			}
		}
	}
}

// grant serves wants in their turn: those of parts that are there, and those whose parts fit in. One that does not fit
// holds up those behind it, or small parts would keep large ones out for ever; a node that holds all it may does not.
func (w *Window) grant(now time.Time) {
	w.blocked = false
	for _, n := range w.nodes {
		n.crowded = false
	}
	free, puts := TotalBytes-w.Bytes(), w.puts()
	held, holding := w.held()
	share := w.share()
	served := map[*want]bool{}
	for _, want := range w.turns(held) {
		p, name := w.parts[want.Digest], want.Reader.Node
		node := w.nodes[name]
		mine := held[name]
		room := p.heldBy(name) || mine.parts == 0 || mine.bytes+want.Bytes <= share && mine.parts < MostParts
		switch {
		case !room:
			node.crowded = node.crowded || !holding[want.Reader]
			continue
		case p != nil && p.state == removing:
			continue
		case p == nil && (w.blocked || puts == PutsAtOnce || want.Bytes > free):
			w.blocked = w.blocked || want.Bytes > free
			continue
		case p == nil:
			p = &part{bytes: want.Bytes, holders: map[Reader]time.Time{}}
			w.add(want.Digest, p)
			free, puts = free-want.Bytes, puts+1
		}
		if !p.heldBy(name) {
			held[name] = load{mine.bytes + p.bytes, mine.parts + 1}
			w.grants++
			node.granted = w.grants
		}
		if p.holders[want.Reader].IsZero() {
			p.holders[want.Reader] = now
		}
		if p.state == there {
			served[want] = true
			w.answer(Tell, want)
		}
	}
	w.forget(func(want *want) bool { return served[want] })
}

func (w *Window) add(digest string, p *part) {
	if w.parts == nil {
		w.parts = map[string]*part{}
	}
	w.parts[digest] = p
	w.tasks = append(w.tasks, Task{Kind: Put, Digest: digest})
}

func (w *Window) puts() (puts int) {
	for _, p := range w.parts {
		if p.state == putting {
			puts++
		}
	}
	return puts
}
