package shards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/reknit/reknit/services/agent/window"
)

// The words of a reader to a store, beside the requests that read it. Each bears the name of a part or of a piece of one.
//
//	shards.want.<bucket>  the answer is the record of the piece, once it is there, or has the status 404: the store does
//	                      not give it; or 429: it is to be asked for again, and keeps its turn. Behind the name may stand how many
//	                      chunks are to come beside the record, and where to: each as a direct get answers, once it is there
//	shards.have.<bucket>  the reader needs the piece no more
func wantSubject(bucket string) string { return "shards.want." + bucket }
func haveSubject(bucket string) string { return "shards.have." + bucket }

const (
	statusAbsent = "404"
	statusLater  = "429"
	statusNobody = "503" // the server's: nobody answers
)

// An answer with a status tells that the store knows pieces: one of an earlier build has nothing of such a name either.
const (
	givesHeader = "Reknit-Gives"
	givesPieces = "pieces"
)

// pendingWants bounds what readers have said and the store has not heard yet.
const (
	pendingWants = 4096
	pendingBytes = 1 << 20
)

// Offering is the memory of a part, as one owner offers it. Blocks of zeros, for example, have many owners.
type Offering struct {
	Digest string
	data   []byte
}

// gives is what a store gives from memory, and what of that is in its bucket.
type gives struct {
	mutex   sync.Mutex
	window  window.Window
	offered map[string][]*Offering // by digest
	puts    map[string]*writing    // that are under way, by name
	stored  map[string]stored      // what is in the bucket, by name
	work    sync.WaitGroup         // puts and removals
	open    context.Context        // ends with the store
	end     context.CancelFunc
}

// stored is where a piece lies: its record, and the sequences of its chunks.
type stored struct {
	record    []byte
	sequences []uint64
}

// writing is a piece on its way into the bucket: the offering whose memory is read until done is closed.
type writing struct {
	of     *Offering
	cancel context.CancelFunc
	done   chan struct{}
}

func newGives() gives {
	open, end := context.WithCancel(context.Background())
	return gives{
		offered: map[string][]*Offering{}, puts: map[string]*writing{}, stored: map[string]stored{}, open: open, end: end,
	}
}

// Offer has a store give a part of memory, which stays as it is until Withdraw. It is put into the bucket when a reader wants
// it, and removed when its readers have it.
func (s *Store) Offer(digest string, data []byte) *Offering {
	offering := &Offering{digest, data}
	s.gives.mutex.Lock()
	defer s.gives.mutex.Unlock()
	s.gives.offered[digest] = append(s.gives.offered[digest], offering)
	return offering
}

// Withdraw ends the giving of parts: when it returns, nothing reads their memory any more.
func (s *Store) Withdraw(offerings ...*Offering) {
	for _, reading := range s.withdraw(offerings) {
		<-reading.done
	}
}

// withdraw returns the puts that still read memory.
func (s *Store) withdraw(offerings []*Offering) (reading []*writing) {
	s.gives.mutex.Lock()
	defer s.gives.mutex.Unlock()
	for _, offering := range offerings {
		digest := offering.Digest
		left := slices.DeleteFunc(s.gives.offered[digest], func(other *Offering) bool { return other == offering })
		s.gives.offered[digest] = left
		if len(left) == 0 {
			delete(s.gives.offered, digest)
			s.gives.window.Withdraw(func(name string) bool { of, _ := parsePiece(name); return of.digest == digest })
		}
		for _, under := range s.gives.puts {
			if under.of == offering {
				under.cancel()
				reading = append(reading, under)
			}
		}
	}
	s.step()
	return reading
}

// Get returns a copy of a part that the store gives. It fails with ErrNotGiven.
func (s *Store) Get(digest string) ([]byte, error) {
	s.gives.mutex.Lock()
	defer s.gives.mutex.Unlock()
	if offered := s.gives.offered[digest]; len(offered) > 0 {
		return slices.Clone(offered[0].data), nil
	}
	return nil, fmt.Errorf("get %.80s from %s: %w", digest, s.bucket, ErrNotGiven)
}

// ErrNotGiven says that nobody offers a part.
var ErrNotGiven = errors.New("the part is not given")

// listen hears what readers want and have.
func (s *Store) listen() error {
	for subject, hear := range map[string]func(*nats.Msg){
		wantSubject(s.bucket): s.hearWant, haveSubject(s.bucket): s.hearHave,
	} {
		heard, err := s.conn.Subscribe(subject, hear)
		if err != nil {
			return err
		}
		if err := heard.SetPendingLimits(pendingWants, pendingBytes); err != nil {
			return err
		}
	}
	go s.watch()
	return s.conn.Flush() // who asks before the server knows of it would take the store for one that gives nothing
}

// readerOf returns the connection that a request came over, of which the server tells, and whose that is: no reader can say that
// it is another. The connection's name is below what it hears. It reports false where that connection is no more.
func (s *Store) readerOf(request *nats.Msg) (reader window.Reader, name string, there bool) {
	var info server.ClientInfo
	if json.Unmarshal([]byte(request.Header.Get(server.ClientInfoHdr)), &info) != nil {
		return reader, "", false
	}
	connection := s.server.GetClient(info.ID)
	if connection == nil {
		return reader, "", false
	}
	return window.Reader{Node: nodeOf(connection), Connection: info.ID}, info.Name, true
}

func (s *Store) hearWant(request *nats.Msg) {
	now := time.Now()
	s.gives.mutex.Lock()
	defer s.gives.mutex.Unlock()
	wanted, push, given := s.wantOf(string(request.Data))
	if !given {
		s.tell(request.Reply, statusAbsent, nil)
		return
	}
	reader, name, there := s.readerOf(request)
	if !there {
		return
	}
	wanted.Reader, wanted.Reply = reader, request.Reply
	if inboxName.MatchString(name) {
		wanted.Chunks = push.to(name)
	}
	if !s.gives.window.Want(wanted, now) {
		s.tell(request.Reply, statusLater, nil)
		return
	}
	s.step()
}

// wantOf returns what is asked for. It reports false where the store gives no such thing. Called with the mutex held.
func (s *Store) wantOf(said string) (window.Want, push, bool) {
	of, push, ok := parseWant(said)
	offered := s.gives.offered[of.digest]
	if !ok || len(offered) == 0 {
		return window.Want{}, push, false
	}
	data, has := of.of(offered[0].data)
	size := int64(len(data))
	return window.Want{Digest: of.name(), Bytes: size}, push, has && push.chunks <= chunksOf(size)
}

func (s *Store) hearHave(said *nats.Msg) {
	s.gives.mutex.Lock()
	defer s.gives.mutex.Unlock()
	if reader, _, there := s.readerOf(said); there {
		left.leave(copiesOfRead * s.gives.window.Have(reader, string(said.Data)))
	}
	s.tell(said.Reply, "", nil) // the server keeps a question that nobody answers for two minutes
	s.step()
}

// tell answers a reader, who asks again where that does not arrive.
func (s *Store) tell(reply, status string, record []byte) {
	if reply == "" {
		return
	}
	answer := &nats.Msg{Subject: reply, Data: record}
	if status != "" {
		answer.Header = nats.Header{"Status": {status}, givesHeader: {givesPieces}}
	}
	if err := s.conn.PublishMsg(answer); err != nil {
		slog.Debug("a reader is not answered", "bucket", s.bucket, "error", err)
	}
}

// step does what is to be done now. Called with the mutex held.
func (s *Store) step() {
	if s.gives.open.Err() != nil {
		return
	}
	for _, task := range s.gives.window.Next(time.Now()) {
		switch task.Kind {
		case window.Put:
			s.beginPut(task.Digest)
		case window.Remove:
			s.gives.work.Go(func() { s.remove(task.Digest) })
		case window.Tell:
			s.give(task)
		case window.Later:
			s.tell(task.Reply, statusLater, nil)
		case window.Refuse:
			s.tell(task.Reply, statusAbsent, nil)
		}
	}
}

// give tells where a piece lies, and has the bucket answer with those of its first chunks that did not go yet, as if the reader had asked
// for them itself, a round trip later. Called with the mutex held.
func (s *Store) give(task window.Task) {
	lies := s.gives.stored[task.Digest]
	s.tell(task.Reply, "", lies.record)
	for i, to := range task.Chunks {
		if to != "" {
			s.push(to, lies.sequences[i])
		}
	}
}

// push has the bucket send a reader the chunk at a sequence.
func (s *Store) push(to string, sequence uint64) {
	if err := s.conn.PublishRequest(direct("$JS.API", s.bucket), to, chunkAt(sequence)); err != nil {
		slog.Debug("a reader is not sent a chunk", "bucket", s.bucket, "error", err)
	}
}

// came sends a chunk of a piece that is being put to those who wait for it: the first is on its way before the last is there.
func (s *Store) came(name string, number int, sequence uint64) {
	s.gives.mutex.Lock()
	to := s.gives.window.Chunk(name, number)
	s.gives.mutex.Unlock()
	for _, inbox := range to {
		s.push(inbox, sequence)
	}
}

// beginPut is called with the mutex held, for a part that somebody offers: none that is withdrawn is wanted.
func (s *Store) beginPut(name string) {
	ctx, cancel := context.WithCancel(s.gives.open)
	of, _ := parsePiece(name)
	under := &writing{of: s.gives.offered[of.digest][0], cancel: cancel, done: make(chan struct{})}
	s.gives.puts[name] = under
	s.gives.work.Go(func() {
		data, _ := of.of(under.of.data)
		sent, err := s.send(ctx, of, data)
		cancel()
		close(under.done)
		stored, err := s.settle(sent, err)
		s.endPut(name, int64(sent.size), stored, err)
	})
}

func (s *Store) endPut(name string, bytes int64, stored stored, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		slog.Warn("a part that is wanted cannot be put", "bucket", s.bucket, "part", name, "error", err)
	}
	s.gives.mutex.Lock()
	defer s.gives.mutex.Unlock()
	delete(s.gives.puts, name)
	if err != nil {
		s.gives.window.Failed(name)
	} else {
		s.gives.stored[name] = stored
		s.gives.window.Stored(name)
	}
	left.leave(copiesOfPut * bytes)
	s.step()
}

func (s *Store) remove(name string) {
	s.unstore(name)
	s.gives.mutex.Lock()
	defer s.gives.mutex.Unlock()
	delete(s.gives.stored, name)
	s.gives.window.Removed(name)
	s.step()
}

// watch ends what readers left undone, until the store is closed.
func (s *Store) watch() {
	ticks := time.NewTicker(window.AnswerWithin / 2)
	defer ticks.Stop()
	for {
		select {
		case <-s.gives.open.Done():
			return
		case <-ticks.C:
			s.look()
		}
	}
}

// look takes readers whose connection has ended out of the window.
func (s *Store) look() {
	s.gives.mutex.Lock()
	defer s.gives.mutex.Unlock()
	for _, reader := range s.gives.window.Readers() {
		if s.server.GetClient(reader.Connection) == nil {
			s.gives.window.Gone(reader)
		}
	}
	s.step()
}
