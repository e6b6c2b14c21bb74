package shards

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/services/agent/queue"
	"github.com/reknit/reknit/services/agent/seal"
)

// batchMessages bounds the messages of an answer whose chunks another writer made smaller.
const batchMessages = 64

// source is a bucket that is read over one connection after the other, and the answers that are awaited of it.
type source struct {
	conn   *nats.Conn
	bucket string
	api    string // prefix of the JetStream API
	inbox  string // answers arrive below it
	late   func(bytes int64)
	seal   seal.Key

	crowded atomic.Bool // the giver had no room for a piece when it was asked last

	began time.Time
	heard atomic.Int64 // when the last byte came, in nanoseconds from then on

	mutex   sync.Mutex
	answers map[string]*answer // by the last token of their subject
	ahead   map[string]*answer // of manifests of parts that will be read later, by digest
	token   uint64
	present *hearing
	broken  chan struct{} // closed when the present connection is lost
	trip    time.Duration
	kind    kind
	used    map[string]int         // claims, by the name of their piece
	kept    map[string]*queue.Part // wants that keep their turn with the giver though no claim waits, by the name of the piece
}

// kind is what is known of a source.
type kind int

const (
	unknown   kind = iota
	puts           // pieces of parts into its bucket when they are wanted, as an agent's store
	putsWhole      // whole parts, as an agent's of an earlier build
	keeps          // parts in its bucket, as the hub
)

// answer receives the messages that one request asks for.
type answer struct {
	token    string
	messages chan *nats.Msg
	broken   <-chan struct{}
}

// deliver hands a message to who asked for it. One that nobody awaits any more is counted.
func (s *source) deliver(message *nats.Msg) {
	token := strings.TrimPrefix(message.Subject, s.inbox)
	s.mutex.Lock()
	awaited := s.answers[token]
	s.mutex.Unlock()
	if awaited != nil {
		select {
		case awaited.messages <- message:
			return
		default: // more than was asked for
		}
	}
	s.unwanted(message)
}

// unwanted counts a chunk that nobody awaits: a giver's word that a part is there is none.
func (s *source) unwanted(message *nats.Msg) {
	if message.Header.Get(jetstream.SequenceHeader) != "" {
		s.late(int64(len(message.Data)))
	}
}

// ask sends a request of which at most messages answers are awaited.
func (s *source) ask(subject string, request []byte, messages int) (*answer, error) {
	s.mutex.Lock()
	asked := s.expect(messages)
	s.mutex.Unlock()
	err := s.conn.PublishRequest(subject, s.inbox+asked.token, request)
	if err != nil {
		s.forget(asked)
	}
	return asked, err
}

// expect awaits an answer. Called with the mutex held.
func (s *source) expect(messages int) *answer {
	s.token++
	asked := &answer{strconv.FormatUint(s.token, 10), make(chan *nats.Msg, messages), s.broken}
	s.answers[asked.token] = asked
	return asked
}

func (s *source) forget(asked *answer) {
	s.mutex.Lock()
	delete(s.answers, asked.token)
	s.mutex.Unlock()
	for {
		select {
		case message := <-asked.messages:
			s.unwanted(message)
		default:
			return
		}
	}
}

func direct(api, bucket string) string { return api + ".DIRECT.GET." + streamName(bucket) }

func chunkAt(sequence uint64) []byte { return fmt.Appendf(nil, `{"seq":%d}`, sequence) }

func (s *source) direct() string { return direct(s.api, s.bucket) }

// askManifest asks for a piece's manifest: of a giver, which puts the piece, or of a bucket in which the part lies.
func (s *source) askManifest(of piece) (*answer, error) {
	if s.puts() {
		return s.ask(wantSubject(s.bucket), []byte(of.name()), 1)
	}
	return s.ask(s.direct()+"."+metaSubject(s.bucket, s.seal.Name(of.digest)), nil, 1)
}

// askPiece asks a giver for a piece's manifest and its first chunks.
func (s *source) askPiece(of piece, chunks int) (asked *answer, pushed []*answer, err error) {
	s.mutex.Lock()
	push := push{int64(chunks), s.inbox[strings.LastIndex(s.inbox[:len(s.inbox)-1], ".")+1 : len(s.inbox)-1], s.token + 1}
	for range chunks {
		pushed = append(pushed, s.expect(1))
	}
	s.mutex.Unlock()
	asked, err = s.ask(wantSubject(s.bucket), fmt.Append(nil, of.name(), " ", push), 1)
	return asked, pushed, err
}

// use notes that a claim needs a piece.
func (s *source) use(name string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.used[name]++
	delete(s.kept, name)
}

// stay ends a claim's need of a piece that the giver has no room for yet: the want keeps its turn until the next claim.
func (s *source) stay(name string, of *queue.Part) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.used[name]--; s.used[name] <= 0 {
		delete(s.used, name)
		s.kept[name] = of
	}
}

// unneeded returns the pieces whose wants need not be kept any more, once.
func (s *source) unneeded(needs func(*queue.Part) bool) (names []string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for name, part := range s.kept {
		if !needs(part) {
			names = append(names, name)
			delete(s.kept, name)
		}
	}
	return names
}

// say tells a giver that pieces are needed no more.
func (s *source) say(have []string) {
	for _, name := range have {
		_ = s.conn.Publish(haveSubject(s.bucket), []byte(name)) // a giver that does not hear it removes the piece later
	}
}

// leave tells a giver that a piece is needed no more, once no claim does.
func (s *source) leave(name string) {
	s.mutex.Lock()
	s.used[name]--
	needed := s.used[name] > 0
	if !needed {
		delete(s.used, name)
	}
	s.mutex.Unlock()
	if !needed && s.puts() {
		s.say([]string{name})
	}
}

// askManifestAhead asks for a part's manifest that takeManifest will hand out.
func (s *source) askManifestAhead(digest string) error {
	s.mutex.Lock()
	there := s.ahead[digest] != nil
	s.mutex.Unlock()
	if there {
		return nil
	}
	asked, err := s.askManifest(piece{digest: digest})
	if err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.ahead[digest] = asked
	return nil
}

// keepAhead drops what was asked for ahead, but for these parts.
func (s *source) keepAhead(digests []string) {
	s.mutex.Lock()
	var dropped []string
	for digest := range s.ahead {
		if !slices.Contains(digests, digest) {
			dropped = append(dropped, digest)
		}
	}
	s.mutex.Unlock()
	for _, digest := range dropped {
		if asked := s.takeManifest(digest); asked != nil {
			s.forget(asked)
		}
	}
}

// takeManifest returns the answer that was asked for ahead, or nil.
func (s *source) takeManifest(digest string) *answer {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	asked := s.ahead[digest]
	delete(s.ahead, digest)
	return asked
}

// puts reports whether a source puts parts into its bucket when they are wanted, as far as is known.
func (s *source) puts() bool { return s.known() != keeps }

func (s *source) known() kind {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.kind
}

// learn notes what a source does. A source that did once can.
func (s *source) learn(known kind) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.kind == unknown {
		s.kind = known
	}
}

// askChunk asks for the chunk at a sequence; the answer is one message, with a status where there is none.
func (s *source) askChunk(sequence uint64) (*answer, error) {
	return s.ask(s.direct(), chunkAt(sequence), 1)
}

// askChunks asks for chunks from a sequence on; the answer ends with a message that has a status.
func (s *source) askChunks(found *manifest, from uint64, chunks int, bytes int64) (*answer, error) {
	request := fmt.Appendf(nil, `{"seq":%d,"next_by_subj":%q,"batch":%d,"max_bytes":%d}`,
		from, chunkSubject(s.bucket, found.info.NUID), chunks, bytes)
	return s.ask(s.direct(), request, chunks+1)
}
