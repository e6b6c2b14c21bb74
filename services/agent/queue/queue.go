// Package queue decides which source is asked for which bytes of which part. It touches neither network nor clock: the
// caller passes the time in, and says what came and what failed. Nothing in it is safe for use by several goroutines.
package queue

import (
	"math"
	"slices"
	"time"
)

// ChunkBytes is the size of a message. 512 KiB costs the least processor time a byte of 128 KiB to 1 MiB (measured).
const ChunkBytes = 512 << 10

// MostClaims bounds the claims of one source.
const MostClaims = 6

// Rules of the queue. Two claims hide the round trips of a neighbour and leave few bytes to a slow one at the end
// (measured on links of 200, 300 and 500 Mbit/s: 903 of 1000 Mbit/s, and 697 with one claim). A fast source is asked
// for more when both claims end: what it sends in a round trip, with what the queues on the way hold, must have been
// asked for.
const (
	usualClaims     = 2
	inFlightSeconds = 0.2                   // and two round trips, in which the first chunk of another claim comes
	claimSeconds    = 0.1                   // of its link's time a source claims of a part at once
	lastClaims      = 3                     // of which the time that is left is enough for all
	beginSeconds    = 0.03                  // and first, then twice that: a giver puts two claims at a time
	firstClaimed    = 2 << 20               // bytes, of a source whose rate is not known
	askedSeconds    = 0.2                   // asked for beyond a round trip: a chunk whose packet was lost is that late
	askedBytes      = 12 << 20              // and no more: a giver holds twice what was asked of it and did not go out
	piecesAsked     = 24 << 20              // bytes, of a source that gives pieces
	firstAsked      = 4 << 20               // bytes, of a source whose rate is not known
	givenUpSeconds  = 2.0                   // what was asked of a link is asked of another, too, where it takes longer
	patience        = 20 * time.Millisecond // by which a take-over must be faster
)

// partRange is the bytes [first, end) of a part that no source is asked for.
type partRange struct {
	part       *Part
	first, end int64
	asked      bool // of a source already: asked for once more it is the same, so that a giver knows it again
}

func (r partRange) bytes() int64 { return r.end - r.first }

// Claim is a range of a part's bytes that a source is asked for. Next is the first byte that did not come yet. End
// shrinks when another source takes over the tail.
type Claim struct {
	Part      *Part
	Source    *Source
	Next, End int64
	first     int64 // where it began
	most      int64 // which End was in the beginning
	asked     int64 // offset up to which chunks were asked for
	awaited   int64 // bytes of those that did not come yet
	taken     bool  // over from another source, and nothing came of it yet
}

// Piece is the range of its part that a claim began with, from one chunk's border to another's. It stays what it is,
// unless the claim is widened.
func (c *Claim) Piece() (first, end int64) {
	return c.first / ChunkBytes * ChunkBytes, min((c.most+ChunkBytes-1)/ChunkBytes*ChunkBytes, c.Part.size())
}

// Queue holds what is left to fetch.
type Queue struct {
	Sources []*Source
	Open    int         // parts that are not verified
	Done    int64       // bytes of verified parts
	Total   int64       // bytes of all parts
	waiting []partRange // in order of the parts; what was given back comes first
}

// Add appends a part.
func (q *Queue) Add(part *Part) {
	q.Open++
	q.Total += part.size()
	q.waiting = append(q.waiting, part.whole())
}

// Take returns what a source is to be asked for now, or nil. O(waiting ranges * sources).
func (q *Queue) Take(s *Source, now time.Time) *Claim {
	if !s.able(now) || q.full(s, now) {
		return nil
	}
	c := q.takeOf(s, func(part *Part) bool { return part.serves(s, now) }, now)
	if c == nil {
		c = q.takeOf(s, func(part *Part) bool { return part.relieves(s) }, now)
	}
	return c
}

// takeOf takes what waits of the parts that a source may give, as much as it is to claim at once, or the tail of another source's
// claim.
func (q *Queue) takeOf(s *Source, gives func(*Part) bool, now time.Time) *Claim {
	most := q.claimBytes(s, now)
	i := q.next(s, gives, most, now)
	if i < 0 {
		return q.takeOver(s, gives, now)
	}
	taken := q.waiting[i].begin(most)
	if q.waiting[i].first = taken.end; taken.end == q.waiting[i].end {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return s.claim(taken, now)
}

// next returns which of the waiting ranges a source is to be asked for, or -1. A source that may have all that is before a range come
// with it begins with the beginnings of parts. It is asked for another range where it is the only one that gives that, or where nothing
// is known of it otherwise.
func (q *Queue) next(s *Source, gives func(*Part) bool, most int64, now time.Time) int {
	other := -1
	for i, waiting := range q.waiting {
		switch {
		case !gives(waiting.part) || !q.soonest(s, waiting.begin(most), now):
		case waiting.first == 0, s.Gives == Pieces, s.Gives == Whole:
			return i
		case other < 0 && !q.leaves(s, waiting, now):
			other = i
		}
	}
	return other
}

// leaves reports whether a source leaves a range to one of another kind, as all that is before it would come with it.
func (q *Queue) leaves(s *Source, r partRange, now time.Time) bool {
	return s.Gives == Ordered && r.first > 0 && slices.ContainsFunc(q.Sources, func(other *Source) bool {
		return other.Gives != Ordered && other.able(now) && r.part.serves(other, now)
	})
}

// Widen has a claim go on to the end of what waits behind it of its part: its source turned out to give parts whole.
func (q *Queue) Widen(c *Claim) {
	i := slices.IndexFunc(q.waiting, func(r partRange) bool { return r.part == c.Part && r.first == c.End })
	if i < 0 || c.Part.alone {
		return
	}
	c.End = q.waiting[i].end
	c.most = max(c.most, c.End)
	q.waiting = slices.Delete(q.waiting, i, i+1)
}

// claimBytes is how much of a part a source claims at once: what its link carries in claimSeconds, and less in the beginning and at the
// end, so that all sources are done at about the same time. O(waiting ranges + claims).
func (q *Queue) claimBytes(s *Source, now time.Time) int64 {
	rate, known := s.meter.speed(now)
	switch {
	case s.givesWhole():
		return math.MaxInt64
	case !known:
		return firstClaimed
	case s.meter.bytes == 0:
		return int64(rate * beginSeconds * float64(1+len(s.claims)))
	}
	return int64(rate * min(claimSeconds, q.secondsLeft(now)/lastClaims))
}

// begin is the beginning of a range, of so many bytes and up to the border of a chunk; all of it where one source is to give it all.
func (r partRange) begin(most int64) partRange {
	if !r.asked && !r.part.alone && most < r.bytes() {
		r.end = min((r.first+max(most, 1)+ChunkBytes-1)/ChunkBytes*ChunkBytes, r.end)
	}
	return r
}

// full reports whether enough is asked of a source. The first request to it is not to wait for those behind it.
func (q *Queue) full(s *Source, now time.Time) bool {
	rate, _ := s.meter.speed(now)
	lasts := min(inFlightSeconds+2*s.RoundTrip.Seconds(), q.secondsLeft(now))
	if s.meter.bytes == 0 {
		lasts = 3 * beginSeconds
	}
	most := MostClaims
	if float64(s.backlog()) >= rate*lasts {
		most = usualClaims
	}
	return len(s.claims) >= most
}

// Upcoming returns the parts that a source may be asked for next, at most so many: those that wait come first.
// O(waiting ranges * sources).
func (q *Queue) Upcoming(s *Source, most int, now time.Time) []*Part {
	var parts []*Part
	add := func(part *Part) {
		if len(parts) < most && (part.serves(s, now) || part.relieves(s)) {
			parts = append(parts, part)
		}
	}
	for _, waiting := range q.waiting {
		add(waiting.part)
	}
	for _, other := range q.Sources {
		for _, c := range other.claims {
			add(c.Part)
		}
	}
	return parts
}

// soonest reports whether no other source is expected to finish a range before s would, while all sources share the
// rest of the queue. A source of unknown rate is tried.
func (q *Queue) soonest(s *Source, candidate partRange, now time.Time) bool {
	mine, known := s.meter.speed(now)
	if !known {
		return true
	}
	rest, all := -candidate.bytes(), 0.0
	for _, waiting := range q.waiting {
		rest += waiting.bytes()
	}
	for _, other := range q.Sources {
		if rate, _ := other.meter.speed(now); other.able(now) {
			all += rate
		}
	}
	ends := float64(s.backlog()+candidate.bytes()) / mine
	for _, other := range q.Sources {
		rate, known := other.meter.speed(now)
		if other == s || !known || !other.able(now) || !candidate.part.serves(other, now) ||
			q.leaves(other, candidate, now) {
			continue
		}
		if float64(other.backlog()+candidate.bytes())/rate+float64(rest)/all < ends {
			return false
		}
	}
	return true
}

// takeOver gives a source the tail of a slower one's claim, so that both end at the same time. A source that stalled
// last takes over nothing: its rate is from before that. A source that did not have a part may not have it yet. One that would have
// all come that is before a tail takes over none.
func (q *Queue) takeOver(s *Source, gives func(*Part) bool, now time.Time) *Claim {
	mine, known := s.meter.speed(now)
	if !known || s.strikes > 0 || s.Gives == Ordered {
		return nil
	}
	mine /= float64(len(s.claims) + 1)
	var slowest *Claim
	longest, tail := 0.0, partRange{}
	for _, other := range q.Sources {
		theirs, known := other.meter.speed(now)
		for _, c := range other.claims {
			if other == s || !known || c.Part.alone || c.Part.Absent(s) || !gives(c.Part) {
				continue
			}
			theirs := theirs / float64(len(other.claims))
			cut, lasts := c.tail(theirs, mine), float64(c.End-c.Next)/theirs
			if lasts > longest && lasts > c.lastsCut(cut, theirs, mine)+patience.Seconds() && cut.bytes() > 0 {
				slowest, longest, tail = c, lasts, cut
			}
		}
	}
	if slowest == nil {
		return nil
	}
	slowest.Source.GivenUp = slowest.Source.GivenUp || tail.first < slowest.asked
	slowest.End = tail.first
	taken := s.claim(tail, now)
	taken.taken = true
	return taken
}

// lastsCut is how many seconds a claim and its tail last, once that is another source's. The last chunk is fetched by one
// source alone, however many could. Twice as long counts for a claim that was taken over itself and of which nothing came
// yet: two idle sources would take its last chunk from each other before either has it.
func (c *Claim) lastsCut(tail partRange, theirs, mine float64) float64 {
	switch {
	case tail.first > c.Next:
		return float64(c.End-c.Next) / (theirs + mine)
	case c.taken:
		return 2 * float64(tail.bytes()) / mine
	}
	return float64(tail.bytes()) / mine
}

// tail is the range of a claim that another source may take over so that both end at the same time. Chunks that were
// asked for stay, unless they take too long: they come anyway, or their connection is given up.
func (c *Claim) tail(theirs, mine float64) partRange {
	first := max(c.asked, c.Next)
	if float64(first-c.Next)/theirs > givenUpSeconds {
		first = c.Next
	}
	keeps := int64(float64(c.End-c.Next) * theirs / (theirs + mine))
	from := min((c.Next+keeps+ChunkBytes-1)/ChunkBytes*ChunkBytes, (c.End-1)/ChunkBytes*ChunkBytes)
	return partRange{part: c.Part, first: max(from, first), end: c.End}
}

// secondsLeft is how long the sources that give something take together for all that did not come yet. One of them at
// least has a known rate. O(waiting ranges + claims).
func (q *Queue) secondsLeft(now time.Time) float64 {
	left, all := int64(0), 0.0
	for _, waiting := range q.waiting {
		left += waiting.bytes()
	}
	for _, s := range q.Sources {
		left += s.backlog()
		if rate, _ := s.meter.speed(now); s.able(now) && len(s.claims) > 0 {
			all += rate
		}
	}
	return float64(left) / all
}

// Reserve counts bytes that came from a claim's source, at an offset of the part. It returns where the wanted ones
// begin and how many they are, and whether the caller is to hash them when it stores them.
func (q *Queue) Reserve(c *Claim, at, bytes int64, now time.Time) (offset, wanted int64, hashes bool) {
	offset = c.Next
	wanted = max(0, min(at+bytes, c.End)-max(at, c.Next))
	c.Next += wanted
	c.taken = c.taken && wanted == 0
	c.await(-bytes)
	c.Source.Duplicate += bytes - wanted
	c.Source.meter.add(bytes, now)
	c.Source.strikes = 0
	hashes = wanted > 0 && c.Part.hashed == offset && !c.Part.hashing
	c.Part.hashing = c.Part.hashing || hashes
	return offset, wanted, hashes
}

// Stored says that reserved bytes are in their place and, where Reserve said so, hashed. It reports whether the part is
// complete; its digest is to be judged then.
func (q *Queue) Stored(c *Claim, bytes int64, hashed bool) (complete bool) {
	part := c.Part
	part.left -= bytes
	if bytes > 0 && !slices.Contains(part.givers, c.Source) {
		part.givers = append(part.givers, c.Source)
	}
	if hashed {
		part.hashed += bytes
		part.hashing = false
	}
	return bytes > 0 && part.left == 0
}

// Verified says that the bytes of a complete part are those of its digest.
func (q *Queue) Verified(part *Part) {
	q.Open--
	q.Done += part.size()
}

// Release ends a claim. Another source is asked for what did not come, from the next byte on.
func (q *Queue) Release(c *Claim, now time.Time) {
	c.Source.claims = slices.DeleteFunc(c.Source.claims, func(other *Claim) bool { return other == c })
	c.await(-c.awaited)
	if len(c.Source.claims) == 0 {
		c.Source.meter.stop(now)
	}
	switch {
	case c.Next == c.End:
	case c.Part.alone:
		c.Part.reset()
		q.giveBack(c.Part.whole())
	default:
		q.giveBack(partRange{c.Part, c.Next, c.End, true})
	}
}

// giveBack puts a range in front of those that wait.
func (q *Queue) giveBack(left partRange) { q.waiting = slices.Insert(q.waiting, 0, left) }
