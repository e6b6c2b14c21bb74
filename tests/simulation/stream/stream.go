package stream

import (
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// Message is what is published, and what a stream holds.
type Message struct {
	Subject string
	ID      string // Nats-Msg-Id, by which a repeat is recognised; may be empty
	Bytes   int64  // what the message takes in the store
	Data    any    // is passed through

	Sequence uint64    // position in its stream; zero before that
	Logged   time.Time // when the leader took it; zero before that

	family family // of the subject
}

// Expect binds a publish to the last message on a subject: it must be the one at Sequence, where zero means none.
type Expect struct {
	Subject  string
	Sequence uint64
}

// Ack says where a message is stored.
type Ack struct {
	Sequence  uint64
	Duplicate bool // it was there already, by its id
}

// Stream is one log. A stored message never changes; only age takes it away, and newer messages on its subject.
type Stream struct {
	Payloads  *Objects // those of its messages that are too large for it
	server    *Server
	config    events.Stream
	lastOnly  bool       // a new message replaces the one on its subject, as in a KV bucket
	messages  []*Message // by sequence - gone - 1; nil where a message is gone
	gone      uint64     // messages before these
	families  map[family][]uint64
	first     uint64 // sequence of the oldest message there is, or end
	thick     uint64 // sequence of the oldest message that was not thinned
	bytes     int64
	last      map[string]*Message // by subject
	on        map[string][]uint64 // by subject: sequences, oldest first, where only the newest are kept
	replaced  map[string]*Message // what the last message on a subject replaced: a replica that lags still has it
	known     map[string]uint64   // sequence by message id; zero while in process
	window    []*Message          // messages with an id, oldest first
	inProcess []pending
	durables  map[string]*Consumer
}

// pending is a message that the leader took and has not replicated.
type pending struct {
	stored *Message
	expect string // subject whose last sequence was checked; empty: none
}

func newStream(server *Server, config events.Stream) *Stream {
	return &Stream{
		server: server, config: config, first: 1, last: map[string]*Message{}, on: map[string][]uint64{}, replaced: map[string]*Message{},
		known: map[string]uint64{}, durables: map[string]*Consumer{}, families: map[family][]uint64{},
	}
}

// Errors of the server, with its own codes. The code decides whether shared/bus repeats.
func wrongLast() error {
	return &jetstream.APIError{Code: 400, ErrorCode: jetstream.JSErrCodeStreamWrongLastSequence,
		Description: "wrong last sequence"}
}

func wrongLastInProcess() error {
	return &jetstream.APIError{
		Code: 400, ErrorCode: jetstream.JSErrCodeStreamWrongLastSequenceConstant, Description: "wrong last sequence",
	}
}

func duplicateInProcess() error {
	return &jetstream.APIError{Code: 409, ErrorCode: 10158, Description: "duplicate message id is in process"}
}

func storeFailed(why string) error {
	return &jetstream.APIError{Code: 503, ErrorCode: 10077, Description: why}
}

// Publish stores a message. Errors: ErrNoConnection, ErrNoAnswer, jetstream.ErrNoStreamResponse, and
// *jetstream.APIError with the server's codes: 10071 (the expected message is not the last), 10164 (and another publish
// that expects it is in process), 10158 (this id is in process), 10077 (full, or the write-once subject is taken).
func (s *Stream) Publish(now time.Time, message Message, expect *Expect, fate Fate) (Ack, error) {
	if err := s.server.reach(fate); err != nil {
		return Ack{}, err
	}
	s.expire(now)
	ack, err := s.take(now, message, expect)
	if fate == Unheard {
		return Ack{}, ErrNoAnswer
	}
	return ack, err
}

// take does what the leader does. One server checks the expected sequence before the id, three do it the other way.
func (s *Stream) take(now time.Time, message Message, expect *Expect) (Ack, error) {
	checks := []func() (Ack, error){
		func() (Ack, error) { return Ack{}, s.checkExpected(expect) },
		func() (Ack, error) { return s.checkID(message.ID) },
	}
	if s.server.replicated {
		checks[0], checks[1] = checks[1], checks[0]
	}
	for _, check := range checks {
		if ack, err := check(); err != nil || ack.Duplicate {
			return ack, err
		}
	}
	if err := s.checkRoom(message); err != nil {
		return Ack{}, err
	}
	stored := &message
	stored.Logged = now
	if s.server.state == Isolated {
		s.propose(stored, expect)
		return Ack{}, ErrNoAnswer
	}
	s.store(stored)
	return Ack{Sequence: stored.Sequence}, nil
}

func (s *Stream) checkID(id string) (Ack, error) {
	sequence, known := s.known[id]
	switch {
	case !known || id == "":
		return Ack{}, nil
	case sequence == 0:
		return Ack{}, duplicateInProcess()
	}
	return Ack{Sequence: sequence, Duplicate: true}, nil
}

func (s *Stream) checkExpected(expect *Expect) error {
	if expect == nil {
		return nil
	}
	for _, waiting := range s.inProcess {
		if waiting.expect == expect.Subject || waiting.stored.Subject == expect.Subject {
			return wrongLastInProcess()
		}
	}
	if s.lastSequence(expect.Subject) != expect.Sequence {
		return wrongLast()
	}
	return nil
}

func (s *Stream) lastSequence(subject string) uint64 {
	if last := s.last[subject]; last != nil {
		return last.Sequence
	}
	return 0
}

// Bound lets the stream take nothing beyond so many bytes. Zero means unlimited. Messages that it holds stay.
func (s *Stream) Bound(bytes int64) { s.config.MaxBytes = bytes }

// Size returns what the stream holds and its bound, in bytes.
func (s *Stream) Size() (held, bound int64) { return s.bytes, s.config.MaxBytes }

func (s *Stream) checkRoom(message Message) error {
	bytes, taken := s.bytes+message.Bytes, s.last[message.Subject] != nil
	for _, waiting := range s.inProcess {
		bytes += waiting.stored.Bytes
		taken = taken || waiting.stored.Subject == message.Subject
	}
	full := s.config.MaxBytes > 0 && bytes > s.config.MaxBytes
	if replaced := s.replacedBy(message); full && !s.server.replicated && replaced != nil && replaced.Bytes >= message.Bytes {
		full = false // what is replaced makes room
	}
	switch {
	case taken && s.config.WriteOnce && !(full && s.server.replicated):
		return storeFailed("maximum messages per subject exceeded")
	case full:
		return storeFailed("maximum bytes exceeded")
	}
	return nil
}

// replacedBy returns the message that goes when another comes; nil where none does.
func (s *Stream) replacedBy(message Message) *Message {
	on := s.on[message.Subject]
	switch {
	case s.lastOnly:
		return s.last[message.Subject]
	case s.config.Newest > 0 && len(on) >= s.config.Newest:
		return s.at(on[0])
	}
	return nil
}

func (s *Stream) propose(stored *Message, expect *Expect) {
	waiting := pending{stored: stored}
	if expect != nil {
		waiting.expect = expect.Subject
	}
	s.inProcess = append(s.inProcess, waiting)
	if stored.ID != "" {
		s.known[stored.ID] = 0
	}
}

func (s *Stream) settle(keep int) {
	for i, waiting := range s.inProcess {
		if i < keep {
			s.store(waiting.stored)
		} else {
			delete(s.known, waiting.stored.ID)
		}
	}
	s.inProcess = nil
}

func (s *Stream) store(stored *Message) {
	stored.Sequence = s.end()
	if replaced := s.last[stored.Subject]; s.lastOnly && replaced != nil {
		s.remove(replaced)
		s.replaced[stored.Subject] = replaced
	}
	s.messages = append(s.messages, stored)
	s.note(stored)
	s.bytes += stored.Bytes
	s.last[stored.Subject] = stored
	s.keepNewest(stored)
	if stored.ID != "" {
		s.known[stored.ID] = stored.Sequence
		s.window = append(s.window, stored)
	}
}

// note lists a message with its family, and drops from the list what the stream has no more.
func (s *Stream) note(stored *Message) {
	stored.family = familyOf(stored.Subject)
	of := s.families[stored.family]
	for len(of) > 0 && of[0] < s.first {
		of = of[1:]
	}
	s.families[stored.family] = append(of, stored.Sequence)
}

// End returns the sequence that the next message will have. Errors: ErrNoConnection, ErrNoAnswer.
func (s *Stream) End(fate Fate) (uint64, error) { return s.end(), s.server.read(fate) }

// Ends returns the sequence of the last message, as nobody has to ask for.
func (s *Stream) Ends() uint64 { return s.end() - 1 }

// Info asks whether the stream is there. Errors: ErrNoConnection, ErrNoAnswer.
func (s *Stream) Info(fate Fate) error { return s.server.read(fate) }

// Get reads the message at sequence, from the leader. Errors: jetstream.ErrMsgNotFound, ErrNoConnection, ErrNoAnswer.
func (s *Stream) Get(sequence uint64, fate Fate) (Message, error) {
	if err := s.server.read(fate); err != nil {
		return Message{}, err
	}
	if stored := s.at(sequence); stored != nil {
		return *stored, nil
	}
	return Message{}, jetstream.ErrMsgNotFound
}

// Last reads the last message on a subject, which may end in a wildcard, from the leader. Errors: as Get.
func (s *Stream) Last(subject string, fate Fate) (Message, error) {
	if err := s.server.read(fate); err != nil {
		return Message{}, err
	}
	if last := s.last[subject]; last != nil {
		return *last, nil
	}
	for wanted, i := newFilter(subject), len(s.messages); i > 0; i-- {
		if stored := s.messages[i-1]; stored != nil && wanted.takes(stored) {
			return *stored, nil
		}
	}
	return Message{}, jetstream.ErrMsgNotFound
}

func (s *Stream) at(sequence uint64) *Message {
	if sequence <= s.gone || sequence >= s.end() {
		return nil
	}
	return s.messages[sequence-s.gone-1]
}

// end is the sequence that the next message will have.
func (s *Stream) end() uint64 { return s.gone + uint64(len(s.messages)) + 1 }

// next returns the first message from sequence on that a filter takes. Each of a thousand readers passes over what a
// thousand others said to somebody else: families are looked at, not messages.
func (s *Stream) next(sequence uint64, wanted filter) (next *Message) {
	if len(wanted.depths) > 0 {
		return s.nextOfAll(sequence, wanted)
	}
	before := s.end()
	for _, family := range wanted.each {
		of := s.families[family]
		if len(of) == 0 || of[len(of)-1] < sequence {
			continue
		}
		i, _ := slices.BinarySearch(of, sequence)
		for ; i < len(of) && of[i] < before; i++ {
			if stored := s.at(of[i]); stored != nil && wanted.takes(stored) {
				next, before = stored, stored.Sequence
			}
		}
	}
	return next
}

func (s *Stream) nextOfAll(sequence uint64, wanted filter) *Message {
	for i := max(sequence, s.first); i < s.end(); i++ {
		if stored := s.at(i); stored != nil && wanted.takes(stored) {
			return stored
		}
	}
	return nil
}
