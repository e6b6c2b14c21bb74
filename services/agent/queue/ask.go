package queue

import "time"

// Ask returns the offset of the next chunk to ask a claim's source for; false where enough is asked of that. A source that gives pieces is
// asked for all of a claim at once: claims are small, and another source takes over what is not claimed yet. Each claim awaits something.
func (q *Queue) Ask(c *Claim, now time.Time) (offset int64, wanted bool) {
	if c.asked >= c.End || c.awaited > 0 && c.Source.asked >= q.enough(c.Source, now) {
		return 0, false
	}
	offset = c.asked
	c.asked = min(offset+ChunkBytes, c.Part.size())
	c.await(c.asked - offset)
	return offset, true
}

// enough is how many bytes are asked of a source at a time: those of small claims, or what keeps its link busy for a round trip and more,
// or until all sources together are done.
func (q *Queue) enough(s *Source, now time.Time) int64 {
	rate, known := s.meter.speed(now)
	switch {
	case !s.givesWhole():
		return piecesAsked
	case !known:
		return firstAsked
	}
	roundTrip := s.RoundTrip.Seconds()
	return int64(rate * (roundTrip + min(askedSeconds, askedBytes/rate, max(0, q.secondsLeft(now)-roundTrip))))
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

// await counts bytes that were asked for; below zero, bytes that came or never will.
func (c *Claim) await(bytes int64) {
	bytes = max(bytes, -c.awaited)
	c.awaited += bytes
	c.Source.asked += bytes
}
