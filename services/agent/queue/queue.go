// Package queue decides which source is asked for which bytes of which part. It touches neither network nor clock: the
// caller passes the time in, and says what came and what failed. Nothing in it is safe for use by several goroutines.
package queue

import (
	"slices"
	"time"
)

// ChunkBytes is the size of a message. 512 KiB costs the least processor time a byte of 128 KiB to 1 MiB (measured).
const ChunkBytes = 512 << 10

// MostClaims bounds the claims of one source.
const MostClaims = 4

// Rules of the queue. Two claims hide the round trips of a neighbour and leave few bytes to a slow one at the end
// (measured on links of 200, 300 and 500 Mbit/s: 903 of 1000 Mbit/s, and 697 with one claim). A fast source is asked
// for more when both claims end: what it sends in a round trip, with what the queues on the way hold, must have been
// asked for.
const (
	usualClaims     = 2
	inFlightSeconds = 0.2
	askedSeconds    = 0.2                   // asked for beyond a round trip: a chunk whose packet was lost is that late
	askedBytes      = 12 << 20              // and no more: a giver holds twice what was asked of it and did not go out
	firstAsked      = 4 << 20               // bytes, of a source whose rate is not known
	givenUpSeconds  = 2.0                   // what was asked of a link is asked of another, too, where it takes longer
	patience        = 20 * time.Millisecond // by which a take-over must be faster
)

// partRange is the bytes [first, end) of a part that no source is asked for.
type partRange struct {
	part       *Part
	first, end int64
}

func (r partRange) bytes() int64 { return r.end - r.first }

// Claim is a range of a part's bytes that a source is asked for. Next is the first byte that did not come yet. End
// shrinks when another source takes over the tail.
type Claim struct {
	Part      *Part
	Source    *Source
	Next, End int64
	asked     int64 // offset up to which chunks were asked for
	awaited   int64 // bytes of those that did not come yet
	taken     bool  // over from another source, and nothing came of it yet
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

// takeOf takes a range that waits, of the parts that a source may give, or the tail of another source's claim. It leaves the
// ranges of parts that other givers put ahead for the last: two would put the same part.
func (q *Queue) takeOf(s *Source, gives func(*Part) bool, now time.Time) *Claim {
	first := -1
	for i, candidate := range q.waiting {
		if !gives(candidate.part) || !q.soonest(s, candidate, now) {
			continue
		}
		if !candidate.part.putElsewhere(s, now) {
			first = i
			break
		}
		if first < 0 {
			first = i
		}
	}
	if first < 0 {
		return q.takeOver(s, gives, now)
	}
	taken := q.waiting[first]
	q.waiting = slices.Delete(q.waiting, first, first+1)
	return s.claim(taken, now)
}

// full reports whether enough is asked of a source.
func (q *Queue) full(s *Source, now time.Time) bool {
	most := MostClaims
	if rate, _ := s.meter.speed(now); float64(s.backlog()) >= rate*min(inFlightSeconds, q.secondsLeft(now)) {
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

// Ahead returns the parts that a giver is to put before they are claimed: those that wait for it, as long as they are so
// many bytes in sum, and one where the first is longer. It tells of no more parts than a giver of known rate is expected to
// give until all sources are done. No two sources are told the same: each would put what one is asked for.
// O(waiting ranges * sources).
func (q *Queue) Ahead(s *Source, bytes int64, now time.Time) []*Part {
	gives := bytes
	if rate, known := s.meter.speed(now); known {
		gives = int64(min(rate*q.secondsLeft(now), float64(q.Total))) - s.backlog() // nobody gives: without end
	}
	var parts []*Part
	for _, waiting := range q.waiting {
		part := waiting.part
		if part.putElsewhere(s, now) || !part.serves(s, now) || slices.Contains(parts, part) {
			continue
		}
		if bytes -= part.size(); bytes < 0 && len(parts) > 0 {
			break
		}
		if gives -= part.size(); part.ahead != s && gives < -part.size()/2 {
			break
		}
		part.ahead = s
		parts = append(parts, part)
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
		if other == s || !known || !other.able(now) || !candidate.part.serves(other, now) {
			continue
		}
		if float64(other.backlog()+candidate.bytes())/rate+float64(rest)/all < ends {
			return false
		}
	}
	return true
}

// takeOver gives a source the tail of a slower one's claim, so that both end at the same time. A source that stalled
// last takes over nothing: its rate is from before that. A source that did not have a part may not have it yet.
func (q *Queue) takeOver(s *Source, gives func(*Part) bool, now time.Time) *Claim {
	mine, known := s.meter.speed(now)
	if !known || s.strikes > 0 {
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
	return partRange{c.Part, max(from, first), c.End}
}

// Ask returns the offset of the next chunk to ask a claim's source for. It returns false where what is on its way keeps
// the link busy for a round trip and more, or until all sources together are done: another source may take over what
// was not asked for. Each claim awaits something.
func (q *Queue) Ask(c *Claim, roundTrip time.Duration, now time.Time) (offset int64, wanted bool) {
	enough := int64(firstAsked)
	if rate, known := c.Source.meter.speed(now); known {
		beyond := min(askedSeconds, askedBytes/rate, max(0, q.secondsLeft(now)-roundTrip.Seconds()))
		enough = int64(rate * (roundTrip.Seconds() + beyond))
	}
	if c.asked >= c.End || c.awaited > 0 && c.Source.asked >= enough {
		return 0, false
	}
	offset = c.asked
	c.asked = min(offset+ChunkBytes, c.Part.size())
	c.await(c.asked - offset)
	return offset, true
}

// AskRest returns how many bytes from an offset on to ask a claim's source for at once, at most so many. It is for a
// source whose chunks cannot be asked for one by one. No other source takes these bytes over.
func (q *Queue) AskRest(c *Claim, from, most int64) (bytes int64) {
	bytes = min(most, c.End-from)
	c.asked = max(c.asked, from+bytes)
	c.await(-c.awaited)
	return bytes
}

// Reask forgets what was asked of a claim's source and did not come: it is asked for anew.
func (q *Queue) Reask(c *Claim) {
	c.await(-c.awaited)
	c.asked = c.Next / ChunkBytes * ChunkBytes
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

// await counts bytes that were asked for; below zero, bytes that came or never will.
func (c *Claim) await(bytes int64) {
	bytes = max(bytes, -c.awaited)
	c.awaited += bytes
	c.Source.asked += bytes
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
		q.giveBack(partRange{c.Part, c.Next, c.End})
	}
}

// giveBack puts a range in front of those that wait.
func (q *Queue) giveBack(left partRange) { q.waiting = slices.Insert(q.waiting, 0, left) }
