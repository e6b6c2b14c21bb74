package queue

import (
	"crypto/sha256"
	"hash"
	"slices"
	"time"
)

// Part is a range of a layer's bytes on its way, which its digest verifies.
type Part struct {
	Digest string
	Bytes  []byte    // its place in the layer
	Hash   hash.Hash // of the bytes that Reserve had its caller hash, from the beginning on

	sources  []*Source // all that may have it
	excluded []*Source // those that serve other bytes
	givers   []*Source // of the bytes that came
	waits    map[*Source]wait
	foreign  map[*Source]int // answers that were something else
	left     int64           // bytes that did not come yet
	hashed   int64           // bytes from the beginning on that the hash has seen
	hashing  bool            // some claim's caller hashes
	alone    bool            // several sources gave a corrupt whole: one source gives it all, so that the corrupt one shows
}

// wait is how long a source is not asked for a part.
type wait struct {
	until  time.Time
	absent time.Duration // zero: the source never said that it does not have the part
	spare  bool          // it may have the part already, and was not asked
}

// NewPart returns a part that any of some sources may give.
func NewPart(digest string, into []byte, sources []*Source) *Part {
	part := &Part{Digest: digest, Bytes: into, sources: slices.Clone(sources), waits: map[*Source]wait{}, foreign: map[*Source]int{}}
	part.reset()
	return part
}

// Spare adds a source that is to be asked for the part from a time on. A source that has nothing else to give is asked
// before that.
func (p *Part) Spare(s *Source, from time.Time) {
	p.sources = append(p.sources, s)
	p.waits[s] = wait{until: from, spare: true}
}

// Absent reports whether a source said that it does not have the part yet.
func (p *Part) Absent(s *Source) bool { return p.waits[s].absent > 0 }

// Alone reports whether all bytes of the part have to come from one source.
func (p *Part) Alone() bool { return p.alone }

// Hashed is how many bytes from the beginning on the hash has seen.
func (p *Part) Hashed() int64 { return p.hashed }

func (p *Part) size() int64 { return int64(len(p.Bytes)) }

func (p *Part) whole() partRange { return partRange{part: p, end: p.size()} }

// reset forgets the bytes that came.
func (p *Part) reset() {
	p.left, p.hashed, p.hashing, p.givers, p.Hash = p.size(), 0, false, nil, sha256.New()
}

// serves reports whether a source may be asked for the part now.
func (p *Part) serves(s *Source, now time.Time) bool {
	return p.mayServe(s) && !now.Before(p.waits[s].until)
}

func (p *Part) mayServe(s *Source) bool {
	return !s.Out() && slices.Contains(p.sources, s) && !slices.Contains(p.excluded, s)
}

// relieves reports whether a spare may be asked before its time: it gives other parts, and has nothing left to be asked
// for.
func (p *Part) relieves(s *Source) bool {
	return p.waits[s].spare && s.meter.bytes > 0 && p.mayServe(s)
}

// postpone has a source asked for the part later, and ever later. A spare that was asked before its time waits for
// that.
func (p *Part) postpone(s *Source, now time.Time) {
	if waits := p.waits[s]; waits.spare && now.Before(waits.until) {
		p.waits[s] = wait{until: waits.until}
		return
	}
	absent := min(max(absentWait, 2*p.waits[s].absent), absentLongest)
	p.waits[s] = wait{until: now.Add(absent), absent: absent}
}
