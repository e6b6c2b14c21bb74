package shards

import (
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
	askedSeconds      = 0.2                   // asked for beyond what a round trip carries: a chunk whose packet was lost is as late
	firstAsked        = 4 << 20               // of a source whose rate is not known
	givenUpSeconds    = 2.0                   // of a link, that what was asked for takes: it is asked of another as well
	absentWait        = 20 * time.Millisecond // doubled each time, so that asking for the first parts does not starve the rest
	absentLongest     = time.Second
	absentPause       = 5 * time.Millisecond  // between two questions to one source
	patience          = 20 * time.Millisecond // by which a take-over must be faster
	strikesOut        = 3
	strikeWait        = time.Second
	corruptOut        = 2
)

// peer is a source as the queue sees it.
type peer struct {
	name      string
	meter     meter
	connected bool
	givenUp   bool // what it was asked for is not worth waiting for: its connection is to be made anew
	claims    []*claim
	asked     int64     // bytes of chunks that were asked for and did not come yet
	corrupt   int       // parts
	lacked    int       // chunks
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
	asked     int64  // offset up to which chunks were asked for
	awaited   int64  // bytes of those that did not come yet
	object    string // the name of its chunks, from its manifest on
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

// add appends a part.
func (q *queue) add(part *fetched) {
	q.total += int64(len(part.into))
	if part.waits == nil {
		part.waits = map[*peer]wait{}
	}
	q.open++
	part.there = make([]byte, chunksOf(int64(len(part.into))))
	part.reset(none)
	q.pieces = append(q.pieces, part.missing()...)
}

// take returns what a source is to be asked for now, or nil. O(pieces * sources).
func (q *queue) take(p *peer, now time.Time) *claim {
	if !p.able(now) || q.full(p, now) {
		return nil
	}
	serves := func(part *fetched) bool { return part.serves(p, now) }
	c := q.takeOf(p, serves, now)
	if c == nil {
		c = q.takeOf(p, func(part *fetched) bool { return part.relieves(p) }, now)
	}
	return c
}

// takeOf takes of the parts that a source may give what nobody is asked for, or the tail of what another is.
func (q *queue) takeOf(p *peer, gives func(*fetched) bool, now time.Time) *claim {
	for i, candidate := range q.pieces {
		if gives(candidate.part) && q.soonest(p, candidate, now) {
			q.pieces = slices.Delete(q.pieces, i, i+1)
			return q.claim(p, candidate, now)
		}
	}
	return q.takeOver(p, gives, now)
}

// full reports whether enough is asked of a source.
func (q *queue) full(p *peer, now time.Time) bool {
	most := mostPartsInFlight
	if rate, _ := p.meter.speed(now); float64(p.backlog()) >= rate*min(inFlightSeconds, q.secondsLeft(now)) {
		most = partsInFlight
	}
	return len(p.claims) >= most
}

// upcoming returns the parts that a source may be asked for next, at most so many: first those that nobody is asked for.
// O(pieces * sources).
func (q *queue) upcoming(p *peer, most int, now time.Time) []*fetched {
	var parts []*fetched
	add := func(part *fetched) {
		if len(parts) < most && (part.serves(p, now) || part.relieves(p)) {
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
	c := &claim{part: taken.part, peer: p, next: taken.first, end: taken.end, asked: taken.first / chunkBytes * chunkBytes}
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

// takeOver gives an idle source the tail of what a slower one is to give, so that both end at the same time. Who stalled
// last has a rate from before that, and who did not have the part may not have it yet.
func (q *queue) takeOver(p *peer, gives func(*fetched) bool, now time.Time) *claim {
	mine, known := p.meter.speed(now)
	if !known || p.strikes > 0 {
		return nil
	}
	mine /= float64(len(p.claims) + 1)
	var slowest *claim
	longest, tail := 0.0, piece{}
	for _, other := range q.peers {
		theirs, known := other.meter.speed(now)
		for _, c := range other.claims {
			lacked := c.part.waits[p].length > 0
			if other == p || !known || c.part.alone || lacked || !gives(c.part) {
				continue
			}
			theirs := theirs / float64(len(other.claims))
			left, cut := float64(c.end-c.next), c.tail(theirs, mine)
			lasts, together := left/theirs, left/(theirs+mine)
			if lasts > longest && lasts > together+patience.Seconds() && cut.bytes() > 0 {
				slowest, longest, tail = c, lasts, cut
			}
		}
	}
	if slowest == nil {
		return nil
	}
	slowest.peer.givenUp = slowest.peer.givenUp || tail.first < slowest.asked
	slowest.end = tail.first
	return q.claim(p, tail, now)
}

// tail is what another source may take over so that both end at the same time. Chunks that were asked for stay, unless they
// take too long: they come anyway, or their connection is given up.
func (c *claim) tail(theirs, mine float64) piece {
	first := max(c.asked, c.next)
	if float64(first-c.next)/theirs > givenUpSeconds {
		first = c.next
	}
	keeps := int64(float64(c.end-c.next) * theirs / (theirs + mine))
	from := min((c.next+keeps+chunkBytes-1)/chunkBytes*chunkBytes, (c.end-1)/chunkBytes*chunkBytes)
	return piece{c.part, max(from, first), c.end}
}

// ask returns the offset of the next chunk to ask a claim's source for. It returns false where what is on its way keeps the
// link busy for a round trip and more, or until all sources together are done: what is not asked for may be taken over. Each
// claim awaits something.
func (q *queue) ask(c *claim, roundTrip time.Duration, now time.Time) (offset int64, wanted bool) {
	enough := int64(firstAsked)
	if rate, known := c.peer.meter.speed(now); known {
		enough = int64(rate * min(roundTrip.Seconds()+askedSeconds, max(roundTrip.Seconds(), q.secondsLeft(now))))
	}
	if c.asked >= c.end || c.awaited > 0 && c.peer.asked >= enough {
		return 0, false
	}
	offset = c.asked
	c.asked = min(offset+chunkBytes, int64(len(c.part.into)))
	c.await(c.asked - offset)
	return offset, true
}

// secondsLeft is how long all sources that give something take together for what did not come yet. It is for where one of them
// at least has a known rate.
// O(pieces + claims).
func (q *queue) secondsLeft(now time.Time) float64 {
	left, all := int64(0), 0.0
	for _, waiting := range q.pieces {
		left += waiting.bytes()
	}
	for _, p := range q.peers {
		left += p.backlog()
		if rate, _ := p.meter.speed(now); p.able(now) && len(p.claims) > 0 {
			all += rate
		}
	}
	return float64(left) / all
}

// await counts bytes that were asked for; below zero, that came.
func (c *claim) await(bytes int64) {
	c.awaited += bytes
	c.peer.asked += bytes
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
func (q *queue) stored(c *claim, offset, bytes int64, hashed bool) (complete bool) {
	c.part.stored(c.peer, offset, bytes)
	if hashed {
		c.part.hashed += bytes
		c.part.hashes = false
	}
	return bytes > 0 && c.part.left == 0
}

// release ends a claim; what did not come is asked of others, from the next byte on.
func (q *queue) release(c *claim, now time.Time) {
	c.peer.claims = slices.DeleteFunc(c.peer.claims, func(other *claim) bool { return other == c })
	c.await(-c.awaited)
	if len(c.peer.claims) == 0 {
		c.peer.meter.stop(now)
	}
	if c.next == c.end {
		return
	}
	left := piece{c.part, c.next, c.end}
	if c.part.alone && !c.part.doubted { // its bytes must come from one source
		c.part.reset(none)
		left.first = 0
	}
	q.pieces = slices.Insert(q.pieces, 0, left)
}

// absent says that a source does not have the part yet.
func (q *queue) absent(c *claim, now time.Time) {
	c.part.postpone(c.peer, now)
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

// lack says that the next chunk is gone which a source's manifest lists, as a server drops one that a disk spoiled. Others
// are asked for it, and the claim goes on behind it.
func (q *queue) lack(c *claim, now time.Time) {
	if c.next == c.end { // taken over meanwhile
		return
	}
	gone := piece{c.part, c.next, min((c.next/chunkBytes+1)*chunkBytes, c.end)}
	c.next = gone.end
	c.peer.lacked++
	c.part.lacked(c)
	c.part.postpone(c.peer, now)
	if len(q.pieces) > 0 && q.pieces[0].part == c.part && q.pieces[0].end == gone.first {
		q.pieces[0].end = gone.end
		return
	}
	q.pieces = slices.Insert(q.pieces, 0, gone)
}

// hole ends a claim on an object that lacks chunks. It may have been replaced at that moment; where it is found again, the
// source is asked for the part no more.
func (q *queue) hole(c *claim, now time.Time) error {
	if !c.part.holed(c) {
		c.part.lacked(c)
		q.absent(c, now)
		return nil
	}
	q.release(c, now)
	c.part.excluded = append(c.part.excluded, c.peer)
	return q.servable()
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
