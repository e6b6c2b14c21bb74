package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// chunkBytes is the length of a message of a part, but for the last.
const chunkBytes = 512 << 10

// eventBytes is the most that anything said in a cluster is long which is no state.
const eventBytes = events.MaxEventBytes

// tap hears what servers pass on to those who read from them: at the hub as anybody, and at a node's own store, where no reader hears
// another's answers, as its owner. It takes no word of an agent for it: an answer of a bucket bears the names of its stream and
// sequence, which its server adds, and what a server passes on otherwise is core NATS.
type tap struct {
	mutex  sync.Mutex
	conns  []*nats.Conn
	sum    sum
	places map[string]place     // of chunks, by bucket and sequence
	parts  map[string]*assembly // by digest
	had    map[string]bool      // by reader, digest and chunk
	askers map[string]string    // who reads a chunk, by where its answer goes
	puts   map[string][]byte    // into the hub, by token
}

// sum is what went over the servers so far.
type sum struct {
	store    int64  // bytes of chunks that nodes' own buckets answered
	hub      int64  // and the hub's
	again    int64  // of these, bytes that their reader had been answered before
	core     int64  // bytes of state that came in another way
	verified int    // parts of which all chunks came, and which are what their digest says
	corrupt  int    // and which are not
	keeping  int64  // bytes that nodes were asked to keep of others' snapshots
	coreWas  string // the subject of the last such message
}

func (s sum) less(before sum) sum {
	return sum{s.store - before.store, s.hub - before.hub, s.again - before.again, s.core - before.core,
		s.verified - before.verified, s.corrupt - before.corrupt, s.keeping - before.keeping, s.coreWas}
}

type place struct {
	digest string
	size   int64
	chunk  int
}

// assembly is the chunks of a part that came, to whomever.
type assembly struct {
	data []byte
	came map[int]bool
}

func newTap() *tap {
	return &tap{places: map[string]place{}, parts: map[string]*assembly{}, had: map[string]bool{},
		askers: map[string]string{}, puts: map[string][]byte{}}
}

// open hears what a server passes on, below a subject.
func (t *tap) open(conn *nats.Conn, subject string, hear func(*nats.Msg)) error {
	t.mutex.Lock()
	t.conns = append(t.conns, conn)
	t.mutex.Unlock()
	heard, err := conn.Subscribe(subject, func(message *nats.Msg) {
		t.mutex.Lock()
		defer t.mutex.Unlock()
		hear(message)
	})
	if err != nil {
		return err
	}
	if err := heard.SetPendingLimits(-1, -1); err != nil {
		return err
	}
	return conn.Flush()
}

func (t *tap) close() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for _, conn := range t.conns {
		conn.Close()
	}
}

func (t *tap) so() sum {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.sum
}

// answers is below what a server answers those who ask over an account's border.
const answers = "_R_."

// hearStore hears what a node's own server is asked by readers, and what it answers.
func (t *tap) hearStore(message *nats.Msg) {
	switch {
	case strings.HasPrefix(message.Subject, "$JS.API.DIRECT.GET."):
		t.asked(message)
	case !strings.HasPrefix(message.Subject, answers): // the giver's own
	case message.Header.Get(jetstream.StreamHeader) != "":
		t.sum.store += int64(len(message.Data))
		t.chunk(message)
	case message.Header.Get("Status") != "" || len(message.Data) == 0:
	case t.record(message.Data):
	case len(bytes.Trim(message.Data, "\x00")) == 0: // zeros that warm a connection
	default:
		t.other(message)
	}
}

// other is state that came by core NATS.
func (t *tap) other(message *nats.Msg) {
	t.sum.core += int64(len(message.Data))
	t.sum.coreWas = message.Subject
}

// asked notes whose request for a chunk it is, of which the server tells.
func (t *tap) asked(request *nats.Msg) {
	var who server.ClientInfo
	if json.Unmarshal([]byte(request.Header.Get(server.ClientInfoHdr)), &who) == nil {
		t.askers[request.Reply] = fmt.Sprint(request.Subject, " ", who.ID)
	}
}

// record learns where the chunks of a part lie.
func (t *tap) record(data []byte) bool {
	var info jetstream.ObjectInfo
	var sequences []uint64
	if json.Unmarshal(data, &info) != nil || json.Unmarshal([]byte(info.Metadata["reknit-sequences"]), &sequences) != nil {
		return false
	}
	for chunk, sequence := range sequences {
		t.places[fmt.Sprint(info.Bucket, " ", sequence)] = place{info.Name, int64(info.Size), chunk}
	}
	return true
}

// chunk takes a chunk of a part of a node's own bucket.
func (t *tap) chunk(message *nats.Msg) {
	bucket := strings.TrimPrefix(message.Header.Get(jetstream.StreamHeader), "OBJ_")
	at, known := t.places[bucket+" "+message.Header.Get(jetstream.SequenceHeader)]
	if !known {
		return // its record went to a reader before the tap was there
	}
	key := fmt.Sprint(t.askers[message.Subject], " ", at.digest, " ", at.chunk)
	delete(t.askers, message.Subject)
	if t.had[key] {
		t.sum.again += int64(len(message.Data))
	}
	t.had[key] = true
	part := t.parts[at.digest]
	if part == nil {
		part = &assembly{make([]byte, at.size), map[int]bool{}}
		t.parts[at.digest] = part
	}
	if part.data == nil {
		return // verified already
	}
	copy(part.data[at.chunk*chunkBytes:], message.Data)
	part.came[at.chunk] = true
	if int64(len(part.came)) == (at.size+chunkBytes-1)/chunkBytes {
		t.verify(at.digest, part.data)
		part.data = nil
	}
}

func (t *tap) verify(digest string, data []byte) {
	if events.Digest(data) == digest {
		t.sum.verified++
		return
	}
	t.sum.corrupt++
}

// hearHub hears everything that the hub passes on.
func (t *tap) hearHub(cluster string) func(*nats.Msg) {
	bucket := events.Lane(cluster, events.ShardBucket)
	keeps := strings.TrimSuffix(events.KeepSubject(cluster, "*"), "*")
	relays := strings.TrimSuffix(events.RelaySubject(cluster, "*"), "*")
	return func(message *nats.Msg) {
		chunk, put := strings.CutPrefix(message.Subject, "$O."+bucket+".C.")
		_, described := strings.CutPrefix(message.Subject, "$O."+bucket+".M.")
		switch {
		case put:
			t.puts[chunk] = append(t.puts[chunk], message.Data...)
		case described:
			t.described(message.Data)
		case message.Header.Get(jetstream.StreamHeader) == "OBJ_"+bucket:
			t.readOfHub(message)
		case strings.HasPrefix(message.Subject, keeps):
			var asked events.Keeping
			if json.Unmarshal(message.Data, &asked) == nil {
				t.sum.keeping += asked.Bytes
			}
		case strings.HasPrefix(message.Subject, relays): // gradients and activations, where a link must not be used
		case len(message.Data) > eventBytes && message.Header.Get(jetstream.StreamHeader) == "" && !strings.HasPrefix(message.Subject, "$O."):
			t.other(message)
		}
	}
}

// described verifies what was put into the hub.
func (t *tap) described(data []byte) {
	var info jetstream.ObjectInfo
	if json.Unmarshal(data, &info) != nil || info.Deleted {
		return
	}
	if came := t.puts[info.NUID]; uint64(len(came)) == info.Size {
		t.verify(info.Name, came)
	}
	delete(t.puts, info.NUID)
}

// readOfHub takes a chunk that the hub answered: a record, too, is a message of its stream.
func (t *tap) readOfHub(message *nats.Msg) {
	if !strings.Contains(message.Header.Get(jetstream.SubjectHeader), ".C.") {
		return
	}
	t.sum.hub += int64(len(message.Data))
	reader := message.Subject[:strings.LastIndex(message.Subject, ".")]
	sequence, _ := strconv.ParseUint(message.Header.Get(jetstream.SequenceHeader), 10, 64)
	key := fmt.Sprint(reader, " hub ", sequence)
	if t.had[key] {
		t.sum.again += int64(len(message.Data))
	}
	t.had[key] = true
}
