package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
)

// eventBytes is the most that anything said in a cluster is long which is no state.
const eventBytes = events.MaxEventBytes

// tap hears what servers pass on to those who read from them: at the hub as anybody, and at a node's own store, where no reader hears
// another's answers, as its owner. It takes no word of an agent for it: an answer of a bucket bears the names of its stream and
// sequence, which its server adds, and what a server passes on otherwise is core NATS.
type tap struct {
	mutex  sync.Mutex
	conns  []*nats.Conn
	sum    sum
	places map[string]place       // of chunks, by bucket and sequence
	early  map[string][]*nats.Msg // chunks that were answered before their record was put, by the same
	parts  map[string]*assembly   // and pieces of parts, by reader and name
	had    map[string]string      // out of which object a chunk came, by reader, part and its place there
	askers map[string]string      // who reads a chunk, by where its answer goes
	names  map[string]string      // who a reader is, by the name of its connection
	puts   map[string][]byte      // into the hub, by token
	hub    map[string]place       // what those put, by token
}

// sum is what went over the servers so far.
type sum struct {
	store    int64  // bytes of chunks that nodes' own buckets answered
	hub      int64  // and the hub's
	again    int64  // of these, bytes that their reader had been answered before
	core     int64  // bytes of state that came in another way
	verified int    // parts of which a reader was answered all chunks, and which are what their digest says
	ofStores int64  // bytes of those that nodes' own buckets answered
	ofHub    int64  // and of those that the hub's did
	corrupt  int    // parts that are not what their digest says
	keeping  int64  // bytes that nodes were asked to keep of others' snapshots
	coreWas  string // the subject of the last such message
}

func (s sum) less(before sum) sum {
	return sum{s.store - before.store, s.hub - before.hub, s.again - before.again, s.core - before.core, s.verified - before.verified,
		s.ofStores - before.ofStores, s.ofHub - before.ofHub, s.corrupt - before.corrupt, s.keeping - before.keeping, s.coreWas}
}

// place is of which object a chunk is, and which of its chunks.
type place struct {
	object string // its name: a part's digest, or that of a piece of one, DIGEST.FIRST-END
	digest string // of its content
	size   int64
	chunk  int
}

// assembly is the chunks of a part that one reader was answered, by their order; without their bytes once the part was verified.
type assembly struct {
	chunks map[int][]byte
	bytes  int64
}

func newTap() *tap {
	return &tap{places: map[string]place{}, early: map[string][]*nats.Msg{}, parts: map[string]*assembly{}, had: map[string]string{},
		askers: map[string]string{}, names: map[string]string{}, puts: map[string][]byte{}, hub: map[string]place{}}
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

// answers is below what a server answers those who ask over an account's border, and pushed below what a giver has it send them.
const answers, pushed = "_R_.", "pushed."

// hearStore hears what a node's own server is asked by readers, and what it answers.
func (t *tap) hearStore(message *nats.Msg) {
	switch {
	case strings.HasPrefix(message.Subject, "$JS.API.DIRECT.GET."), strings.HasPrefix(message.Subject, "shards.want."):
		t.asked(message)
	case strings.HasPrefix(message.Subject, "$O.") && strings.Contains(message.Subject, ".M."):
		t.record(message.Data)
	case !strings.HasPrefix(message.Subject, answers) && !strings.HasPrefix(message.Subject, pushed): // the giver's own
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
	if json.Unmarshal([]byte(request.Header.Get(server.ClientInfoHdr)), &who) != nil {
		return // the giver, who has a chunk sent to who asked for it with the record
	}
	bucket := strings.TrimPrefix(request.Subject[strings.LastIndex(request.Subject, ".")+1:], "OBJ_")
	reader := fmt.Sprint(bucket, " ", who.ID)
	t.names[who.Name] = reader
	if strings.HasPrefix(request.Subject, "$JS.") {
		t.askers[request.Reply] = reader
	}
}

// asker is who reads what is sent to a subject.
func (t *tap) asker(subject string) string {
	if name, sent := strings.CutPrefix(subject, pushed); sent {
		name, _, _ = strings.Cut(name, ".")
		return t.names[nats.InboxPrefix+name]
	}
	reader := t.askers[subject]
	delete(t.askers, subject)
	return reader
}

// record learns where the chunks of a part, or of a piece of one, lie.
func (t *tap) record(data []byte) bool {
	var info jetstream.ObjectInfo
	var sequences []uint64
	if json.Unmarshal(data, &info) != nil || json.Unmarshal([]byte(info.Metadata["reknit-sequences"]), &sequences) != nil {
		return false
	}
	for chunk, sequence := range sequences {
		at := fmt.Sprint(info.Bucket, " ", sequence)
		t.places[at] = place{info.Name, digestOf(info), int64(info.Size), chunk}
		came := t.early[at]
		delete(t.early, at)
		for _, message := range came {
			t.chunk(message)
		}
	}
	return true
}

// digestOf is what the content of an object has to be: what a part is named, and what the record says of a piece of one.
func digestOf(info jetstream.ObjectInfo) string {
	if !strings.Contains(info.Name, ".") {
		return info.Name
	}
	sum, _ := jetstream.DecodeObjectDigest(info.Digest) // nothing has a bad one
	return "sha256:" + hex.EncodeToString(sum)
}

// chunk takes a chunk of a part of a node's own bucket.
func (t *tap) chunk(message *nats.Msg) {
	bucket := strings.TrimPrefix(message.Header.Get(jetstream.StreamHeader), "OBJ_")
	at, known := t.places[bucket+" "+message.Header.Get(jetstream.SequenceHeader)]
	if !known { // it was put before its record, or even before the tap was there: no receipt equals what is verified then
		at := bucket + " " + message.Header.Get(jetstream.SequenceHeader)
		t.early[at] = append(t.early[at], message)
		return
	}
	reader := t.asker(message.Subject)
	key := fmt.Sprint(reader, " ", at.inPart())
	if had := t.had[key]; had != "" && had != at.object {
		t.sum.again += int64(len(message.Data))
	}
	t.had[key] = at.object
	t.sum.ofStores += t.take(fmt.Sprint(reader, " ", at.object), at, message.Data)
}

// chunkBytes is the length of a message of a part, but for the last.
const chunkBytes = 512 << 10

// inPart names a chunk by its part and its place there.
func (p place) inPart() string {
	part, borders, _ := strings.Cut(p.object, ".")
	first, _, _ := strings.Cut(borders, "-")
	from, _ := strconv.Atoi(first) // 0 of a whole part
	return fmt.Sprint(part, " ", from/chunkBytes+p.chunk)
}

// take adds a chunk to what a reader was answered of a part, and returns the bytes of the part where it is whole with that and what
// its digest says.
func (t *tap) take(key string, at place, data []byte) int64 {
	part := t.parts[key]
	if part == nil {
		part = &assembly{chunks: map[int][]byte{}}
		t.parts[key] = part
	}
	if _, had := part.chunks[at.chunk]; had {
		t.sum.again += int64(len(data))
		return 0
	}
	part.chunks[at.chunk] = data
	part.bytes += int64(len(data))
	if part.bytes < at.size {
		return 0
	}
	var whole []byte
	for _, chunk := range slices.Sorted(maps.Keys(part.chunks)) {
		whole = append(whole, part.chunks[chunk]...)
		part.chunks[chunk] = nil
	}
	if events.Digest(whole) != at.digest {
		t.sum.corrupt++
		return 0
	}
	t.sum.verified++
	return part.bytes
}

// hearHub hears everything that the hub passes on.
func (t *tap) hearHub(cluster string) func(*nats.Msg) {
	bucket := events.Lane(cluster, events.ShardBucket)
	keeps := strings.TrimSuffix(events.KeepSubject(cluster, "*", ""), "*")
	relays := strings.TrimSuffix(events.RelaySubject(cluster, "*", ""), "*")
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

// described verifies what was put into the hub, and notes what it is.
func (t *tap) described(data []byte) {
	var info jetstream.ObjectInfo
	if json.Unmarshal(data, &info) != nil || info.Deleted {
		return
	}
	if came := t.puts[info.NUID]; uint64(len(came)) == info.Size && events.Digest(came) != info.Name {
		t.sum.corrupt++
	}
	delete(t.puts, info.NUID)
	t.hub[info.NUID] = place{digest: info.Name, size: int64(info.Size)}
}

// readOfHub takes a chunk that the hub answered: a record, too, is a message of its stream.
func (t *tap) readOfHub(message *nats.Msg) {
	_, token, isChunk := strings.Cut(message.Header.Get(jetstream.SubjectHeader), ".C.")
	if !isChunk {
		return
	}
	t.sum.hub += int64(len(message.Data))
	at, known := t.hub[token]
	sequence, err := strconv.Atoi(message.Header.Get(jetstream.SequenceHeader))
	if !known || err != nil {
		return
	}
	at.chunk = sequence
	reader := message.Subject[:strings.LastIndex(message.Subject, ".")]
	t.sum.ofHub += t.take(fmt.Sprint(reader, " ", token), at, message.Data)
}
