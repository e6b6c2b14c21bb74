package shards

import (
	"context"
	"encoding/base64"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// lentSubject is where chunks of a bucket's lent parts are asked for: "<digest> <offset>". The answer is the chunk, or
// has the status 404.
func lentSubject(bucket string) string { return "shards.lent." + bucket }

// lent are parts that are served from their owners' memory, by digest.
type lent struct {
	mutex   sync.RWMutex // held for reading while a part's memory is read
	parts   map[string]*lentPart
	storing sync.Mutex // held while one is stored
}

// lentPart is the memory of a part, of everybody who lends it, and whether a reader had it stored.
type lentPart struct {
	loans  []*Loan // none where all were recalled, and the part was not retired
	stored bool
}

// Loan is the memory of a part, as one owner lends it. Blocks of zeros, for example, have many owners.
type Loan struct {
	Digest string
	data   []byte
}

// Lend serves a part from memory, which stays as it is until Recall. Nothing is copied: a part is stored when somebody
// asks the object store for its manifest, who finds it there when he asks again.
func (s *Store) Lend(digest string, data []byte) *Loan {
	loan := &Loan{digest, data}
	s.lent.mutex.Lock()
	defer s.lent.mutex.Unlock()
	part := s.lent.parts[digest]
	if part == nil {
		part = &lentPart{}
		s.lent.parts[digest] = part
	}
	part.loans = append(part.loans, loan)
	return loan
}

// Recall takes lent memory back: when it returns, nothing reads that any more. Retire is still to be called.
func (s *Store) Recall(loans ...*Loan) {
	s.lent.mutex.Lock()
	defer s.lent.mutex.Unlock()
	for _, loan := range loans {
		if part := s.lent.parts[loan.Digest]; part != nil {
			part.loans = slices.DeleteFunc(part.loans, func(other *Loan) bool { return other == loan })
		}
	}
}

// memory returns the memory of a part; nil where nobody lends it. Called with the mutex held.
func (l *lent) memory(digest string) []byte {
	if part := l.parts[digest]; part != nil && len(part.loans) > 0 {
		return part.loans[0].data
	}
	return nil
}

// leave forgets a part that nobody lends any more, and reports whether it is in the object store or may be.
func (l *lent) leave(digest string) (stored bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	part := l.parts[digest]
	if part != nil && len(part.loans) > 0 {
		return false
	}
	delete(l.parts, digest)
	return part == nil || part.stored
}

// copied returns a copy of a lent part; nil where there is none.
func (l *lent) copied(digest string) []byte {
	l.mutex.RLock()
	defer l.mutex.RUnlock()
	return slices.Clone(l.memory(digest))
}

// serveLent answers those who ask for chunks of lent parts, and hears who asks the object store for their manifests.
func (s *Store) serveLent() error {
	if _, err := s.conn.Subscribe(lentSubject(s.bucket), s.answerLent); err != nil {
		return err
	}
	if _, err := s.conn.Subscribe(directSubject(s.bucket)+"."+metaSubjects(s.bucket), s.storeLent); err != nil {
		return err
	}
	return s.conn.Flush() // who asks for a lent part before the server knows of it would have it stored
}

func (s *Store) answerLent(request *nats.Msg) {
	if !strings.HasPrefix(request.Reply, inboxes) {
		return
	}
	digest, offset, _ := strings.Cut(string(request.Data), " ")
	s.lent.mutex.RLock()
	defer s.lent.mutex.RUnlock()
	data := s.lent.memory(digest)
	first, err := strconv.ParseInt(offset, 10, 64)
	if err != nil || first < 0 || first >= int64(len(data)) {
		_ = request.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"404"}}}) // the reader asks again
		return
	}
	_ = request.Respond(data[first:min(first+chunkBytes, int64(len(data)))]) // likewise
}

// storeLent stores a lent part for a reader of the object store, once.
func (s *Store) storeLent(request *nats.Msg) {
	name, err := base64.URLEncoding.DecodeString(request.Subject[strings.LastIndex(request.Subject, ".")+1:])
	if err != nil {
		return
	}
	s.lent.storing.Lock() // nobody retires it meanwhile
	defer s.lent.storing.Unlock()
	digest := string(name)
	if data := s.lent.toStore(digest); data != nil {
		if err := s.PutAs(context.Background(), digest, data); err != nil {
			s.lent.notStored(digest)
			slog.Warn("a part that was asked for is not stored", "bucket", s.bucket, "digest", digest, "error", err)
		}
	}
}

// toStore returns a copy of a lent part that was not stored yet; nil where there is none.
func (l *lent) toStore(digest string) []byte {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	data := l.memory(digest)
	if data == nil || l.parts[digest].stored {
		return nil
	}
	l.parts[digest].stored = true
	return slices.Clone(data)
}

// notStored has the next reader who asks for a part try again. Nobody retired it since toStore.
func (l *lent) notStored(digest string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.parts[digest].stored = false
}
