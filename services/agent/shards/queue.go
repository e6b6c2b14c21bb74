package shards

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"slices"
	"time"
)

// Rules of the queue. Two parts in flight hide the round trips of a neighbour and leave few bytes to a slow one at the
// end (measured on links of 200, 300 and 500 Mbit/s: 903 of 1000 Mbit/s, and 697 with one). A fast one is asked for more
// when both end: what it sends in a round trip, with what the queues on the way hold, must have been asked for.
const (
	partsInFlight     = 2
	mostPartsInFlight = 4
	inFlightSeconds   = 0.2
	absentWait        = 20 * time.Millisecond // doubled each time, so that asking for the first parts does not starve the rest
	absentLongest     = time.Second
	absentPause       = 5 * time.Millisecond  // between two questions to one source
	patience          = 20 * time.Millisecond // by which a take-over must be faster
	strikesOut        = 3
	strikeWait        = time.Second
	corruptOut        = 2
)

// ErrCorrupt says that all sources of a part served other bytes than its digest's.
var ErrCorrupt = errors.New("content is not that of its digest")

// peer is a source as the queue sees it.
type peer struct {
	name      string
	meter     meter
	connected bool
	claims    []*claim
	corrupt   int       // parts
	stalled   int       // times
	strikes   int       // faults in a row
	rests     time.Time // until when it is asked for nothing
	duplicate int64     // bytes that came although they were there or not wanted any more
}

// able reports whether a source may be asked for something more.
func (p *peer) able(now time.Time) bool {
	return p.connected && p.corrupt < corruptOut && !now.Before(p.rests)
}

// backlog is how many bytes a source is still asked for.
func (p *peer) backlog() int64 {
	bytes := int64(0)
	for _, c := range p.claims {
		bytes += c.end - c.next
	}
	return bytes
}

// fetched is a part on its way.
type fetched struct {
	digest   string
	layer    *awaited
	into     []byte
	sources  []*peer // all that may have it
	excluded []*peer // that served other bytes
	holes    []*peer // that lacked chunks which their manifest lists
	givers   []*peer // of the bytes that came
	waits    map[*peer]wait
	left     int64 // bytes that are not there yet
	hash     hash.Hash
	hashed   int64 // bytes from the beginning on that the hash has seen
	hashes   bool  // somebody is at it
	alone    bool  // several sources gave bytes and the whole was corrupt: now one gives all, so that it is known
}

// wait is how long a source is not asked for a part.
type wait struct {
	until  time.Time
	length time.Duration
}

// serves reports whether a source may be asked for the part now.
func (f *fetched) serves(p *peer, now time.Time) bool {
	return f.mayServe(p) && !now.Before(f.waits[p].until)
}

func (f *fetched) mayServe(p *peer) bool {
	return p.corrupt < corruptOut && slices.Contains(f.sources, p) && !slices.Contains(f.excluded, p)
}

// reset forgets the bytes of a part.
func (f *fetched) reset() {
	f.left, f.hashed, f.hashes, f.givers = int64(len(f.into)), 0, false, nil
	f.hash = sha256.New()
}

// piece is a range of a part's bytes that nobody is asked for.
type piece struct {
	part       *fetched
	first, end int64
}

func (p piece) bytes() int64 { return p.end - p.first }

// claim is a piece that a source is asked for. The range [next, end) is still to come; end shrinks when another
// source takes over the tail.
type claim struct {
	part      *fetched
	peer      *peer
	next, end int64
}

// queue holds what is left to fetch, and decides who is asked for what. It is not safe for use by several goroutines,
// and touches neither network nor clock.
type queue struct {
	peers  []*peer
	pieces []piece // in order of the parts; what was given back comes first
	open   int     // parts that are not verified
	done   int64   // bytes of verified parts
	total  int64
}

// add appends a part, of which all or nothing is there.
func (q *queue) add(part *fetched, have bool) {
	q.total += int64(len(part.into))
	if have {
		q.done += int64(len(part.into))
		return
	}
	part.reset()
	if part.waits == nil {
		part.waits = map[*peer]wait{}
	}
	q.pieces = append(q.pieces, piece{part, 0, int64(len(part.into))})
	q.open++
}

// take returns what a source is to be asked for now, or nil. O(pieces * sources).
func (q *queue) take(p *peer, now time.Time) *claim {
	if !p.able(now) || q.full(p, now) {
		return nil
	}
	for i, candidate := range q.pieces {
		if candidate.part.serves(p, now) && q.soonest(p, candidate, now) {
			q.pieces = slices.Delete(q.pieces, i, i+1)
			return q.claim(p, candidate, now)
		}
	}
	return q.takeOver(p, now)
}

// full reports whether enough is asked of a source. Towards the end it is two parts: what is asked for then may be taken over.
func (q *queue) full(p *peer, now time.Time) bool {
	rate, _ := p.meter.speed(now)
	most := mostPartsInFlight
	if len(q.pieces) <= partsInFlight*len(q.peers) || float64(p.backlog()) >= rate*inFlightSeconds {
		most = partsInFlight
	}
	return len(p.claims) >= most
}

// upcoming returns the parts that a source may be asked for next, at most so many: first those that nobody is asked for.
// O(pieces * sources).
func (q *queue) upcoming(p *peer, most int, now time.Time) []*fetched {
	var parts []*fetched
	add := func(part *fetched) {
		if len(parts) < most && part.serves(p, now) {
			parts = append(parts, part)
		}
	}
	for _, waiting := range q.pieces {
		add(waiting.part)
	}
	for _, other := range q.peers {
		for _, c := range other.claims {
			add(c.part)
		}
	}
	return parts
}

func (q *queue) claim(p *peer, taken piece, now time.Time) *claim {
	c := &claim{part: taken.part, peer: p, next: taken.first, end: taken.end}
	p.claims = append(p.claims, c)
	p.meter.start(now)
	return c
}

// soonest reports whether no other source is expected to finish a piece before p would, the rest of the queue being
// shared by all. A source of unknown rate is tried.
func (q *queue) soonest(p *peer, candidate piece, now time.Time) bool {
	mine, known := p.meter.speed(now)
	if !known {
		return true
	}
	waiting, all := -candidate.bytes(), 0.0
	for _, other := range q.pieces {
		waiting += other.bytes()
	}
	for _, other := range q.peers {
		if rate, _ := other.meter.speed(now); other.able(now) {
			all += rate
		}
	}
	ends := float64(p.backlog()+candidate.bytes()) / mine
	for _, other := range q.peers {
		rate, known := other.meter.speed(now)
		if other == p || !known || !other.able(now) || !candidate.part.serves(other, now) {
			continue
		}
		if float64(other.backlog()+candidate.bytes())/rate+float64(waiting)/all < ends {
			return false
		}
	}
	return true
}

// takeOver gives an idle source the tail of what a slower one is asked for, so that both end at the same time. Who stalled
// last has a rate from before that, and who did not have the part may not have it yet.
func (q *queue) takeOver(p *peer, now time.Time) *claim {
	mine, known := p.meter.speed(now)
	if !known || p.strikes > 0 {
		return nil
	}
	mine /= float64(len(p.claims) + 1)
	var slowest *claim
	longest, theirs := 0.0, 0.0
	for _, other := range q.peers {
		rate, known := other.meter.speed(now)
		for _, c := range other.claims {
			left, rate := float64(c.end-c.next), rate/float64(len(other.claims))
			lacked := c.part.waits[p].length > 0
			if other == p || !known || left == 0 || c.part.alone || lacked || !c.part.serves(p, now) {
				continue
			}
			if lasts := left / rate; lasts > longest && lasts > 2*left/mine+patience.Seconds() {
				slowest, longest, theirs = c, lasts, rate
			}
		}
	}
	if slowest == nil {
		return nil
	}
	keeps := int64(float64(slowest.end-slowest.next) * theirs / (theirs + mine))
	from := min((slowest.next+keeps+chunkBytes-1)/chunkBytes*chunkBytes, (slowest.end-1)/chunkBytes*chunkBytes)
	tail := piece{slowest.part, max(from, slowest.next), slowest.end}
	slowest.end = tail.first
	return q.claim(p, tail, now)
}

// reserve assigns bytes that came to a claim: those from offset on are wanted, as many as it says.
func (q *queue) reserve(c *claim, at, bytes int64, now time.Time) (offset, wanted int64, hashes bool) {
	offset = c.next
	wanted = max(0, min(at+bytes, c.end)-max(at, c.next))
	c.next += wanted
	c.peer.duplicate += bytes - wanted
	c.peer.meter.add(bytes, now)
	c.peer.strikes = 0
	if hashes = wanted > 0 && c.part.hashed == offset && !c.part.hashes; hashes {
		c.part.hashes = true
	}
	return offset, wanted, hashes
}

// stored says that reserved bytes are in their place and, where reserve said so, hashed, and reports whether the part is
// complete.
func (q *queue) stored(c *claim, bytes int64, hashed bool) (complete bool) {
	c.part.left -= bytes
	if hashed {
		c.part.hashed += bytes
		c.part.hashes = false
	}
	if bytes > 0 && !slices.Contains(c.part.givers, c.peer) {
		c.part.givers = append(c.part.givers, c.peer)
	}
	return bytes > 0 && c.part.left == 0
}

// release ends a claim; what did not come is asked of others, from the next byte on.
func (q *queue) release(c *claim, now time.Time) {
	c.peer.claims = slices.DeleteFunc(c.peer.claims, func(other *claim) bool { return other == c })
	if len(c.peer.claims) == 0 {
		c.peer.meter.stop(now)
	}
	if c.next == c.end {
		return
	}
	left := piece{c.part, c.next, c.end}
	if c.part.alone { // its bytes must come from one source
		c.part.reset()
		left.first = 0
	}
	q.pieces = slices.Insert(q.pieces, 0, left)
}

// absent says that a source does not have the part yet.
func (q *queue) absent(c *claim, now time.Time) {
	length := min(max(absentWait, 2*c.part.waits[c.peer].length), absentLongest)
	c.part.waits[c.peer] = wait{now.Add(length), length}
	c.peer.rests = now.Add(absentPause)
	c.peer.strikes = 0
	q.giveBack(c)
	q.release(c, now)
}

// giveBack returns a tail to the claim it was cut from, if that still goes on.
func (q *queue) giveBack(c *claim) {
	for _, p := range q.peers {
		for _, other := range p.claims {
			if other.part == c.part && other.end == c.next && other.next < other.end && !c.part.alone {
				other.end, c.end = c.end, c.next
				return
			}
		}
	}
}

// hole says that chunks are gone which a source's manifest lists, as a server drops those that a disk spoiled. They may
// have been replaced at that moment; where it happens again, the source is asked for the part no more.
func (q *queue) hole(c *claim, now time.Time) error {
	if !slices.Contains(c.part.holes, c.peer) {
		c.part.holes = append(c.part.holes, c.peer)
		q.absent(c, now)
		return nil
	}
	q.release(c, now)
	return q.exclude(c.part, c.peer)
}

// stall says that a source stopped sending, or that its connection broke. The same fault of both its claims counts
// once.
func (q *queue) stall(c *claim, now time.Time, silence time.Duration) {
	p := c.peer
	if now.Sub(p.rests) > silence/2 {
		p.stalled++
		p.strikes++
		p.rests = now
		if p.strikes >= strikesOut {
			p.rests = now.Add(strikeWait)
		}
	}
	if q.othersServe(c.part, p, now) {
		c.part.waits[p] = wait{until: now.Add(silence)}
	}
	q.release(c, now)
}

func (q *queue) othersServe(part *fetched, p *peer, now time.Time) bool {
	return slices.ContainsFunc(q.peers, func(other *peer) bool {
		return other != p && other.able(now) && part.serves(other, now)
	})
}

// verified says that the bytes of a complete part are those of its digest.
func (q *queue) verified(part *fetched) {
	q.open--
	q.done += int64(len(part.into))
}

// corrupted says that they are not. Where one source gave them all it is that source's fault; else the part is asked
// whole of one. It fails with ErrCorrupt when a part has no source left.
func (q *queue) corrupted(part *fetched) error {
	givers := part.givers
	part.alone = true
	part.reset()
	q.pieces = slices.Insert(q.pieces, 0, piece{part, 0, int64(len(part.into))})
	if len(givers) > 1 {
		return nil
	}
	return q.exclude(part, givers[0])
}

// exclude says that a source has other bytes than a part's.
func (q *queue) exclude(part *fetched, p *peer) error {
	p.corrupt++
	part.excluded = append(part.excluded, p)
	return q.servable()
}

// servable fails with ErrCorrupt when a part that is waiting has no source left.
func (q *queue) servable() error {
	for _, waiting := range q.pieces {
		if !slices.ContainsFunc(waiting.part.sources, waiting.part.mayServe) {
			return fmt.Errorf("part %s: all of its %d sources: %w", waiting.part.digest, len(waiting.part.sources), ErrCorrupt)
		}
	}
	return nil
}
